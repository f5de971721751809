"""AsyncLitePullConsumer: the program asks for messages, and says where and when.

Owns the public methods; `lite_pull_engine` puts the consumer together. Invariant: subscribing and
assigning by hand exclude each other.
Java: DefaultLitePullConsumer, DefaultMQPullConsumer
"""

from __future__ import annotations

import os
from math import inf
from typing import TYPE_CHECKING, Self

from cometmq.client.consumer.namespace import Namespace
from cometmq.client.consumer.pull_request import PullRequest, filter_of
from cometmq.client.consumer.subscriptions import selector_of
from cometmq.client.middleware.handler_hooks import HandlerHooks
from cometmq.client.polling.lite_pull_engine import LitePullEngine
from cometmq.client.polling.lite_pull_options import lite_pull_options
from cometmq.client.polling.lite_pull_subscriptions import LitePullSubscriptions
from cometmq.client.producer.message_checks import check_topic
from cometmq.client.session.argument_checks import (
    INT64_MAX,
    check_name,
    check_queue,
    check_wait,
    check_whole,
    checked_offsets,
    checked_queues,
)
from cometmq.client.session.client_session import (
    ClientSession,
    require_not_started,
)
from cometmq.errors import ClientError, NotStarted, RouteNotFound
from cometmq.runtime.loop_clock import clock_of_running_loop

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Unpack

    from cometmq.client.polling.lite_pull_options import LitePullSettings
    from cometmq.model.message import MessageExt
    from cometmq.model.queue import MessageQueue
    from cometmq.model.results import PullResult
    from cometmq.model.selector import MessageSelector

_BLOCK_S_MAX = 30.0
_PULL_MAX = 1024
_POLL_S_MAX = 300.0
"""Longest wait of a poll, seconds: whoever gives more has most often given milliseconds."""


