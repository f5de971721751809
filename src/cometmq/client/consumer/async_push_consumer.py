"""AsyncPushConsumer: messages come to a handler, shared among the members of a group.

Owns the public methods and the order of start and stop; `push_engine` puts the consumer together.
Invariant: on a clean stop everything in flight is finished and committed before the group learns
that this member has left.
Java: DefaultMQPushConsumer
"""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from cometmq.client.consumer.namespace import Namespace
from cometmq.client.consumer.push_engine import PushEngine
from cometmq.client.consumer.push_options import push_options
from cometmq.client.consumer.stop_signals import stop_signals
from cometmq.client.consumer.subscriptions import Subscriptions, selector_of
from cometmq.client.handling.handler_signature import check_handler
from cometmq.client.producer.message_checks import check_topic
from cometmq.client.session.argument_checks import check_wait
from cometmq.client.session.client_options import check_range, check_seconds
from cometmq.client.session.client_session import ClientSession, require_not_started
from cometmq.errors import ClientError
from cometmq.model.consumer_stats import ConsumerStats
from cometmq.rules.failures.failure_policy import policies
from cometmq.runtime.loop_clock import clock_of_running_loop

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from cometmq.client.consumer.push_options import PushSettings
    from cometmq.client.handling.handler_call import AnyHandler, Handler
    from cometmq.metrics.registry import Sample
    from cometmq.model.queue import MessageQueue
    from cometmq.model.results import BlockedQueue
    from cometmq.model.selector import MessageSelector
    from cometmq.rules.diagnosis.bottleneck import Bottleneck
    from cometmq.rules.failures.failure_policy import FailurePolicy, Policies


log = logging.getLogger(__name__)


