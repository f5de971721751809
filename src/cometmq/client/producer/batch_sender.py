"""Many messages at once: grouped by queue, framed, one frame under way per queue.

Owns grouping, framing and the order within a queue; refuses to know retries (`delivery`).
Invariant: the frames of one queue leave one after the other, across calls too, and none leaves
before the one before it was stored; so a queue holds the messages in the order they were given.
A share of a queue is in the lanes of all its keys, which single sends use as well (`sends`).
Java: DefaultMQProducer.send(Collection), ProduceAccumulator
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from cometmq.client.producer import message_checks as validation
from cometmq.client.producer.key_locks import Lanes
from cometmq.client.producer.prepared_message import OutgoingBatch, outgoing
from cometmq.client.producer.retrying_sender import UNTIL_DEADLINE
from cometmq.client.producer.send_fast_path import FRAME_BYTES_MAX, FRAME_MESSAGES_MAX, results_of
from cometmq.errors import CometError, PartlySent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cometmq.client.middleware.trace import Trace
    from cometmq.client.producer.key_locks import Places
    from cometmq.client.producer.queue_selector import QueueChoice
    from cometmq.client.producer.retrying_sender import Choose, Delivery
    from cometmq.client.producer.send_fast_path import PostedBatch, QueueForm, Quick
    from cometmq.client.session.client_options import ProducerOptions
    from cometmq.client.session.client_session import Core
    from cometmq.model.message import Message
    from cometmq.model.queue import MessageQueue
    from cometmq.model.results import SendResult

_ATTEMPT_S = 5.0
_RUN = 32
"""How many messages without key go to one queue before the next one has its turn."""


class _Share(NamedTuple):
    """What one queue gets of a call, and where the call's results belong."""

    queue: MessageQueue
    indexes: list[int]
    messages: list[Message]
    results: list[SendResult | None]
    retries: int
    deadline: float