class AsyncLitePullConsumer:
    """A consumer whose program polls: it decides when it takes messages and what is committed.

    `subscribe` shares the queues of topics out among the members of the group; `assign` takes the
    queues given and asks nobody. Messages are pulled ahead, up to `flow` of each queue and
    `cached_max` (10,000) in all; `poll` hands them out, at most `pull_batch_size` (10) at once and
    of one queue, and `async for message in consumer` (or `for`) one by one.

    With `auto_commit` (on) the positions are committed every `auto_commit_s` (5) at the next poll:
    then all that earlier polls gave counts as done, the messages of the last one do not. A stop
    commits them as well, unless the `with` block was left by an error. Delivery is at least once.
    `consume_from`, `consume_timestamp_ms`, `allocate`, `broadcasting` and `offsets_dir` are as for
    PushConsumer. There is no retry topic and there are no dead letters. `middleware` is a list of
    `Middleware`, whose `after_poll` sees what a poll returns.
    """

    def __init__(self, group: str, **settings: Unpack[LitePullSettings]) -> None:
        options = lite_pull_options(group, settings, os.environ)
        self._client_options, self._options, self._lite = options
        self._namespace = Namespace(self._client_options.namespace)
        self._subscriptions = LitePullSubscriptions(self._options.group)
        middleware = self._client_options.middleware
        self._hooks = HandlerHooks(middleware, self._options.group) if middleware else None
        self._engine: LitePullEngine | None = None

    def subscribe(self, topic: str, expression: str | MessageSelector = "*") -> None:
        """Share in the messages of `topic` that the expression takes, before the start.

        The expression is as for PushConsumer. Raises ClientError after `assign` or `start`.
        """
        if self._subscriptions.queues is not None:
            raise ClientError("this consumer has its queues assigned: it cannot subscribe as well")
        if self._engine is not None:
            raise ClientError("subscribe before the consumer is started")
        selector = selector_of(topic, expression)
        check_topic(topic)
        self._subscriptions.subscribe(self._namespace.wrap(topic), selector)

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Take exactly these queues, whoever else reads them; at any time, again and again.

        Raises ClientError after `subscribe`.
        """
        if self._subscriptions.queues is None and self._subscriptions.topics:
            raise ClientError("this consumer has subscribed: queues cannot be assigned as well")
        self._subscriptions.assign(self._queues(queues))
        if self._engine is not None:
            self._engine.rebalance.wake()

    async def start(self) -> None:
        """Join the group and begin to pull what is subscribed or assigned.

        Raises ClientError when the consumer is started already.
        """
        require_not_started(self._engine, "consumer")
        session = ClientSession(self._client_options, clock_of_running_loop())
        engine = None
        try:
            engine = LitePullEngine(session, self._options, self._lite, self._subscriptions)
        finally:
            if engine is None:
                await session.stop()
        self._engine = engine
        is_started = False
        try:
            await engine.start()
            is_started = True
        finally:
            if not is_started:  # cancelled, for instance: leave nothing half running
                await self._leave(is_clean=False)

    async def stop(self) -> None:
        """Commit (if `auto_commit`, everything handed out), and leave the group."""
        await self._leave(is_clean=True)

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop; after an error what was handed out last is not committed."""
        await self._leave(is_clean=not exc or exc[0] is None)

    def __aiter__(self) -> Self:
        """Go over messages, until the consumer is stopped."""
        return self

    async def __anext__(self) -> MessageExt:
        """The next message, whenever it comes."""
        while (engine := self._engine) is not None:
            if found := await self._polled(await engine.poll(60.0, 1)):
                return found[0]
        raise StopAsyncIteration

    async def poll(self, timeout_s: float = 5.0, max_count: int | None = None) -> list[MessageExt]:
        """The next messages of one queue, oldest first; none if none come in time.

        At most `max_count` (default: `pull_batch_size`). `timeout_s` is at most 300, or `inf`.
        Raises ClientError where nothing was subscribed or assigned.
        """
        if type(timeout_s) is not float or not 0.0 <= timeout_s <= _POLL_S_MAX:
            _check_poll(timeout_s)
        count = self._options.pull_batch_size if max_count is None else max_count
        if type(count) is not int or count < 1:
            raise ClientError(f"max_count is {count!r}; it must be a whole number, 1 or more")
        return await self._polled(await self._running().poll(timeout_s, count))

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit that everything handed out is done, or the offsets given; wait for the brokers.

        An offset is the first one that is not done. Raises RemotingError or BrokerError.
        """
        engine = self._running()
        if offsets is not None:
            known = checked_offsets("offsets", offsets)
            offsets = {self._namespace.wrap_queue(queue): at for queue, at in known.items()}
        await engine.commit(offsets)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset of the group in a queue, or None."""
        queue = self._queue(queue)
        engine = self._running()
        await engine.session.routes.subscribe_queues(queue.topic)
        noted = engine.offsets.consumed_offset(queue)
        return await engine.offsets.committed(queue) if noted is None else noted

    async def position(self, queue: MessageQueue) -> int:
        """The offset of the next message that a poll gives of an assigned queue."""
        queue = self._queue(queue)
        return (await self._running().wait_until_assigned(queue)).window.commit_offset

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset of an assigned queue; what was pulled of it is forgotten.

        Raises ClientError for another queue, and for an offset the queue does not have.
        """
        queue = self._queue(queue)
        check_whole("offset", offset, 0, INT64_MAX)
        engine = self._running()
        await engine.wait_until_assigned(queue)
        least, most = await engine.min_offset(queue), await engine.max_offset(queue)
        if not least <= offset <= most:
            raise ClientError(f"{queue} has the offsets {least} to {most}, and not {offset}")
        await engine.seek(queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the oldest message of an assigned queue."""
        queue = self._queue(queue)
        engine = self._running()
        await engine.seek(queue, await engine.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on behind the newest message of an assigned queue."""
        queue = self._queue(queue)
        engine = self._running()
        await engine.seek(queue, await engine.max_offset(queue))

    async def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Hand out and pull nothing of these queues until `resume`."""
        polls = self._running().buffer
        polls.paused |= set(self._queues(queues))
        self._apply_pauses()

    async def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with queues after `pause`."""
        polls = self._running().buffer
        polls.paused -= set(self._queues(queues))
        self._apply_pauses()
        polls.changed.set()

    async def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic, in order. Raises RouteNotFound for an unknown topic."""
        check_name(topic)
        inner = self._namespace.wrap(topic)
        queues = await self._running().session.routes.subscribe_queues(inner)
        if not queues:
            raise RouteNotFound(f"no name server knows the topic {inner}")
        return [self._namespace.unwrap_queue(queue) for queue in queues]

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at `timestamp_ms` (since 1970) or later."""
        queue = self._queue(queue)
        check_whole("timestamp_ms", timestamp_ms, 0, INT64_MAX)
        return await self._running().offset_at(queue, timestamp_ms)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message of a queue that is still there."""
        queue = self._queue(queue)
        return await self._running().min_offset(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of a queue will get."""
        queue = self._queue(queue)
        return await self._running().max_offset(queue)

    async def pull(
        self,
        queue: MessageQueue,
        expression: str | MessageSelector = "*",
        offset: int = 0,
        max_count: int = 32,
        *,
        block_s: float = 0.0,
    ) -> PullResult:
        """Pull one queue once, apart from all that is subscribed, assigned, polled or committed.

        With `block_s` (at most 30) the broker waits so long for a message. The result says where to
        go on, whatever was found. Raises RemotingError or BrokerError.
        """
        engine = self._running()
        queue = self._queue(queue)
        check_whole("offset", offset, 0, INT64_MAX)
        check_whole("max_count", max_count, 1, _PULL_MAX)
        check_wait("block_s", block_s, _BLOCK_S_MAX)
        wanted = filter_of(selector_of(queue.topic, expression))
        await engine.session.routes.subscribe_queues(queue.topic)
        found = await engine.pull_client.pull(
            PullRequest(queue, offset, max_count, wanted, suspend_s=block_s, carries_filter=True)
        )
        return found._replace(messages=self._namespace.unwrap_messages(found.messages))

    @property
    def client_id(self) -> str:
        """The id under which brokers know this member; empty before start."""
        return self._engine.session.client_id if self._engine else ""

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues this consumer pulls now, in order."""
        return self._namespace.unwrap_queues(self._engine.assignment.table) if self._engine else []

    async def _polled(self, messages: list[MessageExt]) -> list[MessageExt]:
        """Messages as users get them, after the hooks of the middleware."""
        messages = self._namespace.unwrap_messages(messages)
        if messages and self._hooks is not None:
            await self._hooks.polled(messages)
        return messages

    def _queue(self, queue: MessageQueue) -> MessageQueue:
        """A queue that a user gave, checked, as brokers know it."""
        check_queue("queue", queue)
        return self._namespace.wrap_queue(queue)

    def _queues(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        return [self._namespace.wrap_queue(one) for one in checked_queues("queues", queues)]

    def _running(self) -> LitePullEngine:
        if self._engine is None:
            raise NotStarted("this consumer is not running: use it inside 'with', or call start()")
        return self._engine

    async def _leave(self, *, is_clean: bool) -> None:
        if self._engine is not None:
            engine, self._engine = self._engine, None
            await engine.stop(is_clean=is_clean)

    def _apply_pauses(self) -> None:
        engine = self._running()
        for queue, assigned in engine.assignment.table.items():
            assigned.is_paused = queue in engine.buffer.paused


def _check_poll(timeout_s: object) -> None:
    if timeout_s == inf:
        return
    check_wait("timeout_s", timeout_s)
    if timeout_s > _POLL_S_MAX:  # type: ignore[operator]
        raise ClientError(
            f"timeout_s is {timeout_s!r}; it is in seconds, {_POLL_S_MAX:g} at most, or inf. "
            f"{timeout_s!r} milliseconds are {timeout_s / 1000:g}"  # type: ignore[operator]
        )
