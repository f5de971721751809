"""Puts a push consumer together: what calls what, and the order of start and stop.

Decides nothing itself. Invariant: stop is start in reverse, and locks are renewed until the last
handler is done.
Java: DefaultMQPushConsumerImpl.start, shutdown
"""

from __future__ import annotations

import asyncio
import logging
import random
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from cometmq.client.admin.group_watch import GroupWatch
from cometmq.client.consumer import work_report
from cometmq.client.consumer.broker_requests import BrokerRequestHandler
from cometmq.client.consumer.consumer_samples import consumer_samples
from cometmq.client.consumer.consumer_statistics import SAMPLE_S, ConsumerStatistics
from cometmq.client.consumer.namespace import Namespace
from cometmq.client.consumer.pull_loop import PullLoop
from cometmq.client.consumer.queue_assignment import QueueAssignment
from cometmq.client.consumer.queue_locks import QueueLockClient
from cometmq.client.consumer.rebalance import Rebalance
from cometmq.client.consumer.repeated_problem_log import ProblemLog
from cometmq.client.consumer.sql_filter_check import check_sql_conditions
from cometmq.client.consumer.work_report import WorkReport
from cometmq.client.failures.failed_message_sender import FailedMessageSender
from cometmq.client.failures.failure_actions import FailureActions
from cometmq.client.handling.by_key import KeyStrategy
from cometmq.client.handling.concurrent import ConcurrentStrategy
from cometmq.client.handling.consume_strategy import StrategyContext
from cometmq.client.handling.orderly import OrderlyStrategy
from cometmq.client.handling.process_pool import ProcessPool
from cometmq.client.handling.worker_pools import TaskPool, ThreadPool
from cometmq.client.middleware.handler_hooks import HandlerHooks
from cometmq.client.middleware.trace import Trace
from cometmq.client.offsets.local_offset_store import LocalOffsetStore
from cometmq.client.offsets.offset_store import OffsetStore
from cometmq.client.parking.key_drains import KeyDrains
from cometmq.client.parking.parking_log import ParkingLogs
from cometmq.client.producer.producer_options import ProducerOptions
from cometmq.client.producer.queue_selector import QueueSelector
from cometmq.client.producer.retrying_sender import RetryingSender
from cometmq.errors import CometError
from cometmq.model.consumer_stats import ConsumerStats, QueueStats
from cometmq.model.group import INNER_PRODUCER_GROUP
from cometmq.model.subscription import ConsumeFromWhere, ConsumerData, MessageModel
from cometmq.rules.failures.retry_policy import queue_block_s_max, reconsume_times_max
from cometmq.runtime.background import BackgroundTasks
from cometmq.runtime.system_clock_and_files import SystemFiles, expand_user_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.client.consumer.consumer_options import ConsumerOptions
    from cometmq.client.consumer.subscriptions import Subscriptions
    from cometmq.client.handling.consume_strategy import ConsumeStrategy, StrategyFactory
    from cometmq.client.session.client_session import ClientSession
    from cometmq.metrics.registry import Sample
    from cometmq.model.queue import MessageQueue

log = logging.getLogger(__name__)

_LONG_BLOCK_S = 60.0


