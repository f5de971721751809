"""A server guards itself as its settings say, or does not start."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from access.signing import GUARDED, ROOT, connected, guarded_name_server
from broker.harness import CONFIG, new_broker, new_disk, run, running
from cometmq.broker.app import Broker
from cometmq.errors import SettingsError
from cometmq.model.access import User
from cometmq.namesrv.app import NameServer
from cometmq.settings.access import AccessSettings
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.namesrv import NamesrvSettings
from cometmq.wire.codes import RequestCode as Code
from net.admission_hook import Hook

if TYPE_CHECKING:
    from cometmq.access.server_access import ServerAccess

INNER = '{"accessKey":"inner","secretKey":"inner-of-many"}'


def access_of(broker: Broker) -> ServerAccess:
    return broker._handlers._environment.access


@pytest.mark.parametrize("has_authorization", [False, True])
def test_without_a_super_user_a_server_does_not_start(has_authorization: bool) -> None:
    access = AccessSettings(authentication_enabled=True, authorization_enabled=has_authorization)

    async def scenario() -> None:
        disk = new_disk()
        with pytest.raises(SettingsError, match="knows no super user") as caught:
            new_broker(access=access, disk=disk)
        assert str(CONFIG / "access.json") in str(caught.value)
        assert disk.names(CONFIG) == []
        settings = NamesrvSettings(listen_port=0, kv_config_path="/names/kvConfig.json")
        with pytest.raises(SettingsError, match="knows no super user"):
            NameServer.open(settings, access=access, files=disk)

    run(scenario())


def test_a_name_server_without_a_directory_for_its_users_does_not_start() -> None:
    with pytest.raises(SettingsError, match="set authConfigPath"):
        NameServer.open(NamesrvSettings(listen_port=0, kv_config_path=""), access=GUARDED)


def test_two_hooks_are_one_too_many() -> None:
    async def scenario() -> None:
        with pytest.raises(SettingsError, match="a server has one hook"):
            new_broker(access=GUARDED, admission=Hook())

    run(scenario())


def test_users_of_the_settings_are_made_and_their_directory_can_be_chosen() -> None:
    access = AccessSettings(
        authentication_enabled=True,
        init_authentication_user=GUARDED.init_authentication_user,
        inner_client_authentication_credentials=INNER,
        auth_config_path="/elsewhere",
    )

    async def scenario() -> None:
        disk = new_disk()
        async with running(access=access, disk=disk) as harness:
            control = access_of(harness.broker).control
            assert control is not None
            assert control.rules.users == {
                "root": User(*ROOT[:2], is_super=True),
                "inner": User("inner", "inner-of-many", is_super=True),
            }
        written = disk.read(Path("/elsewhere/access.json"))
        assert written is not None
        assert len(json.loads(written)["users"]) == 2

    run(scenario())


@pytest.mark.skipif(sys.platform == "win32", reason="files have no such modes there")
def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        target = tmp_path / "config" / "access.json"
        target.parent.mkdir()
        target.write_text('{"users":[],"acls":[]}')
        target.chmod(0o666)
        settings = BrokerSettings(store_path_root_dir=str(tmp_path), listen_port=0)
        Broker.open(settings, access=GUARDED).store.abandon()
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
        assert [one.name for one in target.parent.glob("access*")] == ["access.json"]
    finally:
        os.umask(before)


def test_settings_are_shown_without_secrets() -> None:
    async def scenario() -> None:
        async with (
            guarded_name_server() as server,
            connected(server, ROOT) as root,
            running(access=GUARDED) as harness,
        ):
            shown = [(await root.call(Code.GET_NAMESRV_CONFIG)).body]
            shown.append(harness.broker._live.text().encode())
            for text in shown:
                assert b"authenticationEnabled=true" in text
                assert ROOT.secret_key.encode() not in text

    run(scenario())
