"""What admission by users and policies asks for, on every path of a request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from access.signing import (
    GUARDED,
    ROOT,
    USER,
    as_root,
    as_user,
    entry,
    give_rights,
    guarded,
    signer,
    slow_frames,
)
from broker.commands import heartbeat, make_topic, send_header
from broker.harness import run
from cometmq.access.access_control import AccessControl
from cometmq.model.access import User
from cometmq.net.channel import connect
from cometmq.rules.access.access_rules import AccessRules
from cometmq.settings.access import AccessSettings
from cometmq.wire.bodies.heartbeat import encode_heartbeat
from cometmq.wire.codes import RequestCode as Code
from cometmq.wire.codes import ResponseCode
from cometmq.wire.command import request
from cometmq.wire.request_signature import add_signature

if TYPE_CHECKING:
    import pytest

REFUSED = ResponseCode.NO_PERMISSION


def test_a_user_may_do_what_the_policies_say_and_nothing_else() -> None:
    async def scenario() -> None:
        async with guarded() as harness:
            root, user = await as_root(harness), await as_user(harness)
            await make_topic(harness)
            await give_rights(root, entry("Topic:T", "Pub"))
            assert (await user.send("T")).code == 0
            refused = await user.pull("T")
            assert refused.remark == (
                "User:user has no permission to access Topic:T from 127.0.0.1, no matched policies."
            )
            await give_rights(root, entry("Topic:T", "Pub", "Sub"))
            refused = await user.pull("T")
            assert "access Group:CG from" in (refused.remark or "")
            await give_rights(root, entry("Group:C*", "Sub"))
            beat = encode_heartbeat(heartbeat("CG", "T"))
            assert (await user.call(Code.HEART_BEAT, None, beat)).code == 0
            assert (await user.pull("T")).code == 0
            assert (await user.call(Code.GET_BROKER_RUNTIME_INFO)).code == REFUSED

    run(scenario())


def test_sends_are_looked_at_one_by_one_although_the_fast_path_knows_their_like() -> None:
    async def scenario() -> None:
        async with guarded() as harness:
            root, user = await as_root(harness), await as_user(harness)
            await make_topic(harness)
            await give_rights(root, entry("Topic:T", "Pub"))
            for _ in range(8):
                assert (await user.send("T")).code == 0
            nobody = signer(await harness.client(), None)
            command = request(Code.SEND_MESSAGE_V2, 0, send_header("T"), b"hello")
            add_signature(command, USER)
            whole = dict(command.ext)
            for _ in range(8):
                assert (await user.channel.call(command, 10)).code == 0, "a recorded one is taken"
            for wrong in ({"e": "1"}, {"i": whole["i"] + "a\x01b\x02"}):
                command.ext = {**whole, **wrong}
                assert (await user.channel.call(command, 10)).code == REFUSED
            assert (await nobody.send("T")).code == REFUSED
            root_call = await root.call(3003, username="user")
            assert root_call.code == 0
            assert (await user.send("T")).code == REFUSED
            assert harness.broker.store.max_offset("T", 0) == 16

    run(scenario())


def test_signed_sends_of_one_kind_take_the_fast_path_and_no_other_does() -> None:
    async def scenario() -> None:
        async with guarded() as harness:
            user = await as_user(harness)
            await make_topic(harness)
            await give_rights(await as_root(harness), entry("Topic:T", "Pub"))
            slow = slow_frames(harness)
            user = await as_user(harness)
            for _ in range(8):
                assert (await user.send("T")).code == 0
            assert len(slow) == 1, "the rest was fast"
            wrong = request(Code.SEND_MESSAGE_V2, 0, send_header("T"), b"hello")
            add_signature(wrong, USER._replace(secret_key="guessed"))
            assert (await user.channel.call(wrong, 10)).code == REFUSED
            unsigned = request(Code.SEND_MESSAGE_V2, 0, send_header("T"), b"hello")
            assert (await user.channel.call(unsigned, 10)).code == REFUSED
            assert len(slow) == 3

    run(scenario())


def test_a_run_of_sends_in_one_chunk_is_looked_at_one_by_one() -> None:
    async def scenario() -> None:
        async with guarded() as harness:
            user = await as_user(harness)
            await make_topic(harness)
            await give_rights(await as_root(harness), entry("Topic:T", "Pub"))

            async def burst() -> list[int]:
                commands = [
                    request(Code.SEND_MESSAGE_V2, 0, send_header("T"), b"%d" % at)
                    for at in range(32)
                ]
                for command in commands[:-1]:
                    add_signature(command, USER)
                calls = (user.channel.call(command, 10) for command in commands)
                return [answer.code for answer in await asyncio.gather(*calls)]

            for _ in range(3):
                assert await burst() == [0] * 31 + [REFUSED]

    run(scenario())


def test_the_port_of_older_clients_is_guarded_alike() -> None:
    async def scenario() -> None:
        async with guarded(listen_port=20_911) as harness:
            await make_topic(harness)
            for port in (20_911, 20_909):
                channel = await connect(f"127.0.0.1:{port}")
                command = request(Code.SEND_MESSAGE_V2, 0, send_header("T"), b"hello")
                assert (await channel.call(command, 10)).code == REFUSED
                add_signature(command, ROOT)
                assert (await channel.call(command, 10)).code == 0
                channel.close()

    run(scenario())


def test_without_authorization_each_user_may_do_everything() -> None:
    access = AccessSettings(
        authentication_enabled=True, init_authentication_user=GUARDED.init_authentication_user
    )

    async def scenario() -> None:
        async with guarded(access) as harness:
            await give_rights(await as_root(harness))
            assert (await (await as_user(harness)).send("T")).code == 0
            assert (await signer(await harness.client(), None).send("T")).code == REFUSED

    run(scenario())


def test_a_disabled_user_is_refused() -> None:
    async def scenario() -> None:
        async with guarded() as harness:
            root = await as_root(harness)
            await give_rights(root, entry("*", "All"))
            body = b'{"userStatus":"disable"}'
            assert (await root.call(3002, body=body, username="user")).code == 0
            refused = await (await as_user(harness)).send("T")
            assert (refused.code, refused.remark) == (REFUSED, "User:user is disabled.")

    run(scenario())


def test_a_policy_can_be_bound_to_addresses() -> None:
    async def scenario() -> None:
        async with guarded() as harness:
            root, user = await as_root(harness), await as_user(harness)
            await make_topic(harness)
            await give_rights(root, entry("Topic:T", "Pub", sourceIps=["10.0.0.0/8"]))
            assert (await user.send("T")).code == REFUSED
            await give_rights(root, entry("Topic:T", "Pub", sourceIps=["10.0.0.0/8", "127.0.0.1"]))
            assert (await user.send("T")).code == 0

    run(scenario())


def test_a_retry_topic_is_its_groups() -> None:
    async def scenario() -> None:
        async with guarded() as harness:
            user = await as_user(harness)
            await make_topic(harness, "%RETRY%CG")
            await give_rights(await as_root(harness), entry("Topic:*", "All"))
            refused = await user.send("%RETRY%CG")
            assert "access Group:CG from" in (refused.remark or "")
            await give_rights(await as_root(harness), entry("Group:CG", "Sub"))
            assert (await user.send("%RETRY%CG")).code == 0

    run(scenario())


def test_clients_up_to_4_9_3_add_a_field_behind_the_signature() -> None:
    async def scenario() -> None:
        async with guarded() as harness:
            client = await harness.client()
            for version, code in ((399, 0), (400, REFUSED)):
                fields = {"topic": "T", "key": "K", "maxNum": "1"}
                fields |= {"beginTimestamp": "0", "endTimestamp": "9999999999999"}
                command = request(Code.QUERY_MESSAGE, 0)
                command.version = version
                command.ext.update(fields)
                add_signature(command, ROOT)
                command.ext["_UNIQUE_KEY_QUERY"] = "true"
                answer = await client.channel.call(command, 10)
                assert (answer.code == REFUSED) == (code == REFUSED), version

    run(scenario())


def test_refusals_are_logged_without_secrets_and_not_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with guarded() as harness:
            wrong = signer(await harness.client(), USER._replace(access_key="root"))
            for _ in range(200):
                assert (await wrong.send("T")).code == REFUSED
            body = b'{"password":"secret-of-many","userType":"Normal"}'
            root = await as_root(harness)
            await root.call(3001, body=body, username="user")

    run(scenario())
    lines = [one for one in caplog.messages if "refusing request 310" in one]
    assert 0 < len(lines) < 100
    assert lines[0].endswith(": check signature failed.")
    for secret in ("secret-of-many", ROOT.secret_key, USER.secret_key):
        assert secret not in caplog.text


def test_no_repr_shows_a_secret() -> None:
    rules = AccessRules({"root": User(*ROOT[:2], is_super=True)})
    for one in (rules, AccessControl(rules), GUARDED, GUARDED.first_user, ROOT):
        assert ROOT.secret_key not in f"{one} {one!r}"
