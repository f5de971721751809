"""Sends lists of messages: grouped by queue, in frames, one frame under way per queue.

Owns grouping, framing and the order within a queue; refuses to know retries (`retrying_sender`).
Invariants: the frames of one queue leave one after the other, across calls too, and none leaves
before the previous one was stored, so a queue holds the messages in the order they were given.
Threads that wait for each batch send plain ones without key by themselves (`thread_sender`).
A queue's share holds the locks of all its keys, which single sends use as well (`send_pipeline`).
Java: DefaultMQProducer.send(Collection), ProduceAccumulator
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from cometmq.client.producer import message_checks as checks
from cometmq.client.producer.key_locks import KeyLocks
from cometmq.client.producer.plain_batch import BATCH_MESSAGES_MAX
from cometmq.client.producer.prepared_message import PreparedBatch, prepare
from cometmq.client.producer.retrying_sender import UNTIL_DEADLINE
from cometmq.client.producer.send_fast_path import FRAME_BYTES_MAX, results_of
from cometmq.client.producer.thread_sender import FailedBatch
from cometmq.errors import CometError, PartlySent, RouteNotFound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cometmq.client.middleware.send_hooks import BatchStored
    from cometmq.client.producer.key_locks import KeyReservation
    from cometmq.client.producer.plain_batch import AnyBatch
    from cometmq.client.producer.producer_options import ProducerOptions
    from cometmq.client.producer.queue_selector import QueueSelector
    from cometmq.client.producer.retrying_sender import ChooseQueue, RetryingSender
    from cometmq.client.producer.send_fast_path import QueueTarget, SendFastPath
    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.message import Message
    from cometmq.model.queue import MessageQueue
    from cometmq.model.results import SendResult

_ATTEMPT_S = 5.0
_ROUTE_PAUSE_S = 0.5
_UNKEYED_RUN = 32
"""Messages without key that go to one queue before the next queue is used."""


class _QueueShare(NamedTuple):
    """The messages of a call that go to one queue, by index, and where their results go."""

    queue: MessageQueue
    indexes: list[int]
    messages: list[Message]
    results: list[SendResult | None]
    retries: int
    deadline: float
    stored: BatchStored | None


class BatchSender:
    """Sends lists of messages for one producer. One loop owns it."""

    def __init__(
        self,
        session: ClientSession,
        retrying_sender: RetryingSender,
        queue_selector: QueueSelector,
        fast_path: SendFastPath,
        options: ProducerOptions,
        key_locks: KeyLocks,
    ) -> None:
        self._session = session
        self._retrying_sender = retrying_sender
        self._queue_selector = queue_selector
        self._fast_path = fast_path
        self._options = options
        self._queue_locks = KeyLocks()
        self._key_locks = key_locks

    async def send_one_frame(
        self, messages: list[Message], deadline: float, retries: int
    ) -> list[SendResult] | None:
        """Send plain messages of one topic in one frame; None: they need the slow path.

        The first queue without a frame under way gets them; when all are busy, they wait for one.
        """
        batch = self._fast_path.batch_of(messages)
        targets = self._fast_path.targets_for(batch) if batch is not None else None
        if batch is None or targets is None:
            return None
        for target in targets:
            mine = self._queue_locks.try_acquire(target.queue)
            if mine is not None:
                try:
                    return await self._send_frame_to(target, batch, deadline, retries)
                finally:
                    self._queue_locks.release(target.queue, mine)
        async with self._queue_locks.acquire(targets[0].queue, deadline):
            return await self._send_frame_to(targets[0], batch, deadline, retries)

    async def _send_frame_to(
        self, target: QueueTarget, batch: AnyBatch, deadline: float, retries: int
    ) -> list[SendResult] | None:
        """Send them to this queue; None when there is no connection yet."""
        begun = asyncio.get_running_loop().time()
        posted = self._fast_path.post_batch(batch, target, deadline)
        if posted is None:
            return None
        answer, target, ids, born_ms = posted
        try:
            results = results_of(target, ids, await answer)
            target.counts.ok += 1
            target.counts.spent_s += asyncio.get_running_loop().time() - begun
            return results
        except CometError as error:
            target.counts.failed += 1
            failed = FailedBatch(batch.messages, ids, born_ms, (error, target.queue))
            return await self.send_after_failure(failed, deadline, retries)

    async def send_after_failure(
        self, failed: FailedBatch, deadline: float, retries: int
    ) -> list[SendResult]:
        """Go on by the slow path after an error of a fast one; all messages keep their ids."""
        messages = failed.messages
        frame = PreparedBatch(messages[0].topic, failed.born_ms)
        for message, msg_id in zip(messages, failed.ids, strict=True):
            frame.add(message, msg_id)

        async def choose(failed_broker: str | None) -> MessageQueue:
            queues = await self._queues(frame.topic, deadline)
            return self._queue_selector.round_robin(frame.topic, queues, failed_broker)

        return await self._retrying_sender.send_batch(
            frame, choose, retries, deadline, failed=failed.attempt
        )

    async def send(
        self,
        messages: list[Message],
        timeout_s: float,
        retries: int,
        *,
        is_spread: bool,
        stored: BatchStored | None = None,
    ) -> list[SendResult]:
        """Send all; one result each, in order. Raises PartlySent when some could not be sent.

        `is_spread`: messages without key are spread over the queues, else they share one queue.
        `stored` is called for each frame that was stored.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        for message in messages:
            checks.check_message(message, self._options.body_bytes_max)
        keys = self._key_locks.reserve(_keys_of(messages))  # before any await: later sends wait
        results: list[SendResult | None] = [None] * len(messages)
        try:
            plan = await self._plan(messages, deadline, is_spread=is_spread)
            errors = await asyncio.gather(
                *(
                    self._send_share(
                        _QueueShare(queue, at, messages, results, retries, deadline, stored), keys
                    )
                    for queue, at in plan.items()
                )
            )
        finally:
            keys.release_all()
        first = next((error for error in errors if error is not None), None)
        if first is None:
            return [result for result in results if result is not None]
        if len(plan) == 1 and not any(results):
            raise first
        raise PartlySent(results, first) from first

    async def _plan(
        self, messages: list[Message], deadline: float, *, is_spread: bool
    ) -> dict[MessageQueue, list[int]]:
        """Which messages, by their index, go to which queue."""
        routes: dict[str, list[MessageQueue]] = {}
        plan: dict[MessageQueue, list[int]] = {}
        unkeyed: dict[str, tuple[MessageQueue | None, int]] = {}
        keyed: dict[tuple[str, str], MessageQueue] = {}
        for index, message in enumerate(messages):
            topic = message.topic
            if topic not in routes:
                routes[topic] = await self._queues(topic, deadline)
            if message.sharding_key is not None:
                key = message.sharding_key
                try:
                    queue = self._queue_selector.for_key(routes[topic], key)
                except RouteNotFound:  # its broker may come back in time
                    routes[topic], queue = await self._wait_for_queue(topic, key, deadline)
                queue = keyed.setdefault(
                    (topic, key), queue
                )  # `balanced` may forget a key meanwhile
            else:
                last, count = unkeyed.get(topic, (None, 0))
                if last is None or (is_spread and count >= _UNKEYED_RUN):
                    last, count = self._queue_selector.round_robin(topic, routes[topic]), 0
                unkeyed[topic] = (last, count + 1)
                queue = last
            plan.setdefault(queue, []).append(index)
        return plan

    async def _queues(self, topic: str, deadline: float) -> list[MessageQueue]:
        checks.check_topic(topic)
        while True:
            try:
                return await self._session.routes.publish_queues(
                    topic, self._options.default_topic_queues
                )
            except CometError as error:
                await self._pause_after(error, deadline)

    async def _wait_for_queue(
        self, topic: str, key: str, deadline: float
    ) -> tuple[list[MessageQueue], MessageQueue]:
        """The topic's queues, once that of a key is among them, and that queue."""
        while True:
            self._session.routes.mark_stale(topic)
            queues = await self._queues(topic, deadline)
            try:
                return queues, self._queue_selector.for_key(queues, key)
            except RouteNotFound as error:
                await self._pause_after(error, deadline)

    async def _pause_after(self, error: CometError, deadline: float) -> None:
        """Pause before the route is asked for again; raise the error where there is no time."""
        left_s = deadline - asyncio.get_running_loop().time()
        if not error.retriable or left_s <= _ROUTE_PAUSE_S:
            raise error
        await asyncio.sleep(_ROUTE_PAUSE_S)

    async def _send_share(self, share: _QueueShare, held: KeyReservation) -> CometError | None:
        """Send one queue's share after earlier sends of its keys; its first error, if any."""
        keys = _keys_of(share.messages[index] for index in share.indexes)
        if keys and self._options.strict_order:
            share = share._replace(retries=UNTIL_DEADLINE)  # no other queue will do
        try:
            await held.wait(keys, share.deadline)
            async with self._queue_locks.acquire(share.queue, share.deadline):
                await self._send_frames(share)
        except CometError as error:
            return error
        finally:
            held.release(keys)
        return None

    async def _send_frames(self, share: _QueueShare) -> None:
        """Send a share frame by frame; stops at the first error, which it raises."""
        queue, indexes, messages, results, retries, deadline, stored = share
        may_move = len(indexes) <= BATCH_MESSAGES_MAX and not any(
            messages[index].sharding_key for index in indexes
        )

        async def choose(failed_broker: str | None) -> MessageQueue:
            if failed_broker is None:
                return queue
            queues = await self._queues(queue.topic, deadline)  # its broker's address may be new
            if retries == UNTIL_DEADLINE or not may_move:
                return queue  # another queue would break the order
            return self._queue_selector.round_robin(queue.topic, queues, failed_broker)

        at = 0
        while at < len(indexes):
            part = indexes[at : at + BATCH_MESSAGES_MAX]
            found = await self._send_frame(messages, part, choose, retries, deadline)
            for index, result in zip(part, found, strict=False):
                results[index] = result
            if stored is not None:
                await stored(part[: len(found)], found)
            assert found, "a frame holds one message at least, or this would never end"
            at += len(found)

    async def _send_frame(
        self,
        messages: list[Message],
        indexes: list[int],
        choose: ChooseQueue,
        retries: int,
        deadline: float,
    ) -> list[SendResult]:
        """Send the first messages, as many as fit into one frame; their results."""
        sender, now_ms = self._retrying_sender, self._session.clock.now_ms()
        frame = self._fill_frame(messages, indexes, now_ms)
        if len(frame) > 1:
            return await sender.send_batch(frame, choose, retries, deadline, _ATTEMPT_S)
        msg_id = self._session.uniq_keys.next_key(now_ms)
        alone = prepare(messages[indexes[0]], self._options, msg_id, now_ms)
        return [await sender.send(alone, choose, retries, deadline, _ATTEMPT_S)]

    def _fill_frame(
        self, messages: list[Message], indexes: list[int], now_ms: int
    ) -> PreparedBatch:
        """Put the first messages into a frame, bounded by its bytes."""
        bytes_max = min(FRAME_BYTES_MAX, self._options.body_bytes_max)
        take = self._session.uniq_keys.next_key
        frame = PreparedBatch(messages[indexes[0]].topic, now_ms, bytes_max)
        for index in indexes:
            message = messages[index]
            # RocketMQ: a batch cannot be delayed
            is_alone = message.delay_level > 0 or message.due is not None
            if is_alone and len(frame):
                break
            if not frame.add(message, take(now_ms)) or is_alone:
                break
        return frame


def _keys_of(messages: Iterable[Message]) -> dict[tuple[str, str], None]:
    """The topics and sharding keys of the messages, each once."""
    return {(one.topic, one.sharding_key): None for one in messages if one.sharding_key is not None}
