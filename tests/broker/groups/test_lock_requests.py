"""Requests to lock and unlock queues."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker.harness import new_disk, run, running
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.lock import LockRequest, decode_locked, encode_lock_request
from cometmq.wire.codes import RequestCode

if TYPE_CHECKING:
    from broker.commands import Client


HOUR_MS = 3_600_000
ALL = [MessageQueue("T", "b0", number) for number in range(3)]


async def ask(client: Client, code: int, client_id: str, *queues: int) -> set[int]:
    wanted = tuple(ALL[number] for number in queues)
    answer = await client.call(
        code, None, encode_lock_request(LockRequest("CG", client_id, wanted))
    )
    assert answer.code == 0, answer
    return {queue.queue_id for queue in decode_locked(answer.body)}


def test_a_locked_queue_is_refused_to_others_and_granted_again_to_its_holder() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client, other = await harness.client(), await harness.client()
            assert await ask(client, RequestCode.LOCK_BATCH_MQ, "c1", 0, 1) == {0, 1}
            assert await ask(other, RequestCode.LOCK_BATCH_MQ, "c2", 1, 2) == {2}
            assert await ask(other, RequestCode.LOCK_BATCH_MQ, "c1", 0, 1) == {0, 1}
            await ask(other, RequestCode.UNLOCK_BATCH_MQ, "c2", 0, 1, 2)
            assert await ask(other, RequestCode.LOCK_BATCH_MQ, "c2", 0, 1, 2) == {2}
            await ask(client, RequestCode.UNLOCK_BATCH_MQ, "c1", 0)
            assert await ask(other, RequestCode.LOCK_BATCH_MQ, "c2", 0, 1, 2) == {0, 2}

    run(scenario())


def test_a_lock_outlives_its_connection_but_not_its_time() -> None:
    async def scenario() -> None:
        async with running(queue_lock_expire_ms=60_000) as harness:
            client, other = await harness.client(), await harness.client()
            await ask(client, RequestCode.LOCK_BATCH_MQ, "c1", 0)
            client.close()
            await client.channel.wait_closed()
            assert await ask(other, RequestCode.LOCK_BATCH_MQ, "c2", 0) == set()

    run(scenario())


@pytest.mark.parametrize("by_ms", [-HOUR_MS, HOUR_MS])
def test_a_lock_lives_as_long_when_the_clock_is_set(by_ms: int) -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk) as harness:
            client, other = await harness.client(), await harness.client()
            await ask(client, RequestCode.LOCK_BATCH_MQ, "c1", 0)
            disk.clock.step(by_ms)
            await asyncio.sleep(59)
            assert await ask(other, RequestCode.LOCK_BATCH_MQ, "c2", 0) == set()
            await asyncio.sleep(2)
            assert await ask(other, RequestCode.LOCK_BATCH_MQ, "c2", 0) == {0}

    run(scenario())


def test_the_time_a_lock_lives_is_a_setting() -> None:
    async def scenario() -> None:
        async with running(queue_lock_expire_ms=1) as harness:
            client = await harness.client()
            await ask(client, RequestCode.LOCK_BATCH_MQ, "c1", 0)
            locks, queue = harness.broker.state.locks, ALL[0]
            while locks.holder("CG", queue):
                await ask(client, RequestCode.UNLOCK_BATCH_MQ, "c3", 0)
            assert await ask(client, RequestCode.LOCK_BATCH_MQ, "c2", 0) == {0}

    run(scenario())