class Bulk:
    """Sends lists of messages for one producer. One loop owns it."""

    def __init__(
        self,
        core: Core,
        delivery: Delivery,
        choice: QueueChoice,
        quick: Quick,
        options: ProducerOptions,
        key_lanes: Lanes,
    ) -> None:
        self._core, self._delivery, self._choice = core, delivery, choice
        self._quick, self._options = quick, options
        self._lanes, self._key_lanes = Lanes(), key_lanes
        self.trace: Trace | None = None

    async def one_frame(
        self, messages: list[Message], deadline: float, retries: int
    ) -> list[SendResult] | None:
        """Send plain messages of one topic in one frame; None when they are not such.

        Of the queues it takes the first whose lane is free; where none is, it waits for one.
        """
        places = self._quick.places_for(messages)
        if places is None:
            return None
        for place in places:
            mine = self._lanes.try_enter(place.queue)
            if mine is not None:
                try:
                    return await self._frame_to(place, messages, deadline, retries)
                finally:
                    self._lanes.leave(place.queue, mine)
        async with self._lanes.enter(places[0].queue, deadline):
            return await self._frame_to(places[0], messages, deadline, retries)

    async def _frame_to(
        self, place: QueueForm, messages: list[Message], deadline: float, retries: int
    ) -> list[SendResult] | None:
        """Send them to this queue; None when there is no connection yet."""
        posted = self._quick.post_batch(messages, place, deadline)
        if posted is None:
            return None
        try:
            return results_of(posted, await posted[0])
        except CometError as error:
            return await self._again(messages, posted, deadline, retries, error)

    async def _again(
        self,
        messages: list[Message],
        posted: PostedBatch,
        deadline: float,
        retries: int,
        error: CometError,
    ) -> list[SendResult]:
        """Go on the long way after an error of the short one; all messages keep their ids."""
        _, place, ids, born_ms = posted
        frame = OutgoingBatch(messages[0].topic, born_ms)
        for message, msg_id in zip(messages, ids, strict=True):
            frame.add(message, msg_id)

        async def choose(failed_broker: str | None) -> MessageQueue:
            queues = await self._queues(frame.topic, deadline)
            return self._choice.in_turn(frame.topic, queues, failed_broker)

        failed = (error, place.queue)
        return await self._delivery.batch(frame, choose, retries, deadline, failed=failed)

    async def send(
        self, messages: list[Message], timeout_s: float, retries: int, *, is_spread: bool
    ) -> list[SendResult]:
        """Send all; one result each, in order. Raises PartlySent when some could not be sent.

        `is_spread`: messages without key are dealt over the queues, else they share one queue.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        for message in messages:
            validation.check_message(message, self._options.body_bytes_max)
        places = self._key_lanes.take(_keys_of(messages))  # at once: later sends come behind
        results: list[SendResult | None] = [None] * len(messages)
        try:
            plan = await self._plan(messages, deadline, is_spread=is_spread)
            errors = await asyncio.gather(
                *(
                    self._send(_Share(queue, at, messages, results, retries, deadline), places)
                    for queue, at in plan.items()
                )
            )
        finally:
            places.leave_all()
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
                queue = self._choice.by_key(routes[topic], key)
                queue = keyed.setdefault((topic, key), queue)  # a balanced one may be forgotten
            else:
                last, count = unkeyed.get(topic, (None, 0))
                if last is None or (is_spread and count >= _RUN):
                    last, count = self._choice.in_turn(topic, routes[topic]), 0
                unkeyed[topic] = (last, count + 1)
                queue = last
            plan.setdefault(queue, []).append(index)
        return plan

    async def _queues(self, topic: str, deadline: float) -> list[MessageQueue]:
        validation.check_topic(topic)
        while True:
            try:
                return await self._core.routes.publish_queues(
                    topic, self._options.default_topic_queues
                )
            except CometError as error:
                loop = asyncio.get_running_loop()
                if not error.retriable or loop.time() + 1.0 >= deadline:
                    raise
                await asyncio.sleep(0.5)

    async def _send(self, share: _Share, places: Places) -> CometError | None:
        """Send one queue's share, after what came first of its keys; its first error, if any."""
        keys = _keys_of(share.messages[index] for index in share.indexes)
        try:
            await places.wait(keys, share.deadline)
            async with self._lanes.enter(share.queue, share.deadline):
                await self._frames(share)
        except CometError as error:
            return error
        finally:
            places.leave(keys)
        return None

    async def _frames(self, share: _Share) -> None:
        """Send a share frame by frame; stops at the first error, which it raises."""
        queue, indexes, messages, results, retries, deadline = share
        may_move = len(indexes) <= FRAME_MESSAGES_MAX and not any(
            messages[index].sharding_key for index in indexes
        )

        async def choose(failed_broker: str | None) -> MessageQueue:
            if failed_broker is None or retries == UNTIL_DEADLINE or not may_move:
                return queue  # another queue would break the order
            queues = await self._queues(queue.topic, deadline)
            return self._choice.in_turn(queue.topic, queues, failed_broker)

        at = 0
        while at < len(indexes):
            part = indexes[at : at + FRAME_MESSAGES_MAX]
            found = await self._next(messages, part, choose, retries, deadline)
            for index, result in zip(part, found, strict=False):
                results[index] = result
            at += len(found)

    async def _next(
        self,
        messages: list[Message],
        indexes: list[int],
        choose: Choose,
        retries: int,
        deadline: float,
    ) -> list[SendResult]:
        """Send as many of the first messages as one frame may hold; their results."""
        core, now_ms = self._core, self._core.clock.now_ms()
        frame, began = self._frame(messages, indexes, now_ms), asyncio.get_running_loop().time()
        if len(frame) > 1:
            found = await self._delivery.batch(frame, choose, retries, deadline, _ATTEMPT_S)
            if self.trace is not None:
                self.trace.sent_batch(frame, found, began)
            return found
        first = messages[indexes[0]]
        alone = outgoing(first, self._options, core.uniq_keys.take(now_ms), now_ms)
        result = await self._delivery.one(alone, choose, retries, deadline, _ATTEMPT_S)
        if self.trace is not None:
            self.trace.sent(alone, first, result, began)
        return [result]

    def _frame(self, messages: list[Message], indexes: list[int], now_ms: int) -> OutgoingBatch:
        """Put the first messages into a frame, bounded by count and bytes."""
        bytes_max = min(FRAME_BYTES_MAX, self._options.body_bytes_max)
        take = self._core.uniq_keys.take
        frame = OutgoingBatch(messages[indexes[0]].topic, now_ms)
        for index in indexes:
            message = messages[index]
            is_alone = message.delay_level > 0  # a batch has no delay
            if len(frame) and (is_alone or frame.body_bytes + len(message.body) > bytes_max):
                break
            frame.add(message, take(now_ms))
            if is_alone:
                break
        return frame


def _keys_of(messages: Iterable[Message]) -> dict[tuple[str, str], None]:
    """The lanes that the messages' sharding keys are, each once."""
    return {(one.topic, one.sharding_key): None for one in messages if one.sharding_key is not None}
