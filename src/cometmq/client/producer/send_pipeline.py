"""The ways one message takes: short, in the lane of its key, long, and on after an error.

Owns the choice between the ways and the lanes of keys; refuses to know frames and connections
(`quick`, `direct`, `delivery`). Invariant: sends of one key leave one after the other, retries
included, and a message keeps its id on every way. One loop owns it, but for `direct`.
Java: DefaultMQProducerImpl.sendDefaultImpl
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from cometmq.client.middleware.trace import Trace
from cometmq.client.producer import message_checks as validation
from cometmq.client.producer.batch_sender import Bulk
from cometmq.client.producer.key_locks import Lanes
from cometmq.client.producer.latency_tracker import Faults
from cometmq.client.producer.prepared_message import Outgoing, outgoing
from cometmq.client.producer.queue_selector import ByHash, QueueChoice
from cometmq.client.producer.retrying_sender import Delivery
from cometmq.client.producer.send_fast_path import Quick, result_of
from cometmq.client.producer.thread_sender import Direct
from cometmq.client.session.argument_checks import check_queue
from cometmq.errors import ClientError, CometError
from cometmq.model.queue import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cometmq.client.producer.queue_selector import Selector
    from cometmq.client.producer.retrying_sender import Failed
    from cometmq.client.session.client_options import ProducerOptions
    from cometmq.client.session.client_session import Core
    from cometmq.model.message import Message
    from cometmq.model.results import SendResult


class Sends:
    """All that a started producer sends with."""

    def __init__(self, core: Core, options: ProducerOptions) -> None:
        self.core, self._options = core, options
        faults = None if options.latency_fault == "off" else Faults(core, options)
        self.choice = QueueChoice(
            os.getpid(),
            balanced=options.keys == "balanced",
            strict=options.strict_order,
            faults=faults,
        )
        self.delivery = Delivery(core, options, faults)
        self.quick = Quick(core, self.choice, options)
        self._lanes = Lanes()
        self.bulk = Bulk(core, self.delivery, self.choice, self.quick, options, self._lanes)
        self.direct = Direct(core, self.quick, first=os.getpid())
        self.trace: Trace | None = None
        if core.options.trace:
            self.trace = Trace(core, options.group, "PRODUCE", asyncio.get_running_loop())
            self.bulk.trace = self.trace

    async def in_lane(self, message: Message, deadline: float) -> SendResult:
        """Send a message with a sharding key after those of its key that came first."""
        if type(message.topic) is not str or type(message.sharding_key) is not str:
            validation.check_kind(message)
            validation.check_message(message, self._options.body_bytes_max)
        lane = (message.topic, message.sharding_key)
        mine = self._lanes.try_enter(lane)
        if mine is None:
            async with self._lanes.enter(lane, deadline):
                return await self._keyed(message, deadline)
        try:
            return await self._keyed(message, deadline)
        finally:
            self._lanes.leave(lane, mine)

    async def in_turn(self, prepared: Outgoing, message: Message, deadline: float) -> SendResult:
        """Send a prepared message, after those of its key that came first."""
        if message.sharding_key is None:
            return await self.deliver(prepared, message, None, deadline)
        async with self._lanes.enter((message.topic, message.sharding_key), deadline):
            return await self.deliver(prepared, message, None, deadline)

    async def to(
        self, message: Message, queue: MessageQueue | Selector, deadline: float
    ) -> SendResult:
        """Send to the queue given, or to the one a function chooses; retries keep to it."""
        key = queue.key if isinstance(queue, ByHash) else message.sharding_key
        if key is None:
            return await self.slowly(message, await self.selected(message, queue), deadline)
        validation.check_message(message, self._options.body_bytes_max)
        async with self._lanes.enter((message.topic, key), deadline):
            return await self.slowly(message, await self.selected(message, queue), deadline)

    async def oneway(
        self, prepared: Outgoing, message: Message, queue: MessageQueue | Selector | None
    ) -> None:
        """Write a prepared message to a broker, after those of its key that came first."""
        key = queue.key if isinstance(queue, ByHash) else message.sharding_key
        if key is None:
            await self._write(prepared, message, queue)
            return
        deadline = asyncio.get_running_loop().time() + self.core.options.call_timeout_s
        async with self._lanes.enter((message.topic, key), deadline):
            await self._write(prepared, message, queue)

    async def selected(self, message: Message, selector: MessageQueue | Selector) -> MessageQueue:
        """The queue given, or the one that a function chooses.

        Raises ClientError when what is chosen is none of the topic's.
        """
        if isinstance(selector, MessageQueue):
            check_queue("queue", selector)
            if selector.topic != message.topic:
                raise ClientError(f"{selector} is no queue of the message's topic {message.topic}")
            return selector
        validation.check_topic(message.topic)
        queues = await self.core.routes.publish_queues(
            message.topic, self._options.default_topic_queues
        )
        chosen = selector(tuple(queues), message) if callable(selector) else selector
        if chosen not in queues:
            raise ClientError(f"queue= gave {chosen!r:.120}, which is no queue of {message.topic}")
        return chosen

    async def slowly(
        self, message: Message, queue: MessageQueue | None, deadline: float
    ) -> SendResult:
        """Send with all checks, to the queue given or to one of the message's choice."""
        now_ms = self.core.clock.now_ms()
        prepared = self.prepared(message, self.core.uniq_keys.take(now_ms), now_ms)
        return await self.deliver(prepared, message, queue, deadline)

    async def again(
        self, message: Message, msg_id: str, born_ms: int, failed: Failed, deadline: float
    ) -> SendResult:
        """Go on the long way after an error of another."""
        prepared = self.prepared(message, msg_id, born_ms)
        return await self.deliver(prepared, message, None, deadline, failed)

    async def choose(self, message: Message, failed_broker: str | None) -> MessageQueue:
        """The message's queue; without key the next in turn, away from the broker that failed."""
        queues = await self.core.routes.publish_queues(
            message.topic, self._options.default_topic_queues
        )
        if message.sharding_key is not None:
            return self.choice.by_key(queues, message.sharding_key)
        return self.choice.in_turn(message.topic, queues, failed_broker)

    def prepared(
        self,
        message: Message,
        msg_id: str,
        born_ms: int,
        extra: Mapping[str, str] | None = None,
    ) -> Outgoing:
        """The message checked and ready for any queue. Raises InvalidMessage.

        `extra` are properties that users may not set.
        """
        validation.check_kind(message)
        validation.check_topic(message.topic)
        validation.check_message(message, self._options.body_bytes_max)
        return outgoing(message, self._options, msg_id, born_ms, extra)

    async def deliver(
        self,
        prepared: Outgoing,
        message: Message,
        queue: MessageQueue | None,
        deadline: float,
        failed: Failed | None = None,
    ) -> SendResult:
        """Get a prepared message to the queue given, or to one of the message's choice."""

        async def choose(failed_broker: str | None) -> MessageQueue:
            if queue is None:
                return await self.choose(message, failed_broker)
            if self.core.routes.find_master(queue.broker_name) is None:  # nothing was sent so far
                await self.core.routes.publish_queues(
                    message.topic, self._options.default_topic_queues
                )
            return queue

        retries, began = self._options.retries, asyncio.get_running_loop().time()
        result: SendResult | None = None
        try:
            result = await self.delivery.one(prepared, choose, retries, deadline, failed=failed)
        finally:
            if self.trace is not None and result is None:
                self.trace.failed(prepared, message, queue, began)
        if self.trace is not None:
            self.trace.sent(prepared, message, result, began)
        return result

    async def _write(
        self, prepared: Outgoing, message: Message, queue: MessageQueue | Selector | None
    ) -> None:
        if queue is None:
            queue = await self.choose(message, None)
        await self.delivery.oneway(prepared, await self.selected(message, queue))

    async def _keyed(self, message: Message, deadline: float) -> SendResult:
        posted = self.quick.post(message, deadline)
        if posted is None:
            return await self.slowly(message, None, deadline)
        answer, place, msg_id, born_ms = posted
        try:
            return result_of(place, place.addr, msg_id, await answer)
        except CometError as error:
            failed = (error, place.queue)
            return await self.again(message, msg_id, born_ms, failed, deadline)
