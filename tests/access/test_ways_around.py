"""Ways around access control that were found by looking for them; each is closed."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from access.signing import (
    ROOT,
    USER,
    as_root,
    as_user,
    connected,
    entry,
    give_rights,
    guarded,
    guarded_name_server,
    signer,
)
from broker.commands import heartbeat, make_topic, subscription
from broker.delivery.transaction_commands import QUICK, half, produce
from broker.harness import run
from cometmq.access.access_control import AccessControl
from cometmq.broker.groups import heartbeat as heartbeats
from cometmq.broker.groups.heartbeat import HEARTBEAT_BYTES_MAX, LONG_HEARTBEAT_BYTES
from cometmq.errors import Reject
from cometmq.model.access import User
from cometmq.rules.access.access_rules import AccessRules
from cometmq.wire.bodies.heartbeat import encode_heartbeat
from cometmq.wire.codes import RequestCode as Code
from cometmq.wire.codes import ResponseCode
from cometmq.wire.command import request
from cometmq.wire.request_signature import Credentials, add_signature

REFUSED = ResponseCode.NO_PERMISSION
EVERYTHING = json.dumps({"policies": [{"entries": [entry("*", "All")]}]}).encode()


def test_a_request_of_a_name_server_does_not_choose_the_cluster_that_it_is_judged_by() -> None:
    async def scenario() -> None:
        async with (
            guarded_name_server() as server,
            connected(server, ROOT) as root,
            connected(server, USER) as user,
        ):
            await give_rights(root, entry("Cluster:Mine", "All"))
            mine = {"clusterName": "Mine", "cluster": "Mine"}
            for code, body, fields in (
                (Code.PUT_KV_CONFIG, b"", {"namespace": "N", "key": "k", "value": "v"}),
                (Code.WIPE_WRITE_PERM_OF_BROKER, b"", {"brokerName": "of-another"}),
                (Code.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true", {}),
                (Code.AUTH_CREATE_ACL, EVERYTHING, {"subject": "User:user"}),
                (Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, b"", {}),
            ):
                refused = await user.call(code, body=body, **fields, **mine)
                assert refused.code == REFUSED, code
                assert "Cluster:*" in (refused.remark or "")
            listed = await user.call(Code.GET_TOPICS_BY_CLUSTER, **mine)
            assert listed.code == 0, "what is about one cluster is judged by it"
            refused = await user.call(
                Code.GET_TOPICS_BY_CLUSTER, cluster="Other", clusterName="Mine"
            )
            assert "Cluster:Other" in (refused.remark or "")

    run(scenario())


def test_a_half_message_is_shown_only_to_a_producer_that_may_send_to_its_topic(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with guarded(**QUICK) as harness:
            root, spy = await as_root(harness), await as_user(harness)
            await make_topic(harness)
            await give_rights(root, entry("Topic:Other", "Pub"))
            await produce(spy, "spy")
            await half(root)
            await asyncio.sleep(1)
            assert spy.asked.empty()
            await produce(root)
            for _ in range(3):
                await root.asked.get()
            assert spy.asked.empty()
            await give_rights(root, entry("Topic:T", "Pub"))
            await spy.asked.get()

    run(scenario())
    assert "is not asked about a half message of T" in caplog.text


def test_a_user_who_is_gone_by_then_does_not_get_what_the_handler_found() -> None:
    async def scenario() -> None:
        async with guarded() as harness:
            await make_topic(harness)
            control = harness.broker._handlers._environment.access.control
            assert control is not None
            client = await harness.client()
            await client.send("T")
            (protocol,) = harness.broker._server.protocols
            command = request(Code.VIEW_MESSAGE_BY_ID, 0)
            add_signature(command, USER)
            control.set_rules(AccessRules({"root": User(*ROOT[:2], is_super=True)}))
            with pytest.raises(Reject, match="User:user is not found"):
                control.admit_found(command, protocol.connection, "T")

    run(scenario())


def test_nobody_writes_lines_of_his_own_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with guarded() as harness:
            for name in ("x\n2026-01-01 INFO all is well\x1b[2J", "x" * 100_000):
                refused = await signer(await harness.client(), Credentials(name, "s")).send("T")
                assert refused.code == REFUSED

    run(scenario())
    lines = [one for one in caplog.messages if "refusing request 310" in one]
    assert len(lines) == 2
    assert all(one.isprintable() and len(one) < 1000 for one in lines)


def large_beat(topics: int) -> bytes:
    """A heartbeat of one group with so many topics."""
    beat = heartbeat("CG", "T")
    named = [subscription(f"{'T' * 100}{at}") for at in range(topics)]
    return encode_heartbeat(
        replace(beat, consumers=[replace(beat.consumers[0], subscriptions=named)])
    )


def test_a_long_heartbeat_is_not_read_on_the_loop_to_find_out_what_it_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readers: list[bool] = []
    """Of each reading, whether a thread did it."""
    threads = 0
    decode, to_thread = heartbeats.decode_heartbeat, asyncio.to_thread

    def seen(body: bytes) -> Any:
        readers.append(threads > 0)
        return decode(body)

    async def noted(work: Any, *args: Any) -> Any:
        nonlocal threads
        threads += 1
        try:
            return await to_thread(work, *args)
        finally:
            threads -= 1

    monkeypatch.setattr(heartbeats, "decode_heartbeat", seen)
    monkeypatch.setattr(asyncio, "to_thread", noted)

    async def scenario() -> None:
        async with guarded() as harness:
            root, user = await as_root(harness), await as_user(harness)
            await give_rights(root, entry("Topic:T", "Sub"), entry("Group:CG", "Sub"))
            long = large_beat(100)
            assert LONG_HEARTBEAT_BYTES < len(long) < HEARTBEAT_BYTES_MAX
            refused = await user.call(Code.HEART_BEAT, None, long)
            assert (refused.code, "Topic:TTT" in (refused.remark or "")) == (REFUSED, True)
            await give_rights(root, entry("Topic:T*", "Sub"))
            assert (await user.call(Code.HEART_BEAT, None, long)).code == 0
            assert readers == [True] * 3
            readers.clear()
            too_long = b'{"clientID":"c"}' + b" " * HEARTBEAT_BYTES_MAX
            refused = await user.call(Code.HEART_BEAT, None, too_long)
            assert "the limit is" in (refused.remark or "")
            assert readers == []

    run(scenario())


def test_an_address_with_a_zone_is_in_its_network() -> None:
    rules = AccessRules(open_addresses=("fe80::1",))
    assert rules.is_open_to("fe80::1%eth0")
    assert not AccessControl(rules).rules.is_open_to("fe80::2%eth0")