class PushEngine:
    """One running push consumer. Belongs to the loop it was made on."""

    def __init__(
        self, session: ClientSession, options: ConsumerOptions, subscriptions: Subscriptions
    ) -> None:
        self._session = session
        self._processes: ProcessPool | None = None
        if options.workers == "process":
            handlers = subscriptions.sync_handlers
            self._processes = ProcessPool(options.consume_threads, handlers)
            subscriptions = copy(subscriptions)  # the consumer may be started again with its own
            subscriptions.replace_handlers(self._processes.handler_of)
        self._trace: Trace | None = None
        self._stats = ConsumerStatistics(session.clock)
        middleware = [*session.options.middleware, self._stats]
        if session.options.trace:
            self._trace = Trace(session, options.group, "CONSUME", asyncio.get_running_loop())
            middleware.append(self._trace)
        self._hooks = HandlerHooks(middleware, options.group)
        subscriptions = self._hooks.wrap_subscriptions(subscriptions)
        namespace = Namespace(session.options.namespace)
        if namespace.is_set:
            subscriptions = namespace.wrap_subscriptions(subscriptions)
        self._options = options
        self._subscriptions = subscriptions
        subscriptions.freeze(session.clock.now_ms())
        self._rounds = BackgroundTasks(f"{session.client_id} rebalance")
        self._threads = ThreadPool(options.consume_threads, f"cometmq-{options.group}")
        self._tasks = TaskPool(options.consume_threads)
        self._offsets = _offsets(session, options)
        self._locks = _locks(session, options)
        problems = ProblemLog(options.group)
        self._assignment = QueueAssignment(
            options, self._offsets, self._locks, session.background, problems
        )
        self._rebalance = Rebalance(session, options, subscriptions, self._assignment, problems)
        self._lost: set[str] = set()
        self._delivery = RetryingSender(session, ProducerOptions(group=INNER_PRODUCER_GROUP))
        self._failed_sender = self._make_failed_sender(self._delivery)
        self._strategy = strategy_of(options)(self._strategy_context())
        self._work_report = self._make_work_report()
        self._pulls = self._make_pull_loop()
        self._assignment.connect(self._strategy, self._pulls)
        self._broker_requests = BrokerRequestHandler(
            session,
            options,
            subscriptions,
            self._rebalance,
            self._assignment,
            self._stats,
            self._strategy.running_info,
            self._work_report.work,
            lambda: self._threads.count,
        )
        self.on_stop_request: Callable[[], object] = lambda: None
        """Called when a failure policy stops the consumer."""

    @property
    def client_id(self) -> str:
        """The id under which brokers know this member."""
        return self._session.client_id

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues in work, in order."""
        return sorted(self._assignment.table)

    @property
    def strategy(self) -> ConsumeStrategy:
        """The strategy of handling messages."""
        return self._strategy

    def metric_samples(self) -> list[Sample]:
        """What `ClientMetrics` shows of the consumer."""
        return consumer_samples(self.client_id, self._options.group, self._stats, self.stats())

    def stats(self) -> ConsumerStats:
        """Rates by topic, and what each queue holds and waits for."""
        return ConsumerStats(
            topics=self._stats.table(),
            queues=tuple(
                QueueStats(
                    queue=queue,
                    cached=assigned.window.count,
                    cached_bytes=assigned.window.size_bytes,
                    in_flight=assigned.in_flight,
                    why_not_pulled=self._pulls.why_not_pulled(assigned),
                )
                for queue, assigned in sorted(self._assignment.table.items())
            ),
            is_paused=self._assignment.is_paused,
        )

    def resize(self, threads: int) -> None:
        """Run up to so many handlers at once from now on."""
        self._options = replace(self._options, consume_threads=threads)
        self._threads.resize(threads)
        self._tasks.resize(threads)
        self._strategy.resize(threads)
        self._rebalance.resize(threads)

    def watch(self) -> GroupWatch:
        """What looks at the whole group."""
        return GroupWatch(self._session.options, self._session.clock, self._options.group)

    async def start(self) -> None:
        """Join the group; the first round of rebalance follows at once."""
        session, options = self._session, self._options
        if self._processes is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._processes.start)
        session.register_consumer(self._consumer_data)
        session.connection_lost_listeners.append(self._on_lost)
        session.connection_made_listeners.append(self._on_connected)
        self._broker_requests.register()
        self._log_block_time()
        for topic in self._subscriptions.topics:
            try:
                await session.routes.subscribe_queues(topic)
            except CometError as error:
                log.warning("the route of %s is not known yet: %s", topic, error)
        await check_sql_conditions(session, options.group, self._subscriptions.sql_subscriptions)
        await session.heartbeat()
        session.start()
        session.background.every(SAMPLE_S, self._stats.sample, name="statistics")
        session.background.every(options.persist_s, self._persist, name="offsets")
        sample = self._work_report.sample_keys
        session.background.every(work_report.SAMPLE_S, sample, name="keys")
        if self._locks is not None:
            session.background.every(options.lock_renew_s, self._renew, name="locks")
        self._rebalance.wake()
        self._rounds.every(1.0, self._rebalance.run, name="rounds", first_s=0.0)

    def pause(self, *, is_paused: bool) -> None:
        """Stop pulling, or pull again."""
        self._assignment.pause(is_paused=is_paused)

    async def stop(self) -> None:
        """Finish, commit, leave; also when the caller is cancelled meanwhile, then at once."""
        try:
            await self._rounds.stop()
            await self._assignment.stop()
        finally:
            await self.leave_at_once()

    async def leave_at_once(self) -> None:
        """Leave without finishing or committing anything; what is in hand comes again."""
        self._assignment.abandon()
        self._strategy.close()
        self._tasks.close()
        self._threads.close()
        try:
            await self._rounds.stop()
            if self._processes is not None:
                await asyncio.get_running_loop().run_in_executor(None, self._processes.close)
            if self._trace is not None:
                await self._trace.flush()
        finally:
            await self._session.stop()

    def _make_failed_sender(self, delivery: RetryingSender) -> FailedMessageSender:
        options, session = self._options, self._session
        times_max = reconsume_times_max(options.max_attempts, orderly=options.is_locking)
        return FailedMessageSender(
            session, delivery, QueueSelector(random.getrandbits(16)), options.group, times_max
        )

    def _make_pull_loop(self) -> PullLoop:
        return PullLoop(
            self._session,
            self._options,
            self._subscriptions,
            self._offsets,
            self._strategy,
            self._assignment,
            self._stats,
        )

    def _make_work_report(self) -> WorkReport:
        return WorkReport(
            self._options,
            self._stats,
            self._assignment,
            self._strategy,
            (self._threads, self._tasks),
            self._failed_sender,
            self._locks,
            self._lost,
        )

    def _strategy_context(self) -> StrategyContext:
        failed_sender = self._failed_sender
        failure_actions = FailureActions(
            self._options.on_failure,
            failed_sender,
            self._threads,
            self._session.clock,
            self._request_stop,
        )
        return StrategyContext(
            options=self._options,
            subscriptions=self._subscriptions,
            threads=self._threads,
            tasks=self._tasks,
            failed_sender=failed_sender,
            failure_actions=failure_actions,
            offsets=self._offsets,
            background=self._session.background,
            report=self._hooks.report,
            clock=self._session.clock,
            restart_after_error=self._assignment.restart_after_error,
            restart_queue=self._assignment.restart_queue,
            locks=self._locks,
            files=SystemFiles(),
            namesrv=self._session.options.namesrv,
            stop_consumer=self._request_stop,
            parking_logs=ParkingLogs(self._session, self._options.group, self._delivery),
            key_drains=KeyDrains(
                self._session,
                self._delivery,
                failed_sender,
                self._subscriptions,
                self._threads,
                self._hooks.report,
                self._session.background,
            ),
        )

    def _request_stop(self, reason: str) -> None:
        log.error("the consumer of %s stops: %s", self._options.group, reason)
        self.on_stop_request()

    def _consumer_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self._options.group,
            message_model=(
                MessageModel.BROADCASTING if self._options.broadcasting else MessageModel.CLUSTERING
            ),
            consume_from_where=ConsumeFromWhere(self._options.consume_from.value),
            subscriptions=self._subscriptions.data(),
        )

    def _log_block_time(self) -> None:
        """Log how long one bad message may block a queue; more than a minute is a warning."""
        options = self._options
        if not options.orderly:
            return
        block_s = queue_block_s_max(options.max_attempts, options.suspend_ms)
        known = "for ever (max_attempts is not set)" if block_s is None else f"{block_s:g} s"
        level = logging.WARNING if block_s is None or block_s > _LONG_BLOCK_S else logging.INFO
        log.log(
            level,
            "group %s: a message that always fails may block its queue %s, the handler's own time "
            "apart (max_attempts, suspend_ms)",
            options.group,
            known,
        )

    def _persist(self) -> None:
        table = self._assignment.table
        self._offsets.persist(
            queue for queue, assigned in table.items() if not assigned.has_lost_lock
        )

    async def _renew(self) -> None:
        if self._locks is not None:
            await self._locks.renew(self._assignment.locked_queues)

    def _on_lost(self, addr: str) -> None:
        """Have the queues whose locks were lost with the connection locked again, idle ones too."""
        self._lost.add(addr)
        if self._locks is not None:
            now = asyncio.get_running_loop().time()
            for assigned in self._assignment.locked_queues:
                if not assigned.holds_lock(now):
                    assigned.lose_lock()

    def _on_connected(self, addr: str) -> None:
        if addr in self._lost:
            self._lost.discard(addr)
            self._rebalance.rejoin(self._options.rejoin_grace_s)


def _offsets(session: ClientSession, options: ConsumerOptions) -> OffsetStore:
    if options.broadcasting:
        folder = expand_user_path("offsets_dir", options.offsets_dir)
        return LocalOffsetStore(session, options, folder, SystemFiles())
    return OffsetStore(session, options.group, options.consume_from, options.consume_timestamp_ms)


def _locks(session: ClientSession, options: ConsumerOptions) -> QueueLockClient | None:
    """Locks, where the queues of an ordered group are shared out."""
    if not options.is_locking or options.broadcasting:
        return None
    return QueueLockClient(session, options.group, options.lock_valid_s)


def strategy_of(options: ConsumerOptions) -> StrategyFactory:
    """The strategy that the options ask for."""
    if options.is_by_key:
        return KeyStrategy
    return OrderlyStrategy if options.orderly else ConcurrentStrategy
