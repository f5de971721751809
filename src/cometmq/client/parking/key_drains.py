"""Lets parked messages leave, as commands say: to the handler, a topic, or the dead letters.

Owns which keys leave now, their rate and the calls of the handler; leaves the order and the records
to `queue_parking`. Invariant: the next message of a key leaves only after the record of the one
before it was read back and counts. Java: none.
"""

from __future__ import annotations

import asyncio
import logging
from hashlib import sha256
from typing import TYPE_CHECKING

from cometmq.client.handling.handler_run import HandlerRun
from cometmq.client.parking.parking_messages import copy_form, restore
from cometmq.errors import CometError
from cometmq.model.parking import ParkingStep
from cometmq.rules.key_hash import queue_index
from cometmq.wire.bodies.parking import CopyMark
from cometmq.wire.java_hash import java_hash

if TYPE_CHECKING:
    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.consumer.subscriptions import Subscriptions
    from cometmq.client.failures.failed_message_sender import FailedMessageSender
    from cometmq.client.handling.worker_pools import ThreadPool
    from cometmq.client.middleware.middleware import ReportRun
    from cometmq.client.parking.queue_parking import QueueParking
    from cometmq.client.producer.retrying_sender import RetryingSender
    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.message import MessageExt
    from cometmq.model.parking import ParkedMessage
    from cometmq.model.queue import MessageQueue
    from cometmq.rules.failures.parked_keys import Drain
    from cometmq.runtime.background import BackgroundTasks

log = logging.getLogger(__name__)

KEYS_MAX = 8
"""Keys of one queue whose messages leave at the same time."""
_SEND_S = 10.0
_PAUSE_S = 1.0


class KeyDrains:
    """Lets the parked keys of one consumer's queues leave. One loop owns it."""

    def __init__(
        self,
        session: ClientSession,
        sender: RetryingSender,
        failed_sender: FailedMessageSender,
        subscriptions: Subscriptions,
        threads: ThreadPool,
        report: ReportRun,
        background: BackgroundTasks,
    ) -> None:
        self._session = session
        self._sender = sender
        self._failed_sender = failed_sender
        self._subscriptions = subscriptions
        self._threads = threads
        self._report = report
        self._background = background
        self._running: set[tuple[AssignedQueue, str]] = set()

    def start(self, assigned: AssignedQueue, parking: QueueParking) -> None:
        """Begin with the keys of a queue that may leave and don't yet."""
        for key in parking.log.keys.drains(parking.place):
            if (assigned, key) in self._running:
                continue
            if sum(one is assigned for one, _ in self._running) >= KEYS_MAX:
                return
            self._running.add((assigned, key))
            self._background.spawn(self._drain(assigned, parking, key), name="parked key")

    async def _drain(self, assigned: AssignedQueue, parking: QueueParking, key: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            while not assigned.is_dropped:
                read_to = assigned.window.commit_offset
                found = parking.log.keys.next_to_leave(parking.place, key, read_to)
                if found is None:
                    return
                begun = loop.time()
                parked, drain = found
                if not await self._let_leave(assigned, parking, parked, drain):
                    await assigned.sleep_unless_dropped(_PAUSE_S)
                elif drain.rate:
                    rest_s = 1 / drain.rate - (loop.time() - begun)
                    await assigned.sleep_unless_dropped(max(0.0, rest_s))
        except CometError as error:
            log.warning("the parked key %r of %s waits: %s", key, assigned.queue, error)
            await assigned.sleep_unless_dropped(_PAUSE_S)
        finally:
            self._running.discard((assigned, key))

    async def _let_leave(
        self, assigned: AssignedQueue, parking: QueueParking, parked: ParkedMessage, drain: Drain
    ) -> bool:
        """Let the head of a key leave; False where that is to be tried again."""
        repaired = None
        if parked.repaired_at >= 0:
            repaired = (await parking.log.record_at(parked.repaired_at)).body
        message = restore(await parking.log.record_at(parked.position), parked, repaired)
        if drain.step is ParkingStep.RELEASE:
            return await self._handle(assigned, parking, parked, message, drain)
        if drain.step is ParkingStep.REDRIVE:
            parking.being_sent.add(parked.offset)
            try:
                gate = await self._send(parking, parked, message, drain)
                await parking.note_left(parked, drain.position, gate)
            finally:
                parking.being_sent.discard(parked.offset)
            return True
        assert drain.step is ParkingStep.DEAD_LETTER, "there is no other way to leave"
        message.reconsume_times = max(0, parked.attempts - 1)
        times = message.reconsume_times
        if not await self._failed_sender.send_dead_letter(message, parked.reason, times):
            return False
        await parking.note_left(parked, drain.position)
        return True

    async def _handle(
        self,
        assigned: AssignedQueue,
        parking: QueueParking,
        parked: ParkedMessage,
        message: MessageExt,
        drain: Drain,
    ) -> bool:
        """Call the handler with a parked message, under the queue's lock."""
        clock = asyncio.get_running_loop().time
        if assigned.is_dropped or not assigned.holds_lock(clock()):
            return False
        subscription = self._subscriptions.subscription_of(message.topic)
        assigned.has_unreadable = assigned.has_unreadable or bool(message.unreadable)
        run = HandlerRun(assigned, [message], subscription, clock, 0.0)
        assigned.in_flight += 1
        try:
            if subscription.is_async:
                await run.run_async(1)
            else:
                await self._threads.run(lambda: run.run(1))
            run.report_to(self._report)
            if run.done:
                await parking.note_left(parked, drain.position)
            elif run.failed:
                reason = run.outcome.reason
                log.warning("%s failed again, its key stays parked: %s", message, reason)
                await parking.note_stays(parked, drain.position, reason)
        finally:
            assigned.in_flight -= 1
        return bool(run.done or run.failed)

    async def _send(
        self, parking: QueueParking, parked: ParkedMessage, message: MessageExt, drain: Drain
    ) -> int:
        """Send a copy of a parked message; where it lies if that is its own queue, else -1."""
        topic, (own_topic, queue_id) = drain.to or message.topic, parking.place
        group, own = parking.log.group, parking.log.queue
        is_own = topic == own_topic
        mark = CopyMark(group, own_topic, queue_id, parked.order, parked.offset) if is_own else None
        new_id = redriven_id(message.msg_id, own, parked.position)
        now_ms = self._session.clock.now_ms()
        copy = copy_form(topic, message, new_id, mark, now_ms, self._sender.options)
        key = message.sharding_key or parked.key

        async def choose(failed_broker: str | None) -> MessageQueue:
            del failed_broker
            queues = await self._session.routes.publish_queues(topic, 4)
            if is_own:
                return next(q for q in queues if (q.broker_name, q.queue_id) == place)
            return queues[queue_index(java_hash(key), len(queues))]

        place = own.broker_name, queue_id
        deadline = asyncio.get_running_loop().time() + _SEND_S
        result = await self._sender.send(copy, choose, 2, deadline)
        return result.queue_offset if is_own else -1


def redriven_id(msg_id: str, queue: MessageQueue, position: int) -> str:
    """The id of the message that is made of a stored one: always the same, and never its own."""
    text = f"{msg_id}/{queue.topic}/{queue.broker_name}/{queue.queue_id}/{position}"
    return sha256(text.encode()).hexdigest()[:32].upper()
