"""Requests to lock and unlock queues."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker.harness import new_disk, run, running
from cometmq.model.queue import MessageQueue
from cometmq.model.queue_lock import EarlyUnlockCause, LockHolder
from cometmq.wire.bodies.lock import (
    LockRequest,
    decode_holders,
    decode_locked,
    encode_lock_request,
)
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.client import UnregisterClientRequestHeader

if TYPE_CHECKING:
    from broker.commands import Client


HOUR_MS = 3_600_000
ALL = [MessageQueue("T", "b0", number) for number in range(3)]


LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ


async def ask(
    client: Client,
    code: int,
    client_id: str,
    *queues: int,
    end: EarlyUnlockCause = EarlyUnlockCause.LEAVING,
) -> set[int]:
    answer = await ask_whole(client, code, client_id, *queues, end=end)
    return {queue.queue_id for queue in decode_locked(answer)}


async def ask_whole(
    client: Client, code: int, client_id: str, *queues: int, end: EarlyUnlockCause
) -> bytes:
    wanted = tuple(ALL[number] for number in queues)
    request = LockRequest("CG", client_id, wanted, end=end)
    answer = await client.call(code, None, encode_lock_request(request))
    assert answer.code == 0, answer
    return answer.body


def test_a_locked_queue_is_refused_to_others_and_granted_again_to_its_holder() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client, other = await harness.client(), await harness.client()
            assert await ask(client, LOCK, "c1", 0, 1) == {0, 1}
            assert await ask(other, LOCK, "c2", 1, 2) == {2}
            assert await ask(other, LOCK, "c1", 0, 1) == {0, 1}
            await ask(other, UNLOCK, "c2", 0, 1, 2)
            assert await ask(other, LOCK, "c2", 0, 1, 2) == {2}
            await ask(client, UNLOCK, "c1", 0)
            assert await ask(other, LOCK, "c2", 0, 1, 2) == {0, 2}

    run(scenario())


@pytest.mark.parametrize("end", EarlyUnlockCause)
def test_a_lock_ends_with_its_connection_only_where_the_client_has_promised_so(
    end: EarlyUnlockCause,
) -> None:
    async def scenario() -> None:
        async with running() as harness:
            client, other = await harness.client(), await harness.client()
            await ask(client, LOCK, "c1", 0, end=end)
            client.close()
            await asyncio.sleep(0.01)
            assert (await ask(other, LOCK, "c2", 0) == {0}) is (end is EarlyUnlockCause.CONNECTION)
            await asyncio.sleep(61)
            assert await ask(other, LOCK, "c2", 0) == {0}

    run(scenario())


def test_locks_outlive_a_connection_that_the_broker_closes() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client, other = await harness.client(), await harness.client()
            await client.beat("CG", "T", client_id="c1")
            await ask(client, LOCK, "c1", 0, end=EarlyUnlockCause.CONNECTION)
            for connection in list(harness.broker.state.clients.consumers["CG"].members):
                connection.abort()
            await client.channel.wait_closed()
            await asyncio.sleep(0.01)
            assert await ask(other, LOCK, "c2", 0) == set()

    run(scenario())


def test_a_late_request_on_an_old_connection_does_not_touch_a_lock_of_the_new_one() -> None:
    async def scenario() -> None:
        async with running() as harness:
            old, new, other = [await harness.client() for _ in range(3)]
            for connection in (old, new):
                await ask(connection, LOCK, "c1", 0, 1, end=EarlyUnlockCause.CONNECTION)
            await ask(old, UNLOCK, "c1", 0)
            old.close()
            await asyncio.sleep(0.01)
            assert await ask(other, LOCK, "c2", 0, 1) == set()
            new.close()
            await asyncio.sleep(0.01)
            assert await ask(other, LOCK, "c2", 0, 1) == {0, 1}

    run(scenario())


@pytest.mark.parametrize("end", EarlyUnlockCause)
def test_a_client_that_leaves_its_group_has_no_locks_but_those_it_wants_to_outlast_it(
    end: EarlyUnlockCause,
) -> None:
    async def scenario() -> None:
        async with running() as harness:
            client, other = await harness.client(), await harness.client()
            await client.beat("CG", "T", client_id="c1")
            await ask(client, LOCK, "c1", 0, end=end)
            header = UnregisterClientRequestHeader(client_id="c1", consumer_group="CG")
            await client.call(RequestCode.UNREGISTER_CLIENT, header)
            assert (await ask(other, LOCK, "c2", 0) == set()) is (end is EarlyUnlockCause.TIME)

    run(scenario())


def test_clients_that_declare_a_lock_end_get_the_holders_of_locks_refused_to_them() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client, other = await harness.client(), await harness.client()
            await ask(client, LOCK, "c1", 0, 1)
            await asyncio.sleep(20)
            await ask(client, LOCK, "c1", 0)
            await asyncio.sleep(5)
            found = await ask_whole(other, LOCK, "c2", 0, 1, 2, end=EarlyUnlockCause.CONNECTION)
            known = {
                queue.queue_id: _to_seconds(one) for queue, one in decode_holders(found).items()
            }
            assert known == {0: ("c1", 25, 55), 1: ("c1", 25, 35)}
            found = await ask_whole(other, LOCK, "c2", 0, 1, end=EarlyUnlockCause.LEAVING)
            assert found == b'{"lockOKMQSet":[]}'

    run(scenario())


def _to_seconds(holder: LockHolder) -> tuple[str, int, int]:
    return holder.client_id, round(holder.held_ms / 1000), round(holder.left_ms / 1000)


@pytest.mark.parametrize("by_ms", [-HOUR_MS, HOUR_MS])
def test_a_lock_lives_as_long_when_the_clock_is_set(by_ms: int) -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk) as harness:
            client, other = await harness.client(), await harness.client()
            await ask(client, LOCK, "c1", 0)
            disk.clock.step(by_ms)
            await asyncio.sleep(59)
            assert await ask(other, LOCK, "c2", 0) == set()
            await asyncio.sleep(2)
            assert await ask(other, LOCK, "c2", 0) == {0}

    run(scenario())


def test_the_time_a_lock_lives_is_a_setting() -> None:
    async def scenario() -> None:
        async with running(queue_lock_expire_ms=1) as harness:
            client = await harness.client()
            await ask(client, LOCK, "c1", 0)
            locks, queue = harness.broker.state.locks, ALL[0]
            while locks.holder("CG", queue):
                await ask(client, UNLOCK, "c3", 0)
            assert await ask(client, LOCK, "c2", 0) == {0}

    run(scenario())
