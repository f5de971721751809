"""A member's locks: asked for, renewed and returned at a broker that answers by a script."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from client.scripted_broker import BROKER, TOPIC
from cometmq.client.consumer import lock_waits, queue_locks
from cometmq.client.consumer.assigned_queue import AssignedQueue
from cometmq.client.consumer.queue_lease import REFUSED
from cometmq.client.consumer.queue_locks import QueueLockClient
from cometmq.client.session.client_options import ClientOptions
from cometmq.client.session.client_session import ClientSession
from cometmq.errors import BrokerError
from cometmq.model.queue import MessageQueue
from cometmq.model.queue_lock import EarlyUnlockCause, LockHolder
from cometmq.runtime.system_clock_and_files import SystemClock
from cometmq.wire.bodies.lock import decode_lock_request, encode_locked
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from client.scripted_broker import ScriptedBroker
    from cometmq.wire.command import Command

VALID_S = 30.0
QUEUES = [MessageQueue(TOPIC, BROKER, number) for number in range(3)]


def run(
    scripted_broker: ScriptedBroker, scenario: Callable[[QueueLockClient], Awaitable[None]]
) -> None:
    """Run a scenario with the locks of one member of the group."""

    async def main() -> None:
        session = ClientSession(ClientOptions(namesrv=(scripted_broker.addr,)), SystemClock())
        try:
            await session.routes.subscribe_queues(TOPIC)
            await scenario(QueueLockClient(session, "clerks", VALID_S))
        finally:
            await session.stop()

    asyncio.run(asyncio.wait_for(main(), 20))


async def locked(locks: QueueLockClient, queues: list[MessageQueue]) -> list[AssignedQueue]:
    """Queues in work under locks that were taken just now."""
    table = [AssignedQueue(queue, 0) for queue in queues]
    for queue, lock in (await locks.lock(queues)).items():
        table[queues.index(queue)].lock = lock
    return table


def holds(assigned: AssignedQueue) -> bool:
    return assigned.holds_lock(asyncio.get_running_loop().time())


def test_a_lock_counts_from_the_moment_it_was_asked_for(scripted_broker: ScriptedBroker) -> None:
    async def scenario(locks: QueueLockClient) -> None:
        loop = asyncio.get_running_loop()
        times: dict[str, float] = {}
        answer = scripted_broker.lock

        def late(command: Command) -> Any:
            times["asked"] = loop.time()
            return answer(command)

        scripted_broker.answers[RequestCode.LOCK_BATCH_MQ] = late
        before = loop.time()
        (lock,) = (await locks.lock(QUEUES[:1])).values()
        assert before <= lock.until - VALID_S <= times["asked"]

    run(scripted_broker, scenario)


def test_a_refused_lock_is_not_taken_for_one_without_an_answer(
    scripted_broker: ScriptedBroker,
) -> None:
    async def scenario(locks: QueueLockClient) -> None:
        scripted_broker.refused_locks = {QUEUES[1]}
        elsewhere = MessageQueue(TOPIC, "unknown", 0)
        found = await locks.lock([*QUEUES, elsewhere])
        assert found.keys() == set(QUEUES), "a broker that does not answer is absent"
        assert found[QUEUES[1]] is REFUSED
        assert all(found[one].until > VALID_S / 2 for one in (QUEUES[0], QUEUES[2]))

    run(scripted_broker, scenario)


def test_renewal_prolongs_what_is_held_and_asks_for_nothing_else(
    scripted_broker: ScriptedBroker,
) -> None:
    async def scenario(locks: QueueLockClient) -> None:
        held, run_out = await locked(locks, QUEUES[:2])
        run_out.lock = REFUSED
        before = held.lock.until
        await asyncio.sleep(0.02)
        await locks.renew([held, run_out])
        assert held.lock.until > before
        assert not held.has_lost_lock
        assert run_out.has_lost_lock
        assert not holds(run_out)
        asked = [command.body for command in scripted_broker.requests(RequestCode.LOCK_BATCH_MQ)]
        assert len(asked) == 2
        assert b'"queueId":0' in asked[1]
        assert b'"queueId":1' not in asked[1]

    run(scripted_broker, scenario)


def test_a_queue_whose_renewal_is_refused_is_no_longer_worked_on(
    scripted_broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(locks: QueueLockClient) -> None:
        one, other = await locked(locks, QUEUES[:2])
        scripted_broker.refused_locks = {QUEUES[0]}
        with caplog.at_level(logging.WARNING):
            await locks.renew([one, other])
        assert (holds(one), holds(other)) == (False, True)
        assert one.has_lost_lock
        assert f"another member has the lock of {QUEUES[0]}: its work stops" in caplog.text

    run(scripted_broker, scenario)


def test_a_broker_that_does_not_answer_a_renewal_leaves_the_lock_its_time(
    scripted_broker: ScriptedBroker,
) -> None:
    async def scenario(locks: QueueLockClient) -> None:
        (one,) = await locked(locks, QUEUES[:1])
        before = one.lock
        scripted_broker.answers[RequestCode.LOCK_BATCH_MQ] = scripted_broker.not_online
        await locks.renew([one])
        assert one.lock is before
        assert holds(one)

    run(scripted_broker, scenario)


def test_a_lock_that_was_lost_while_its_renewal_was_under_way_stays_lost(
    scripted_broker: ScriptedBroker,
) -> None:
    async def scenario(locks: QueueLockClient) -> None:
        (one,) = await locked(locks, QUEUES[:1])
        loop, answer = asyncio.get_running_loop(), scripted_broker.lock

        def lose_first(command: Command) -> Any:
            loop.call_soon_threadsafe(one.lose_lock)  # before the answer can arrive
            return answer(command)

        scripted_broker.answers[RequestCode.LOCK_BATCH_MQ] = lose_first
        await locks.renew([one])
        assert one.has_lost_lock
        assert not holds(one), "another member may have worked on the queue meanwhile"

    run(scripted_broker, scenario)


def test_a_lock_ends_with_the_connection_on_which_it_was_asked_for(
    scripted_broker: ScriptedBroker,
) -> None:
    async def scenario(locks: QueueLockClient) -> None:
        (one,) = await locked(locks, QUEUES[:1])
        assert holds(one)
        await asyncio.to_thread(scripted_broker.break_connections)
        async with asyncio.timeout(15):
            while holds(one):
                await asyncio.sleep(0.01)

    run(scripted_broker, scenario)


def test_a_lock_is_asked_for_and_returned_in_the_groups_name(
    scripted_broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(locks: QueueLockClient) -> None:
        await locked(locks, QUEUES[:1])
        await locks.unlock(QUEUES[0])
        await locks.keep_until_it_expires(QUEUES[0])
        first, last = scripted_broker.requests(RequestCode.LOCK_BATCH_MQ)
        (returned,) = scripted_broker.requests(RequestCode.UNLOCK_BATCH_MQ)
        asked = [decode_lock_request(command.body) for command in (first, returned, last)]
        assert {(one.consumer_group, *one.queues) for one in asked} == {("clerks", QUEUES[0])}
        ends = [EarlyUnlockCause.CONNECTION, EarlyUnlockCause.LEAVING, EarlyUnlockCause.TIME]
        assert [one.end for one in asked] == ends
        assert f"{QUEUES[0]} is left while its handler is at work" in caplog.text
        assert "keeps others away until it expires at the broker, after 60 s" in caplog.text

    run(scripted_broker, scenario)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda locks: locks.lock(QUEUES[:1]), f"no locks from broker {BROKER}: "),
        (
            lambda locks: locks.keep_until_it_expires(QUEUES[0]),
            f"the lock of {QUEUES[0]} was not asked for again: ",
        ),
        (
            lambda locks: locks.unlock(QUEUES[0]),
            f"the lock of {QUEUES[0]} was not returned and will expire: ",
        ),
    ],
)
def test_the_log_says_which_broker_refused_a_request_for_locks_and_why(
    scripted_broker: ScriptedBroker,
    caplog: pytest.LogCaptureFixture,
    ask: Callable[[QueueLockClient], Awaitable[None]],
    said: str,
) -> None:
    def refuse(command: Command) -> Command:
        return response(command.opaque, ResponseCode.SYSTEM_ERROR, remark="in maintenance")

    async def scenario(locks: QueueLockClient) -> None:
        for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
            scripted_broker.answers[code] = refuse
        with caplog.at_level(logging.INFO, "cometmq"):
            await ask(locks)
        error = BrokerError(ResponseCode.SYSTEM_ERROR, "in maintenance", scripted_broker.addr)
        assert caplog.messages[-1] == f"{said}{error}"

    run(scripted_broker, scenario)


def test_a_broker_that_does_not_answer_holds_up_the_return_of_a_lock_for_a_moment(
    scripted_broker: ScriptedBroker,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_locks, "_TIMEOUT_S", 0.1)

    async def scenario(locks: QueueLockClient) -> None:
        scripted_broker.answers[RequestCode.UNLOCK_BATCH_MQ] = scripted_broker.hold
        with caplog.at_level(logging.INFO, "cometmq"):
            async with asyncio.timeout(15):
                await locks.unlock(QUEUES[0])
        assert f"the lock of {QUEUES[0]} was not returned" in caplog.text

    run(scripted_broker, scenario)


def test_the_log_says_who_has_the_locks_that_a_group_waits_for(
    scripted_broker: ScriptedBroker,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lock_waits, "LOG_AFTER_S", 0.0)
    holder = LockHolder("10.0.0.9@77", 41_000, 56_000)

    def refuse_one(command: Command) -> Command:
        return response(command.opaque, 0, body=encode_locked(QUEUES[:1], {QUEUES[1]: holder}))

    async def scenario(locks: QueueLockClient) -> None:
        scripted_broker.answers[RequestCode.LOCK_BATCH_MQ] = refuse_one
        await locks.lock(QUEUES[:2])
        waited = f"the group clerks has waited 0 s for the lock of {QUEUES[1]}: "
        assert f"{waited}the client 10.0.0.9@77 has held it for 41 s" in caplog.text
        scripted_broker.answers[RequestCode.LOCK_BATCH_MQ] = scripted_broker.lock
        await locks.lock(QUEUES[:2])
        assert f"got the lock of {QUEUES[1]} after " in caplog.text
        assert f"got the lock of {QUEUES[0]}" not in caplog.text

    run(scripted_broker, scenario)
