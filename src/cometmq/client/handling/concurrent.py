"""Concurrent handling: messages of a queue go to many handlers at once, in no order.

Owns batching, sending failed messages back to the broker, and the retry in place when no broker
takes them; knows nothing of pulls and rebalance. Invariant: a message leaves the window only when
its handler is done with it or a broker has taken it back, so a crash repeats but never loses.
Java: ConsumeMessageConcurrentlyService
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from cometmq.client.failures.circuit_breakers import CircuitBreakers, key_of
from cometmq.client.handling.call_run import CallRun
from cometmq.client.handling.call_workers import TaskWorkers, ThreadWorkers
from cometmq.client.handling.expired_messages import SEARCHES, ExpiredMessages
from cometmq.client.handling.handler_call import DONE, readable_runs
from cometmq.model.message import MessageExt
from cometmq.model.topic import is_retry_topic
from cometmq.rules.failures.failure_policy import FailureAction, decide
from cometmq.rules.failures.retry_policy import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.handling.call_run import EndedCalls
    from cometmq.client.handling.call_workers import RunningCall
    from cometmq.client.handling.consume_strategy import StrategyContext
    from cometmq.client.handling.handler_call import HandlerOutcome
    from cometmq.model.results import BlockedQueue
    from cometmq.rules.failures.circuit_breaker import CircuitBreaker

    HeldMessages = defaultdict[str, deque[tuple[AssignedQueue, list[MessageExt]]]]

log = logging.getLogger(__name__)


class ConcurrentStrategy:
    """Runs handlers for one concurrent consumer. One loop owns it."""

    overlap_count = 0

    def __init__(self, context: StrategyContext) -> None:
        options = context.options
        self._options = options
        self._subscriptions = context.subscriptions
        self._failed_sender = context.failed_sender
        self._failure_actions = context.failure_actions
        self._offsets = context.offsets
        self._background = context.background
        self._restart_after_error = context.restart_after_error
        self._report = context.report
        self._clock = asyncio.get_running_loop().time
        self._threads = ThreadWorkers(context.threads, self._end_calls)
        self._tasks = TaskWorkers(context.tasks, self._end_calls)
        limits = None if options.broadcasting else options.breaker
        self._breakers = CircuitBreakers(limits) if limits is not None else None
        # held while their topic has an outage; those that failed are tried after the others
        self._held: HeldMessages = defaultdict(deque)
        self._held_failed: HeldMessages = defaultdict(deque)
        if not options.broadcasting:
            expired = ExpiredMessages(
                self._running_calls,
                options.consume_timeout_s,
                context.failed_sender,
                self._remember_offset,
                self._clock,
            )
            every_s = options.consume_timeout_s / SEARCHES
            context.background.every(every_s, expired.send_back, name="expired messages")

    def start_queue(self, assigned: AssignedQueue) -> None:
        """Nothing is needed for a new queue: its messages start work by themselves."""

    def add_messages(self, assigned: AssignedQueue, messages: list[MessageExt]) -> None:
        """Give newly pulled messages to handlers."""
        assigned.window.take(len(messages))
        groups = [messages]
        if is_retry_topic(assigned.queue.topic):
            # it holds messages of several topics, and each topic has its own handler
            groups = [list(group) for _, group in groupby(messages, key=attrgetter("topic"))]
        if assigned.has_unreadable:
            groups = [run for own in groups for run in readable_runs(own)]
        for own in groups:
            self._submit(assigned, own)

    async def drain_queue(self, assigned: AssignedQueue, timeout_s: float) -> bool:
        """Wait until the handlers at work on the queue are done; False when they are not.

        Messages whose handler was not called yet are skipped.
        """
        self._threads.skip_queue(assigned)
        self._tasks.skip_queue(assigned)
        return await assigned.wait_until_idle(timeout_s)

    def blocked_queues(self) -> list[BlockedQueue]:
        """No queue is ever blocked by one message."""
        return []

    def waiting_keys(self, assigned: AssignedQueue, most: int) -> tuple[list[str], int]:
        """None: keys have no order to keep."""
        del assigned, most
        return [], 0

    def running_info(self) -> dict[str, str]:
        """Topics that have an outage."""
        return self._breakers.running_info() if self._breakers else {}

    def resize(self, threads: int) -> None:
        """Have as many workers as the pools have places for now."""
        del threads
        self._threads.start_workers()
        self._tasks.start_workers()

    def close(self) -> None:
        """Begin no more calls."""
        self._threads.close()
        self._tasks.close()

    def _submit(self, assigned: AssignedQueue, messages: list[MessageExt]) -> None:
        """Give messages of a topic to its handler, or hold them while the topic has an outage."""
        size = self._options.batch_size
        if self._breakers is None:
            self._start(assigned, messages, size, None)
            return
        topic = messages[0].topic
        breaker = self._breakers.breaker_of(topic)
        for at in range(0, len(messages), size):  # a breaker judges each call
            batch = messages[at : at + size]
            if breaker.may_call(self._clock()):
                self._start(assigned, batch, size, breaker)
            else:
                self._held[topic].append((assigned, batch))

    def _start_held(self, topic: str) -> None:
        """Start the held messages of a topic: all, or one as a probe while the outage lasts.

        What has not failed yet goes first: it shows sooner that the outage is over.
        """
        held, failed = self._held[topic], self._held_failed[topic]
        breaker = self._breakers.breaker_of(topic) if self._breakers else None
        while (held or failed) and (breaker is None or breaker.may_call(self._clock())):
            assigned, messages = (held or failed).popleft()
            if not assigned.is_dropped:
                self._start(assigned, messages, len(messages), breaker)
            elif breaker is not None:
                breaker.cancel_probe()

    def _start(
        self,
        assigned: AssignedQueue,
        messages: list[MessageExt],
        size: int,
        breaker: CircuitBreaker | None,
    ) -> None:
        subscription = self._subscriptions.subscription_of(messages[0].topic)
        assigned.in_flight += len(messages)
        workers = self._tasks if subscription.is_async else self._threads
        workers.add(CallRun(assigned, messages, size, subscription, breaker))

    def _running_calls(self) -> list[RunningCall]:
        return self._threads.running + self._tasks.running

    def _end_calls(self, run: CallRun, ended: EndedCalls) -> None:
        """Finish what calls have done, and see to what they have not."""
        if ended.failures or ended.skipped or run.expired or run.breaker is not None:
            self._end_one_by_one(run, ended)
            return
        done = run.messages
        if len(ended.places) != run.calls:
            done = [message for at in sorted(ended.places) for message in run.call(at)]
        assigned = run.assigned
        self._report(assigned.queue.topic, len(ended.places), ended.spent_s, len(done), 0)
        self._remove(assigned, done)

    def _end_one_by_one(self, run: CallRun, ended: EndedCalls) -> None:
        """The same where calls have not ended alike, or messages were sent back meanwhile."""
        assigned, done, failed = run.assigned, list[MessageExt](), 0
        for at in sorted(ended.places):
            messages, outcome = run.call(at), ended.failures.get(at, DONE)
            if at in ended.skipped:
                self._end_skipped(run, _not_expired(run, messages))
                continue
            is_out = self._is_outage(run, messages[0], outcome)
            count = len(messages) if outcome.is_done else outcome.done_count
            done += _not_expired(run, messages[:count])
            rest = _not_expired(run, messages[count:])
            if rest:
                failed += len(rest)
                self._end_failed(assigned, rest, outcome, is_out=is_out)
        calls = len(ended.places) - len(ended.skipped)
        if calls:
            self._report(assigned.queue.topic, calls, ended.spent_s, len(done), failed)
        if done:
            self._remove(assigned, done)

    def _end_skipped(self, run: CallRun, messages: list[MessageExt]) -> None:
        """Hold messages whose handler was not called because of an outage."""
        run.assigned.in_flight -= len(messages)
        if run.breaker is None:
            return
        if run.is_probe:
            run.breaker.cancel_probe()
        if messages and not run.assigned.is_dropped:
            self._held[messages[0].topic].append((run.assigned, messages))
        self._start_held(run.messages[0].topic)

    def _is_outage(self, run: CallRun, first: MessageExt, outcome: HandlerOutcome) -> bool:
        """Report a call to its topic's breaker; whether a failure belongs to an outage."""
        breaker, topic = run.breaker, first.topic
        if breaker is None or self._breakers is None:
            return False
        if not outcome.is_handlers:
            if run.is_probe:
                breaker.cancel_probe()
                self._start_held(topic)
            return False
        now, key = self._clock(), key_of(first)
        if outcome.is_done:
            if breaker.record_success(key, now, is_probe=run.is_probe):
                self._breakers.log_closed(topic)
                self._start_held(topic)
            return breaker.excuses_failures(now)
        has_begun = breaker.record_failure(key, now, is_probe=run.is_probe)
        if has_begun:
            self._breakers.log_opened(topic, outcome.reason)
        if breaker.next_probe_at is not None and (has_begun or run.is_probe):
            loop = asyncio.get_running_loop()
            loop.call_at(breaker.next_probe_at, self._start_held, topic)
        return breaker.excuses_failures(now)

    def _end_failed(
        self,
        assigned: AssignedQueue,
        messages: list[MessageExt],
        outcome: HandlerOutcome,
        *,
        is_out: bool,
    ) -> None:
        """Send back what a handler has not done, unless it is to wait, or is skipped."""
        if self._options.broadcasting:  # nobody would deliver them again, as in RocketMQ
            log.warning("%d message(s) of %s are skipped", len(messages), assigned.queue)
            self._remove(assigned, messages)
        elif is_out:  # not the fault of the messages: no attempt is counted
            assigned.in_flight -= len(messages)
            self._held_failed[messages[0].topic].append((assigned, messages))
        else:
            self._spawn(assigned, self._send_back_all(assigned, messages, outcome), "send back")

    def _remove(self, assigned: AssignedQueue, messages: list[MessageExt]) -> None:
        """Take messages out of the window that this member need not handle again."""
        assigned.in_flight -= len(messages)
        assigned.window.finish(messages)
        assigned.note_room()
        assigned.consumed_at = self._clock()
        self._remember_offset(assigned)

    def _remember_offset(self, assigned: AssignedQueue) -> None:
        if not assigned.is_dropped:
            self._offsets.remember(assigned.queue, assigned.window.commit_offset)

    async def _send_back_all(
        self, assigned: AssignedQueue, messages: list[MessageExt], outcome: HandlerOutcome
    ) -> None:
        if assigned.is_dropped:  # the queue's next owner gets them anyway
            assigned.in_flight -= len(messages)
            return
        for message in messages:
            if await self._send_back_one(assigned, message, outcome):
                self._remove(assigned, [message])
            else:
                self._spawn(assigned, self._retry_in_place(assigned, message), "retry in place")

    async def _send_back_one(
        self, assigned: AssignedQueue, message: MessageExt, outcome: HandlerOutcome
    ) -> bool:
        """Send a message back, or do with it what its policy says; False when no broker took it."""
        queue, level, reason = assigned.queue, outcome.delay_level, outcome.reason
        policy = self._failure_actions.policy_of(
            self._subscriptions.subscription_of(message.topic), outcome
        )
        after_s = outcome.after_s
        if policy is None:
            return await self._failed_sender.send_back(
                message, queue, level, reason, after_s=after_s
            )
        decision = decide(policy, message.reconsume_times + 1, 0, is_outage=False)
        if decision.action is FailureAction.NONE:
            return await self._failed_sender.send_back(
                message, queue, level, reason, UNLIMITED, after_s=after_s
            )
        return await self._failure_actions.apply(assigned, message, decision, outcome)

    async def _retry_in_place(self, assigned: AssignedQueue, message: MessageExt) -> None:
        """Handle a message here once more, since no broker took it back."""
        assigned.in_flight -= 1
        await asyncio.sleep(self._options.retry_in_place_s)
        if not assigned.is_dropped:
            message.reconsume_times += 1
            self._submit(assigned, [message])

    def _spawn(
        self, assigned: AssignedQueue, work: Coroutine[object, object, None], name: str
    ) -> None:
        self._background.spawn(self._supervised(assigned, work), name=f"{name} {assigned.queue}")

    async def _supervised(
        self, assigned: AssignedQueue, work: Coroutine[object, object, None]
    ) -> None:
        """Restart the queue when work on its messages ends with an error (which is logged)."""
        is_over = False
        try:
            await work
            is_over = True
        finally:
            if not is_over:
                self._restart_after_error(assigned)


def _not_expired(run: CallRun, messages: list[MessageExt]) -> list[MessageExt]:
    """Those of these messages that were not sent back while their call went on."""
    if not run.expired:
        return messages
    left = [message for message in messages if message not in run.expired]
    run.assigned.in_flight -= len(messages) - len(left)
    return left
