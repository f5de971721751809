"""Sends one message: on the fast path where it fits, else on the slow path, retries included.

Owns the choice of the path and the locks of sharding keys; refuses to know frames and connections
(`send_fast_path`, `thread_sender`, `retrying_sender`). Invariants: sends of one key leave one after
the other, retries included; a message keeps its id on every path. One loop owns it, except
`thread_sender`.
Java: DefaultMQProducerImpl.sendDefaultImpl
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from cometmq.client.middleware.send_hooks import SendHooks
from cometmq.client.middleware.trace import Trace
from cometmq.client.producer import message_checks as checks
from cometmq.client.producer.batch_sender import BatchSender
from cometmq.client.producer.key_locks import KeyLocks
from cometmq.client.producer.latency_tracker import LatencyTracker
from cometmq.client.producer.prepared_message import PreparedMessage, prepare
from cometmq.client.producer.queue_selector import ByHash, QueueSelector
from cometmq.client.producer.retrying_sender import UNTIL_DEADLINE, RetryingSender
from cometmq.client.producer.send_fast_path import SendFastPath, result_of
from cometmq.client.producer.send_statistics import SAMPLE_S, UNROUTED, SendStatistics
from cometmq.client.producer.thread_sender import FailedSend, ThreadSender
from cometmq.client.session.argument_checks import check_queue
from cometmq.errors import ClientError, CometError
from cometmq.model.producer_stats import BrokerSends, ProducerStats
from cometmq.model.queue import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import TypeVar

    from cometmq.client.producer.producer_options import ProducerOptions
    from cometmq.client.producer.queue_selector import SelectQueue
    from cometmq.client.producer.retrying_sender import FailedAttempt
    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.message import Message
    from cometmq.model.results import SendResult
    from cometmq.wire.command import Command
    from cometmq.wire.templates.send_response import SendAnswer

    R = TypeVar("R", bound=SendResult | None)


class SendPipeline:
    """All that a started producer sends with."""

    def __init__(self, session: ClientSession, options: ProducerOptions) -> None:
        self.session = session
        self._options = options
        self.retries = options.retries
        self.attempt_s = options.attempt_timeout_s
        """How long one attempt may take; None: as long as the call."""
        self._now = asyncio.get_running_loop().time
        self.new_answer: Callable[[], asyncio.Future[SendAnswer | Command]]
        """Makes the future of a response."""
        self.new_answer = asyncio.get_running_loop().create_future
        tracker = None if options.latency_fault == "off" else LatencyTracker(session, options)
        self.queue_selector = selector = QueueSelector(
            first := random.getrandbits(16),
            balanced=options.keys == "balanced",
            strict=options.strict_order,
            latency_tracker=tracker,
        )
        self.latency_tracker = tracker
        self.statistics = statistics = SendStatistics(session.clock.monotonic_s)
        session.background.every(SAMPLE_S, statistics.sample, name="statistics")
        self.retrying_sender = sender = RetryingSender(session, options, tracker, statistics)
        self.fast_path = fast_path = SendFastPath(session, selector, options, statistics)
        self._key_locks = locks = KeyLocks()
        self.batch_sender = BatchSender(session, sender, selector, fast_path, options, locks)
        self.thread_sender = ThreadSender(session, fast_path, first=first)
        statistics.thread_counts = self.thread_sender.counts
        self.trace: Trace | None = None
        middleware = [*session.options.middleware]
        if session.options.trace:
            self.trace = Trace(session, options.group, "PRODUCE", asyncio.get_running_loop())
            middleware.append(self.trace)
        self.hooks = SendHooks(middleware, options.group) if middleware else None
        """The hooks of the middleware; None where there is none."""

    async def send(
        self, message: Message, queue: MessageQueue | SelectQueue | None, deadline: float
    ) -> SendResult:
        """Send one message on the path that it needs, without hooks."""
        if queue is not None:
            return await self.send_to(message, queue, deadline)
        if message.sharding_key is not None:
            return await self.send_in_key_order(message, deadline)
        return await self._send_unordered(message, deadline)

    async def send_with_hooks(
        self, message: Message, queue: MessageQueue | SelectQueue | None, deadline: float
    ) -> SendResult:
        """Send one message on the path that it needs, with the hooks of the middleware."""
        return await self.with_hooks(
            "send", message, lambda: self.send(message, queue, deadline), queue
        )

    async def with_hooks(
        self,
        kind: str,
        message: Message,
        send: Callable[[], Awaitable[R]],
        queue: MessageQueue | SelectQueue | None = None,
    ) -> R:
        """Send one message by `send`, with the hooks of the middleware where there are any."""
        checks.check_kind(message)
        if self.hooks is None:
            return await send()
        return await self.hooks.around(
            kind, message, send, queue if isinstance(queue, MessageQueue) else None
        )

    async def send_list(
        self, messages: list[Message], timeout_s: float, retries: int, *, is_spread: bool
    ) -> list[SendResult]:
        """Send several messages, each with its hooks where there are any."""
        sender = self.batch_sender
        if self.hooks is None:
            return await sender.send(messages, timeout_s, retries, is_spread=is_spread)
        return await self.hooks.around_batch(
            messages,
            lambda stored: sender.send(
                messages, timeout_s, retries, is_spread=is_spread, stored=stored
            ),
        )

    async def send_in_key_order(self, message: Message, deadline: float) -> SendResult:
        """Send a message with a sharding key after the earlier ones of its key."""
        if type(message.topic) is not str or type(message.sharding_key) is not str:
            checks.check_kind(message)
            checks.check_message(message, self._options.body_bytes_max)
        key = (message.topic, message.sharding_key)
        mine = self._key_locks.try_acquire(key)
        if mine is None:
            async with self._key_locks.acquire(key, deadline):
                return await self._send_unordered(message, deadline)
        try:
            return await self._send_unordered(message, deadline)
        finally:
            self._key_locks.release(key, mine)

    async def send_prepared(
        self, prepared: PreparedMessage, message: Message, deadline: float
    ) -> SendResult:
        """Send a prepared message after the earlier ones of its key."""
        if message.sharding_key is None:
            return await self.deliver(prepared, message, None, deadline)
        async with self._key_locks.acquire((message.topic, message.sharding_key), deadline):
            return await self.deliver(prepared, message, None, deadline)

    async def send_to(
        self, message: Message, queue: MessageQueue | SelectQueue, deadline: float
    ) -> SendResult:
        """Send to the queue given, or to the one a function selects; retries keep to it."""
        key = queue.key if isinstance(queue, ByHash) else message.sharding_key
        if key is None:
            selected = await self.select_queue(message, queue)
            return await self.send_slow_path(message, selected, deadline)
        checks.check_message(message, self._options.body_bytes_max)
        async with self._key_locks.acquire((message.topic, key), deadline):
            selected = await self.select_queue(message, queue)
            return await self.send_slow_path(message, selected, deadline)

    async def send_oneway(
        self, prepared: PreparedMessage, message: Message, queue: MessageQueue | SelectQueue | None
    ) -> None:
        """Write a prepared message to a broker after the earlier ones of its key."""
        key = queue.key if isinstance(queue, ByHash) else message.sharding_key
        if key is None:
            await self._write_oneway(prepared, message, queue)
            return
        deadline = asyncio.get_running_loop().time() + self.session.options.call_timeout_s
        async with self._key_locks.acquire((message.topic, key), deadline):
            await self._write_oneway(prepared, message, queue)

    def stats(self, pending: int) -> ProducerStats:
        """What the producer says of itself."""
        tracker, session, brokers = self.latency_tracker, self.session, {}
        rates = self.statistics.rates()
        unrouted = rates.pop(UNROUTED, None)
        for name, found in rates.items():
            avoided_s, is_reachable = tracker.avoidance(name) if tracker else (0.0, True)
            addr = session.routes.find_master_addr(name) or ""
            in_flight = session.pool.in_flight(addr) + self.thread_sender.in_flight(addr)
            brokers[name] = BrokerSends(*found, in_flight, avoided_s, is_reachable)
        return ProducerStats(brokers, unrouted.failed_per_second if unrouted else 0.0, pending)

    async def select_queue(
        self, message: Message, wanted: MessageQueue | SelectQueue
    ) -> MessageQueue:
        """The queue given, or the one that a function selects.

        Raises ClientError when it is none of the topic's.
        """
        if isinstance(wanted, MessageQueue):
            check_queue("queue", wanted)
            if wanted.topic != message.topic:
                raise ClientError(f"{wanted} is no queue of the message's topic {message.topic}")
            return wanted
        checks.check_topic(message.topic)
        queues = await self._publish_queues(message.topic)
        try:
            selected = wanted(tuple(queues), message) if callable(wanted) else wanted
        except LookupError as error:  # most often an index beyond the queues
            raise ClientError(
                f"the function given as queue= raised {error!r:.120} for a message of "
                f"{message.topic}, which has {len(queues)} queues now"
            ) from error
        if selected not in queues:
            raise ClientError(
                f"queue= gave {selected!r:.120}, which is no queue of {message.topic}"
            )
        return selected

    async def send_slow_path(
        self, message: Message, queue: MessageQueue | None, deadline: float
    ) -> SendResult:
        """Send with all checks, to the queue given or to one selected for the message."""
        now_ms = self.session.clock.now_ms()
        prepared = self.prepare(message, self.session.uniq_keys.next_key(now_ms), now_ms)
        return await self.deliver(prepared, message, queue, deadline)

    async def send_after_failure(
        self, message: Message, failed: FailedSend, deadline: float
    ) -> SendResult:
        """Go on by the slow path after a failed attempt on another one; the id stays the same."""
        prepared = self.prepare(message, failed.msg_id, failed.born_ms)
        return await self.deliver(prepared, message, None, deadline, failed.attempt)

    async def choose_queue(self, message: Message, failed_broker: str | None) -> MessageQueue:
        """The queue of the message's key, else the next one, away from the broker that failed."""
        queues = await self._publish_queues(message.topic)
        if message.sharding_key is not None:
            return self.queue_selector.for_key(queues, message.sharding_key)
        return self.queue_selector.round_robin(message.topic, queues, failed_broker)

    def prepare(
        self,
        message: Message,
        msg_id: str,
        born_ms: int,
        extra: Mapping[str, str] | None = None,
    ) -> PreparedMessage:
        """The message, checked and ready for any queue of its topic. Raises InvalidMessage.

        `extra` are properties that users may not set.
        """
        checks.check_kind(message)
        checks.check_topic(message.topic)
        checks.check_message(message, self._options.body_bytes_max)
        return prepare(message, self._options, msg_id, born_ms, extra)

    async def deliver(
        self,
        prepared: PreparedMessage,
        message: Message,
        queue: MessageQueue | None,
        deadline: float,
        failed: FailedAttempt | None = None,
    ) -> SendResult:
        """Send a prepared message to the queue given, or to one selected for the message."""

        async def choose(failed_broker: str | None) -> MessageQueue:
            if queue is None:
                return await self.choose_queue(message, failed_broker)
            routes = self.session.routes
            if failed_broker is not None or routes.find_master_addr(queue.broker_name) is None:
                await self._publish_queues(message.topic)  # its address may be new, or unknown
            return queue

        retries = self._options.retries
        if self._options.strict_order and message.sharding_key is not None:
            retries = UNTIL_DEADLINE  # no other queue will do: it waits for its broker
        try:
            return await self.retrying_sender.send(
                prepared, choose, retries, deadline, failed=failed
            )
        except CometError as error:
            error.msg_id = prepared.msg_id
            raise

    async def _publish_queues(self, topic: str) -> list[MessageQueue]:
        return await self.session.routes.publish_queues(topic, self._options.default_topic_queues)

    async def _write_oneway(
        self, prepared: PreparedMessage, message: Message, queue: MessageQueue | SelectQueue | None
    ) -> None:
        if queue is None:
            queue = await self.choose_queue(message, None)
        await self.retrying_sender.send_oneway(prepared, await self.select_queue(message, queue))

    async def _send_unordered(self, message: Message, deadline: float) -> SendResult:
        answer = self.new_answer()
        posted = self.fast_path.post(answer, message, deadline)
        if posted is None:
            return await self.send_slow_path(message, None, deadline)
        target, msg_id, born_ms = posted
        begun = self._now()
        try:
            result = result_of(target, target.addr, msg_id, await answer)
            target.counts.ok += 1
            target.counts.spent_s += self._now() - begun
            return result
        except CometError as error:
            target.counts.failed += 1
            failed = FailedSend(msg_id, born_ms, (error, target.queue))
            return await self.send_after_failure(message, failed, deadline)