class AsyncPushConsumer:
    """A member of a consumer group: each message goes to one member, or to all of them.

    A handler is a plain function (run in threads) or an async one (run as a task). It gets a list
    of 1 to `batch_size` messages of one queue, oldest first. Returning means they are done, raising
    means they shall come again later; RocketMQ's status values are understood as well. Delivery is
    at least once: after a crash or a hand-over messages may come again.

    `orderly`: each queue is handled in its order, one batch at a time, under a lock at the broker
    that is renewed every `lock_renew_s` and counts as ours for `lock_valid_s` after that (this must
    be less than the brokers' queueLockExpireMs, 60 s by default); a failure
    stops its queue for `suspend_ms` (10 to 30,000), and a batch that fails is handled one message
    at a time. With `auto_commit` off, what a handler has done counts once one of its calls returns
    ConsumeStatus.COMMIT, and comes again from there after ROLLBACK. Otherwise up to
    `consume_threads` handlers run at once and a failed message comes back by way of the group's
    retry topic.
    `broadcasting`: every member gets every message, with offsets in a file of its own under
    `offsets_dir` (~/.rocketmq_offsets/<clientId>/<group>/offsets.json), and what fails is skipped;
    give each member of one host an `instance_name`, the same after a restart.
    `max_attempts` is how often a message may be handled before it becomes a dead letter of the
    group; by default 17 (the first and 16 more), when orderly for ever.
    `consume_from` says where a group without committed offset begins: ConsumeFrom, or its name as
    "first" (TIMESTAMP: at `consume_timestamp_ms`). `flow` bounds what is held of each queue.
    What a handler holds for `consume_timeout_s` (15 min) is sent back, unless orderly.
    `allocate` shares the queues out: "AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", or a function (see
    `cometmq.rules.allocate`). `pull_interval_ms` is a pause after each pull that found
    something: it makes larger batches of a busy topic for less work in all. Offsets are committed
    every `persist_s` and at stop.

    `order`: "none" (concurrent), "queue" (the same as `orderly`), or "key": under the queue's lock,
    each key is a lane of its own. `key` is a property's name or a function of a message (None: the
    sharding key); `without_key` says what a message without one is: a "barrier" in its queue, one
    of one "lane", or "free". What is done above the committed offset is noted in `state_dir`
    (~/.cometmq). `on_failure` says what becomes of failures (see `OnFailure`), `breaker` when they
    count as an outage (BreakerLimits; by key always, else where it is given).
    `workers="process"` runs plain handlers in `consume_threads` processes; they must be importable,
    and a script needs `if __name__ == "__main__":`. `middleware` is a list of `Middleware`, which
    are called before and after each call of a handler.
    """

    def __init__(self, group: str, **settings: Unpack[PushSettings]) -> None:
        self._client_options, options = push_options(group, settings, os.environ)
        self._namespace = Namespace(self._client_options.namespace)
        self._options = options = self._namespace.wrap_options(options)
        self._subscriptions = Subscriptions(options.group, broadcasting=options.broadcasting)
        self._engine: PushEngine | None = None
        self._stopped: asyncio.Event | None = None
        self._stopping: asyncio.Task[None] | None = None

    def subscribe(
        self,
        topic: str,
        expression: str | MessageSelector = "*",
        handler: Handler | None = None,
        *,
        on_failure: FailurePolicy | Policies | None = None,
    ) -> None:
        """Let `handler` have the messages of `topic` that the expression takes.

        The expression is "*" for all, tags joined by "||" as in "PAID || SHIPPED", or a condition
        on properties: MessageSelector.by_sql("price > 10"). All members of a group must subscribe
        to the same. Raises ClientError without a handler that takes a list of messages, for another
        expression and once the consumer has started, InvalidMessage for a bad topic.

        `on_failure` says what becomes of this topic's messages that fail: a policy, or one for each
        type of exception (see `OnFailure`); None means the consumer's own `on_failure`.
        """
        if handler is None:
            raise ClientError(
                f"subscribe to {topic}: the handler is missing; it is the third argument, "
                f"as in subscribe({topic!r}, '*', handler)"
            )
        check_handler(topic, handler, in_processes=self._options.workers == "process")
        selector = selector_of(topic, expression)
        if self._engine is not None:
            raise ClientError("subscribe before the consumer is started")
        check_topic(topic)
        checked = policies(on_failure, may_park=self._options.is_by_key)
        known = self._namespace.wrap_policies(checked)
        self._subscriptions.add(self._namespace.wrap(topic), selector, handler, known)

    def handler(
        self,
        topic: str,
        expression: str | MessageSelector = "*",
        *,
        on_failure: FailurePolicy | Policies | None = None,
    ) -> Callable[[AnyHandler], AnyHandler]:
        """Subscribe the function below it, as in `@consumer.handler("orders", "PAID")`.

        The function stays as it is; all else is as with `subscribe`.
        """

        def subscribe(handler: AnyHandler) -> AnyHandler:
            self.subscribe(topic, expression, handler, on_failure=on_failure)
            return handler

        return subscribe

    async def start(self) -> None:
        """Join the group and begin to receive. Waits for nothing: brokers may come later.

        Asks for the route of each topic; the log says so where no name server answers. Raises
        ClientError when there is no subscription, or the consumer is started already.
        """
        require_not_started(self._engine, "consumer")
        session = ClientSession(self._client_options, clock_of_running_loop())
        engine = None
        try:
            engine = PushEngine(session, self._options, self._subscriptions)
        finally:
            if engine is None:
                await session.stop()
        engine.on_stop_request = self._stop_soon
        self._stopped, self._stopping = asyncio.Event(), None
        self._engine, is_started = engine, False
        try:
            await engine.start()
            is_started = True
        finally:
            if not is_started:  # cancelled, for instance: leave nothing half running
                await self.stop()

    async def stop(self) -> None:
        """Take no new messages, finish those in flight, commit, leave the group.

        Waits at most `stop_timeout_s` for handlers; what they have not finished comes again.
        """
        stopping = self._stopping
        if stopping is not None and stopping is not asyncio.current_task():
            await asyncio.wait((stopping,))  # one that was asked for is under way: it is the same
            if not stopping.cancelled():
                stopping.result()
        if self._engine is not None:
            engine, self._engine = self._engine, None
            stopped = self._stopped
            was_given_up = stopping is not None and stopping.cancelled()  # before it began
            try:
                await (engine.leave_at_once() if was_given_up else engine.stop())
            finally:
                if stopped is not None:
                    stopped.set()

    def _stop_soon(self) -> None:
        """Stop in a task of its own: whoever asks for it may be what a stop waits for."""
        if self._stopping is None or self._stopping.done():
            self._stopping = asyncio.get_running_loop().create_task(self.stop(), name="stop")

    def stop_soon(self, reason: str) -> None:
        """Begin to stop and return at once; `wait` tells when it is done. The reason is logged."""
        if self._engine is not None:
            log.warning("the consumer of %s stops: %s", self._options.group, reason)
            self._stop_soon()

    async def run(self) -> None:
        """Start, handle messages until SIGTERM or SIGINT, and stop: a whole program that consumes.

        To be called on the main thread, like `wait`, which says what signals do. Raises ClientError
        when there is no subscription.
        """
        async with self:
            await self.wait()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the consumer is stopped, or `timeout_s` is over; whether it is stopped.

        On the main thread a SIGTERM or SIGINT (Ctrl-C) stops the consumer as `stop` does: it
        finishes what is in hand, commits and leaves, and then this returns True. A second Ctrl-C
        gives that up, a second SIGTERM ends the process. A handler for one of the signals that the
        program has installed itself stays in charge; it may stop the consumer.
        """
        if timeout_s is not None:
            check_wait("timeout_s", timeout_s)
        if self._stopped is None:
            return True
        loop = asyncio.get_running_loop()
        with stop_signals(lambda name: loop.call_soon_threadsafe(self.stop_soon, name)):
            return await self._wait(self._stopped, timeout_s)

    async def _wait(self, stopped: asyncio.Event, timeout_s: float | None) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await stopped.wait()
        except TimeoutError:
            if self._stopping is None:
                return False
            await stopped.wait()  # not long: a stop has limits of its own
        except asyncio.CancelledError:
            if self._stopping is not None:
                self._stopping.cancel()  # a second Ctrl-C: leave at once
            raise
        return True

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop."""
        await self.stop()

    def pause(self) -> None:
        """Take no further messages from brokers until `resume`; those here are still handled."""
        if self._engine is not None:
            self._engine.pause(is_paused=True)

    def resume(self) -> None:
        """Take messages again after `pause`."""
        if self._engine is not None:
            self._engine.pause(is_paused=False)

    def resize(self, threads: int) -> None:
        """Let up to so many handlers run at once from now on, 1 to 1000, instead of before.

        With fewer, the handlers that run are not disturbed: their threads end after them. Before
        the start it sets `consume_threads`. Raises ClientError for a consumer whose handlers run in
        processes, SettingsError for another number.
        """
        check_range("threads", threads, 1, 1000)
        if self._options.workers == "process":
            raise ClientError(
                "the number of worker processes is fixed while they run: stop this consumer and "
                f"make one with consume_threads={threads}"
            )
        self._options = replace(self._options, consume_threads=threads)
        if self._engine is not None:
            self._engine.resize(threads)

    def stats(self) -> ConsumerStats:
        """Rates by topic, what each queue holds, and why it is not pulled; empty before start."""
        if self._engine is None:
            return ConsumerStats({}, (), is_paused=False)
        found = self._engine.stats()
        unwrap = self._namespace.unwrap_queue
        queues = tuple(one._replace(queue=unwrap(one.queue)) for one in found.queues)
        return found._replace(queues=queues)

    def metric_samples(self) -> list[Sample]:
        """What `ClientMetrics` shows of the consumer: counts since the start, and how it is now."""
        return self._engine.metric_samples() if self._engine is not None else []

    async def why(self, seconds: float = 5.0) -> Bottleneck:
        """Why the whole group is not faster, seen over so many seconds, and what would help.

        Its brokers and members are asked twice, this one among them. Raises ClientError before the
        start, RemotingError where no name server answers.
        """
        check_seconds("seconds", seconds)
        if self._engine is None:
            raise ClientError("why is asked of a consumer that was started")
        return await self._engine.watch().look(seconds)

    @property
    def client_id(self) -> str:
        """The id under which brokers know this member; empty before start."""
        return self._engine.client_id if self._engine else ""

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues this member works on now, retry queues included, in order."""
        return self._namespace.unwrap_queues(self._engine.assigned) if self._engine else []

    @property
    def blocked(self) -> list[BlockedQueue]:
        """Orderly queues that are blocked since their first message keeps failing."""
        found = self._engine.strategy.blocked_queues() if self._engine else []
        return [one._replace(queue=self._namespace.unwrap_queue(one.queue)) for one in found]

    @property
    def overlaps(self) -> int:
        """Orderly messages whose results were discarded, as the lock had run out meanwhile.

        Another member may have had the same messages; 0 unless this process was suspended, or cut
        off from the broker, for longer than `lock_valid_s`.
        """
        return self._engine.strategy.overlap_count if self._engine else 0
