"""Members of one group that differ: logged once for each pair, or refused; all of it bounded."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from broker.commands import subscription
from broker.harness import run, running
from cometmq.broker.groups import unequal_members
from cometmq.broker.groups.unequal_members import LOOK_MS
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.lock import LockRequest, encode_lock_request
from cometmq.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    import pytest

    from broker.commands import Client
    from cometmq.wire.command import Command

LOG = "cometmq.broker.groups.unequal_members"


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == LOG]


async def beat(client: Client, client_id: str, expression: str = "*") -> Command:
    return await client.beat(
        "CG", client_id=client_id, subscriptions=(subscription("T", expression),)
    )


def test_members_that_subscribe_to_different_tags_are_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with running() as harness:
            one, other, third = [await harness.client() for _ in range(3)]
            for _ in range(3):
                assert (await beat(one, "one", "X")).code == 0
                assert (await beat(other, "other", "Y")).code == 0
            assert len(said(caplog)) == 1
            assert "of topic T other wants 'Y', one 'X'" in said(caplog)[0]
            assert "group CG" in said(caplog)[0]
            assert (await beat(third, "third", "Y")).code == 0
            assert len(said(caplog)) == 2, "a pair of its own"
            other.close()
            third.close()
            await asyncio.sleep(0.1)
            again = await harness.client()
            assert (await beat(again, "again", "X")).code == 0
            assert len(said(caplog)) == 2

    with caplog.at_level(logging.WARNING):
        run(scenario())


def test_a_member_with_another_subscription_is_refused_where_the_setting_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with running(reject_unequal_subscriptions=True) as harness:
            one, other = await harness.client(), await harness.client()
            assert (await beat(one, "one", "X")).code == 0
            for _ in range(2):
                answer = await beat(other, "other", "Y")
                assert answer.code == ResponseCode.INVALID_PARAMETER
                assert "of topic T other wants 'Y', one 'X'" in (answer.remark or "")
            group = harness.broker.state.clients.consumers["CG"]
            assert group.client_ids() == ["one"]
            assert group.subscriptions["T"].sub_string == "X"
            assert len(said(caplog)) == 1
            one.close()
            await asyncio.sleep(0.1)
            assert (await beat(other, "other", "Y")).code == 0

    run(scenario())


def test_a_member_that_reads_without_locks_beside_one_that_locks_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def lock(client: Client, client_id: str) -> None:
        queues = (MessageQueue("T", "b0", 0),)
        body = encode_lock_request(
            LockRequest(consumer_group="CG", client_id=client_id, queues=queues)
        )
        assert (await client.call(RequestCode.LOCK_BATCH_MQ, None, body)).code == 0

    async def scenario() -> None:
        async with running() as harness:
            source, one, other, third = [await harness.client() for _ in range(4)]
            assert (await source.send("T")).code == 0
            for client, name in ((one, "one"), (other, "other"), (third, "third")):
                assert (await beat(client, name)).code == 0
            await lock(third, "third")
            waiting = [
                asyncio.create_task(
                    client.pull("T", queue_id=queue, sys_flag=2, suspend_timeout_ms=60_000)
                )
                for client, queue in ((other, 1), (third, 2))
            ]
            await asyncio.sleep(0.1)
            for _ in range(3):
                await asyncio.sleep(LOOK_MS / 1000)
                await lock(one, "one")
            for task in waiting:
                task.cancel()
            (text,) = said(caplog)
            assert "one consumes in order, other concurrently" in text

    run(scenario())


def test_what_is_remembered_of_pairs_and_locking_connections_is_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(unequal_members, "PAIRS_MAX", 2)
    monkeypatch.setattr(unequal_members, "LOCK_GROUPS_MAX", 3)

    async def scenario() -> None:
        async with running() as harness:
            one = await harness.client()
            assert (await beat(one, "one", "X")).code == 0
            unequal = harness.broker._handlers._unequal
            for number in range(5):
                other = await harness.client()
                assert (await beat(other, f"c{number}", f"Y{number}")).code == 0
                assert len(unequal._reported) <= 2
            assert len({text.partition("differ")[2] for text in said(caplog)}) >= 5, "none is lost"
            for number in range(10):
                request = LockRequest(consumer_group=f"G{number}", client_id="one", queues=())
                body = encode_lock_request(request)
                assert (await one.call(RequestCode.LOCK_BATCH_MQ, None, body)).code == 0
            assert [len(groups) for groups in unequal._lockers.values()] == [3]

    run(scenario())
