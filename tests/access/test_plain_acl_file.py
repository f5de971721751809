"""A broker that takes its accounts from plain_acl.yml, and hears when the file changes."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from typing import Any

import pytest

from access.signing import connected, guarded, guarded_name_server, signer, slow_frames
from broker.commands import make_topic
from broker.harness import CONFIG, new_broker, new_disk, run
from cometmq.errors import SettingsError
from cometmq.settings.access import AccessSettings
from cometmq.wire.codes import RequestCode as Code
from cometmq.wire.codes import ResponseCode
from cometmq.wire.request_signature import Credentials

PLAIN = AccessSettings(acl_enable=True)
PATH = CONFIG / "plain_acl.yml"
TEXT = """
globalWhiteRemoteAddresses: []
accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - T=PUB
  - accessKey: boss
    secretKey: 012345678
    admin: true
dataVersion:
  - timestamp: 1
    counter: 1
"""
USER, BOSS = Credentials("RocketMQ", "12345678"), Credentials("boss", "012345678")
REFUSED = ResponseCode.NO_PERMISSION


def leave(disk: Any, text: str, path: Path = PATH) -> None:
    disk.make_dir(path.parent)
    disk.write(path, text.encode())


def test_accounts_decide_and_their_file_is_read_again_when_it_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        disk = new_disk()
        leave(disk, TEXT)
        async with guarded(PLAIN, disk=disk) as harness:
            await make_topic(harness)
            user = signer(await harness.client(), USER)
            boss = signer(await harness.client(), BOSS)
            nobody = signer(await harness.client(), None)
            assert (await user.send("T")).code == 0
            assert (await user.pull("T")).code == REFUSED
            assert (await boss.call(Code.GET_BROKER_CONFIG)).code == 0
            assert (await user.call(Code.GET_BROKER_CONFIG)).code == REFUSED
            assert (await nobody.send("T")).code == REFUSED
            assert "change that file" in ((await boss.call(3005)).remark or "")
            leave(disk, TEXT.replace("T=PUB", "T=SUB"))
            await asyncio.sleep(2)
            assert (await user.send("T")).code == REFUSED
            assert (await user.pull("T")).code == 0
            for broken in ("accounts: [", "accounts: []", TEXT.replace("12345678", "")):
                leave(disk, broken)
                await asyncio.sleep(5)
                assert (await user.pull("T")).code == 0
            disk.delete(PATH)
            await asyncio.sleep(5)
            assert (await user.pull("T")).code == 0
            leave(disk, TEXT.replace("[]", "[127.0.0.*]"))
            await asyncio.sleep(2)
            assert (await nobody.send("T")).code == 0, "its address is white"

    run(scenario())
    lines = [one for one in caplog.messages if "the accounts before are still in force" in one]
    assert len(lines) == 4, "once for each of them"
    assert "12345678" not in caplog.text


def test_what_a_white_address_sends_is_fast_and_is_not_once_the_file_changes() -> None:
    async def scenario() -> None:
        disk = new_disk()
        leave(disk, TEXT.replace("[]", "[127.0.0.1]"))
        async with guarded(PLAIN, disk=disk) as harness:
            await make_topic(harness)
            seen = slow_frames(harness)
            client = await harness.client()
            for _ in range(8):
                assert (await client.send("T")).code == 0
            assert len(seen) < 4, "the rest was fast"
            leave(disk, TEXT)
            await asyncio.sleep(2)
            for _ in range(3):
                assert (await client.send("T")).code == REFUSED

    run(scenario())


def test_a_name_server_takes_them_too() -> None:
    async def scenario() -> None:
        async with (
            guarded_name_server(PLAIN, {"/names/plain_acl.yml": TEXT}) as server,
            connected(server, BOSS) as boss,
            connected(server, USER) as user,
        ):
            assert (await boss.call(Code.GET_NAMESRV_CONFIG)).code == 0
            assert (await user.call(Code.GET_NAMESRV_CONFIG)).code == REFUSED
            assert (await user.call(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).code == 0

    run(scenario())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "there is no such file"),
        ("accounts: [", "it is no YAML at line 1"),
        ("accounts: []", "it has no accounts"),
        ("accounts: " + "[" * 5_000, "it is nested too deeply"),
        ("# " + "x" * (1 << 20), "it has 1048578 bytes, the limit is 1048576"),
    ],
    ids=["missing", "no YAML", "nobody", "nested", "too long"],
)
def test_a_start_without_good_accounts_is_refused(text: str | None, problem: str) -> None:
    async def scenario() -> None:
        disk = new_disk()
        if text is not None:
            leave(disk, text)
        with pytest.raises(SettingsError) as caught:
            new_broker(access=PLAIN, disk=disk)
        assert str(caught.value) == f"plainAclFile {PATH}: {problem}"

    run(scenario())


def test_without_the_yaml_parser_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    find = importlib.import_module

    def missing(name: str) -> Any:
        if name == "yaml":
            raise ImportError(name)
        return find(name)

    async def scenario() -> None:
        disk = new_disk()
        leave(disk, TEXT)
        with monkeypatch.context() as patch:
            patch.setattr(importlib, "import_module", missing)
            with pytest.raises(SettingsError, match=r"pip install 'cometmq\[acl\]'"):
                new_broker(access=PLAIN, disk=disk)

    run(scenario())


def test_the_file_can_be_chosen() -> None:
    async def scenario() -> None:
        disk = new_disk()
        leave(disk, TEXT, Path("/conf/accounts.yml"))
        chosen = AccessSettings(acl_enable=True, plain_acl_file="/conf/accounts.yml")
        async with guarded(chosen, disk=disk) as harness:
            boss = signer(await harness.client(), BOSS)
            assert (await boss.call(Code.GET_BROKER_CONFIG)).code == 0

    run(scenario())
