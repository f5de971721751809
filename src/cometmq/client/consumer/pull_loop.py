"""Pulls each queue in a loop, into its window, as long as that has room.

Owns the pauses and what follows each response; knows nothing of handlers and of who assigned the
queue. Invariant: one pull per queue is under way, and the window never holds more than its
limits and one usual response.
Java: DefaultMQPushConsumerImpl.pullMessage, PullAPIWrapper
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from cometmq.client.consumer.consumer_options import PULL_COUNT
from cometmq.client.consumer.pull_request import PullClient, PullRequest
from cometmq.errors import BrokerError, CometError, RemotingError
from cometmq.model.results import PullResult, PullStatus
from cometmq.model.route import MASTER_ID
from cometmq.rules.failures.retry_policy import backoff_s
from cometmq.rules.queues.flow_control import full_reason, limit_reached
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.consumer.consumer_options import ConsumerOptions
    from cometmq.client.consumer.consumer_statistics import ConsumerStatistics
    from cometmq.client.consumer.queue_assignment import QueueAssignment
    from cometmq.client.consumer.subscriptions import Subscriptions
    from cometmq.client.handling.consume_strategy import ConsumeStrategy
    from cometmq.client.offsets.offset_store import OffsetStore
    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.message import MessageExt
    from cometmq.rules.queues.flow_control import FlowLimits

log = logging.getLogger(__name__)

_LOGGED_AFTER_S = 1.0
"""Flow control that lasts longer is logged."""
_FULL_PAUSE_S = 0.05
_FLOW_CONTROL_PAUSE_S = 0.02
_ERROR_PAUSE_FIRST_S, _ERROR_PAUSE_MOST_S = 0.1, 1.0


class PullLoop:
    """Pulls for one consumer. One loop owns it."""

    def __init__(
        self,
        session: ClientSession,
        options: ConsumerOptions,
        subscriptions: Subscriptions,
        offsets: OffsetStore,
        strategy: ConsumeStrategy,
        assignment: QueueAssignment,
        stats: ConsumerStatistics,
    ) -> None:
        self._session = session
        self._options = options
        self._subscriptions = subscriptions
        self._offsets = offsets
        self._strategy = strategy
        self._assignment = assignment
        self._stats = stats
        self._pull_client = PullClient(session, options.group, options.inflated_bytes_max)

    def start_queue(self, assigned: AssignedQueue) -> None:
        """Pull a queue until it is dropped."""
        work, name = self._run(assigned), f"pull {assigned.queue}"
        assigned.pull_task = asyncio.get_running_loop().create_task(work, name=name)

    async def _run(self, assigned: AssignedQueue) -> None:
        failures, pause_s = 0, self._options.pull_interval_ms / 1000
        while not assigned.is_dropped:
            if assigned.is_paused or self._is_full(assigned):
                await self._wait_for_room(assigned)
                continue
            try:
                result = await self._pull(assigned)
            except CometError as error:
                failures += 1
                await self._after_error(assigned, error, failures)
                continue
            failures = 0
            self._take(assigned, result)
            if pause_s and result.status is PullStatus.FOUND:
                await asyncio.sleep(pause_s)

    async def _wait_for_room(self, assigned: AssignedQueue) -> None:
        """Wait while a queue is paused or full; what is full for longer is logged, with its end."""
        clock, reason = asyncio.get_running_loop().time, ""
        began = clock()
        while not assigned.is_dropped and (assigned.is_paused or self._is_full(assigned)):
            if not reason and not assigned.is_paused and clock() - began >= _LOGGED_AFTER_S:
                reason = self.why_not_pulled(assigned)
                log.info("flow control: %s is not pulled, %s", assigned.queue, reason)
            await self._pause(assigned)
        if reason and not assigned.is_dropped:
            log.info("%s is pulled again after %.1f s", assigned.queue, clock() - began)

    def why_not_pulled(self, assigned: AssignedQueue) -> str:
        """Why a queue is not pulled now, in words; empty while it is."""
        if assigned.is_paused:
            return "the consumer is paused"
        window, limits = assigned.window, self._limits_of(assigned)
        return full_reason(
            limits,
            window.count,
            window.size_bytes,
            assigned.span,
            orderly=self._options.orderly,
            ahead=self._ahead(assigned, limits),
        )

    def _limits_of(self, assigned: AssignedQueue) -> FlowLimits:
        limits = self._options.flow
        if limits.is_shared:
            limits = limits.of_one(self._assignment.queue_count(assigned.queue.topic))
        return limits

    def _ahead(self, assigned: AssignedQueue, limits: FlowLimits) -> int:
        """How many messages more than a usual pull the next one brings, as far as is known."""
        count = self._options.large_pull_count(limits.count) if assigned.gives_large_pulls else 0
        return count - PULL_COUNT if count else 0

    def _is_full(self, assigned: AssignedQueue) -> bool:
        limits = self._limits_of(assigned)
        return bool(self._limit_reached(assigned, limits, self._ahead(assigned, limits)))

    def _limit_reached(self, assigned: AssignedQueue, limits: FlowLimits, ahead: int) -> str:
        """The limit that leaves no room for a pull that brings `ahead` more than a usual one."""
        window = assigned.window
        return limit_reached(
            limits,
            window.count + ahead,
            window.size_bytes,
            assigned.span + ahead,
            orderly=self._options.orderly,
        )

    async def _pause(self, assigned: AssignedQueue) -> None:
        """Wait a little, or until there is room; note which limit was the cause.

        A consumer that is paused has its own word. Measured with a quick handler, where a window
        was empty long before the pause was over.
        """
        limits, clock = self._limits_of(assigned), asyncio.get_running_loop().time
        ahead, began = self._ahead(assigned, limits), clock()
        limit = "" if assigned.is_paused else self._limit_reached(assigned, limits, ahead)
        if limit == "count":
            await assigned.wait_for_room((limits.count - ahead) * 3 // 4, _FULL_PAUSE_S)
        else:
            await asyncio.sleep(_FULL_PAUSE_S)
        if limit:
            assigned.limited_s[limit] = assigned.limited_s.get(limit, 0.0) + clock() - began

    def _take(self, assigned: AssignedQueue, result: PullResult) -> None:
        if assigned.is_dropped:
            return
        if result.status is PullStatus.OFFSET_ILLEGAL:
            _log_moved(assigned, result)
            self._assignment.restart_at(assigned, result.next_offset)
            return
        assigned.broker_id = result.suggested_broker_id
        if result.has_unreadable:
            assigned.has_unreadable = True
            _log_unreadable(assigned, result.messages)
        if len(result.messages) > PULL_COUNT:
            assigned.gives_large_pulls = True
        accepted = assigned.window.put(result.messages, result.next_offset)
        if accepted:
            self._strategy.add_messages(assigned, accepted)
        elif not assigned.window.count and assigned.committed_offset is None:
            self._offsets.remember(assigned.queue, assigned.window.commit_offset)

    async def _pull(self, assigned: AssignedQueue) -> PullResult:
        loop = asyncio.get_running_loop()
        began = loop.time()
        result = await self._pull_client.pull(self._pull_request(assigned))
        assigned.pulled_at = loop.time()
        if result.messages:
            topic, spent_s = assigned.queue.topic, assigned.pulled_at - began
            self._stats.pulled(topic, len(result.messages), spent_s)
        return result

    def _pull_request(self, assigned: AssignedQueue) -> PullRequest:
        queue, options = assigned.queue, self._options
        commit = self._offsets.remembered_offset(queue)
        count, limits = options.pull_batch_size or PULL_COUNT, self._limits_of(assigned)
        large = options.large_pull_count(limits.count)
        if large and self._limit_reached(assigned, limits, large - PULL_COUNT):
            large = 0
        may_commit = assigned.broker_id == MASTER_ID and not assigned.has_lost_lock
        return PullRequest(
            queue,
            assigned.window.next_offset,
            count,
            self._subscriptions.filter_of(queue.topic),
            assigned.broker_id,
            options.poll_suspend_s,
            commit if may_commit and not options.broadcasting else None,
            max_bytes=options.pull_batch_bytes,
            is_large=large > 0 or count > PULL_COUNT,
            large_count=large or None,
        )

    async def _after_error(self, assigned: AssignedQueue, error: CometError, failures: int) -> None:
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            await asyncio.sleep(_FLOW_CONTROL_PAUSE_S)
            return
        # a broker that is away is reported by the rounds of rebalance, once for all its queues
        is_news = failures == 5 and not isinstance(error, RemotingError)
        level = logging.WARNING if is_news else logging.DEBUG
        log.log(level, "pulling %s fails and will be tried again: %s", assigned.queue, error)
        if error.stale_route:
            self._session.routes.mark_stale(assigned.queue.topic)
        await asyncio.sleep(backoff_s(failures, _ERROR_PAUSE_FIRST_S, _ERROR_PAUSE_MOST_S))


def _log_moved(assigned: AssignedQueue, result: PullResult) -> None:
    """Say that the broker has a queue go on elsewhere; also by a reset, which is no trouble."""
    asked, first, end = assigned.window.next_offset, result.min_offset, result.max_offset
    if first <= asked <= end:
        log.info(
            "the broker moves the group in %s from %d to %d, as after a reset",
            assigned.queue,
            asked,
            result.next_offset,
        )
        return
    log.warning(
        "the offset %d of %s is not in the queue (%d to %d): going on at %d",
        asked,
        assigned.queue,
        first,
        end,
        result.next_offset,
    )


def _log_unreadable(assigned: AssignedQueue, messages: list[MessageExt]) -> None:
    found = [message for message in messages if message.unreadable]
    if found:
        log.warning(
            "%d message(s) of %s cannot be read, the first is %s: %s",
            len(found),
            assigned.queue,
            found[0].msg_id,
            found[0].unreadable,
        )
