"""Orderly handling: one handler at a time per queue, in the queue's order, under the broker's lock.

Owns the loop of one queue: lock, batch, handler, commit, and after a failure pause, try again, or
give the message up (`failure_actions`); knows nothing of pulls and rebalance. Invariants: the
handler gets a message only after all before it in the queue are done or given up; nothing is
handled without a lock that is certainly ours. A batch that fails is handled one message at a time
from then on, so one bad message neither uses up the attempts of its neighbours nor becomes a dead
letter with them.
Java: ConsumeMessageOrderlyService
"""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from typing import TYPE_CHECKING

from cometmq.client.failures.blocked_queues import BlockedQueues
from cometmq.client.failures.circuit_breakers import CircuitBreakers, key_of
from cometmq.client.handling.handler_run import HandlerRun
from cometmq.client.handling.lock_recovery import LockRecovery
from cometmq.client.handling.worker_pools import Slots
from cometmq.errors import CometError
from cometmq.model.results import ConsumeStatus
from cometmq.rules.failures import retry_policy
from cometmq.rules.failures.failure_policy import FailureAction, decide, default_policy

if TYPE_CHECKING:
    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.handling.consume_strategy import StrategyContext
    from cometmq.client.handling.handler_call import HandlerOutcome
    from cometmq.model.message import MessageExt
    from cometmq.model.results import BlockedQueue
    from cometmq.rules.failures.circuit_breaker import CircuitBreaker
    from cometmq.rules.failures.failure_policy import FailureDecision

log = logging.getLogger(__name__)

_RUN_MESSAGES = 256
_RUN_S = 0.1
_OUTAGE_CHECK_S = 0.05
_REFUSED_PAUSE_S = 1.0


class OrderlyStrategy:
    """Runs the queues of one orderly consumer. One loop owns it."""

    def __init__(self, context: StrategyContext) -> None:
        options = context.options
        self._options = options
        self._subscriptions = context.subscriptions
        self._threads = context.threads
        self._failure_actions = context.failure_actions
        self._offsets = context.offsets
        self._report = context.report
        self._default_policy = default_policy(options.max_attempts)
        self._blocked = BlockedQueues(context.clock)
        self._breakers = CircuitBreakers(options.breaker) if options.breaker else None
        self._locks = LockRecovery(context.locks, context.offsets, context.restart_queue)
        self._slots = Slots(options.consume_threads)
        self._held: set[AssignedQueue] = set()  # queues that an outage keeps from their messages
        self.overlap_count = 0

    def start_queue(self, assigned: AssignedQueue) -> None:
        """Start the loop of a new queue."""
        loop = asyncio.get_running_loop()
        assigned.tasks.append(loop.create_task(self._run_queue(assigned), name=f"{assigned.queue}"))

    def add_messages(self, assigned: AssignedQueue, messages: list[MessageExt]) -> None:
        """Wake the queue's loop: messages wait."""
        if messages:
            assigned.work_available.set()

    async def drain_queue(self, assigned: AssignedQueue, timeout_s: float) -> bool:
        """Wait until the handler at work on the queue is done with its batch; False when it is not.

        `in_flight` then shows that it still runs.
        """
        _, late = await asyncio.wait(assigned.tasks, timeout=timeout_s)
        return not late

    def blocked_queues(self) -> list[BlockedQueue]:
        """The queues that are blocked since their first message keeps failing."""
        return self._blocked.all()

    def waiting_keys(self, assigned: AssignedQueue, most: int) -> tuple[list[str], int]:
        """The sharding keys of the first messages that wait."""
        first = islice(assigned.window.waiting, most)
        return [key for message in first if (key := message.sharding_key) is not None], 0

    def running_info(self) -> dict[str, str]:
        """Blocked queues, outages, and messages that two members may have had."""
        outages = self._breakers.running_info() if self._breakers else {}
        return {
            **self._blocked.running_info(),
            **outages,
            "ORDERLY_OVERLAPS": str(self.overlap_count),
        }

    def resize(self, threads: int) -> None:
        """Handle up to so many queues at once from now on."""
        self._slots.resize(threads)

    def close(self) -> None:
        """Nothing is held beyond the queues."""

    async def _run_queue(self, assigned: AssignedQueue) -> None:
        try:
            while not assigned.is_dropped:
                if not assigned.holds_lock(self._now()):
                    await self._locks.recover(assigned)
                elif assigned.window.waiting:
                    await self._handle_unless_out(assigned)
                else:
                    assigned.work_available.clear()
                    await assigned.work_available.wait()
        finally:
            self._held.discard(assigned)
            self._blocked.forget(assigned.queue)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _handle_unless_out(self, assigned: AssignedQueue) -> None:
        """Handle what waits; in an outage of the topic wait, or try one message for all."""
        breaker = self._breakers.breaker_of(assigned.queue.topic) if self._breakers else None
        if breaker is None or not breaker.is_open:
            self._held.discard(assigned)
            await self._handle(assigned)
        elif self._may_probe(assigned, breaker):
            is_judged = False
            try:
                is_judged = await self._handle(assigned, is_probe=True)
            finally:
                if not is_judged:
                    breaker.cancel_probe()
        else:
            await assigned.sleep_unless_dropped(_OUTAGE_CHECK_S)

    def _may_probe(self, assigned: AssignedQueue, breaker: CircuitBreaker) -> bool:
        """Whether this queue may try a message now, of all that wait for the end of the outage.

        A queue whose head has not failed goes first, then the one that tried longest ago.
        """
        now, topic = self._now(), assigned.queue.topic
        self._held.add(assigned)
        able = [one for one in self._held if one.queue.topic == topic and _may_be_handled(one, now)]
        if min(able, key=_probe_rank, default=None) is not assigned or not breaker.may_call(now):
            return False
        self._held.discard(assigned)
        assigned.probed_at = now
        return True

    async def _handle(self, assigned: AssignedQueue, *, is_probe: bool = False) -> bool:
        """Handle what waits, or one message for a probe; whether the handler was called."""
        messages, size = self._next(assigned)
        if is_probe:
            assigned.window.put_back(messages[1:])
            messages, size = messages[:1], 1
        run = await self._run(assigned, messages, size)
        run.report_to(self._report)
        if run.calls and not await self._locks.is_still_ours(assigned, messages[0].queue_offset):
            self._discard(run, messages)
            return False
        assigned.window.put_back(messages[run.done :])
        assigned.consumed_at = self._now()
        is_out = self._is_outage(run, is_probe=is_probe)
        self._finish(assigned, run)
        if run.failed:
            await self._after_failure(assigned, run, is_out=is_out)
        return bool(run.calls)

    def _is_outage(self, run: HandlerRun, *, is_probe: bool) -> bool:
        """Report a run to its topic's breaker; whether a failure is an outage's."""
        if self._breakers is None or not run.calls:
            return False
        topic, now = run.assigned.queue.topic, self._now()
        breaker = self._breakers.breaker_of(topic)
        well = run.calls - bool(run.failed)
        first = key_of(run.messages[0])
        if well and breaker.record_success(first, now, is_probe=is_probe, calls=well):
            self._breakers.log_closed(topic)
        if not run.outcome.is_handlers:
            if is_probe:
                breaker.cancel_probe()
            return False
        if run.failed:
            key = key_of(run.messages[run.done])
            if breaker.record_failure(key, now, is_probe=is_probe):
                self._breakers.log_opened(topic, run.outcome.reason)
        return breaker.excuses_failures(now)

    def _finish(self, assigned: AssignedQueue, run: HandlerRun) -> None:
        """Remove finished messages from the window, once the handler has committed them.

        As ProcessQueue.commit and rollback in RocketMQ, where the handler commits by its status.
        """
        window, done = assigned.window, run.messages[: run.done]
        status = run.outcome.status
        if done:
            self._blocked.unblock(assigned.queue)
        if self._auto_commits(run):
            window.finish(done)
        elif status is ConsumeStatus.ROLLBACK:
            window.put_back([*assigned.uncommitted, *done])
            assigned.uncommitted.clear()
        else:
            assigned.uncommitted += done
            if status is ConsumeStatus.COMMIT:
                window.finish(assigned.uncommitted)
                assigned.uncommitted.clear()
        if done:
            self._remember_offset(assigned)
            assigned.note_room()

    def _auto_commits(self, run: HandlerRun) -> bool:
        """Whether what is done is committed, whatever status the handler returned."""
        return self._options.auto_commit and not run.subscription.commits_by_status

    def _discard(self, run: HandlerRun, messages: list[MessageExt]) -> None:
        """Forget what a handler has done: another member may have had the same messages."""
        handled = run.done + run.failed
        self.overlap_count += handled
        log.warning(
            "the lock of %s ran out while %d message(s) from offset %d on were handled, and "
            "another member has had the queue since: their results are discarded",
            run.assigned.queue,
            handled,
            messages[0].queue_offset,
        )
        run.assigned.window.put_back(messages)

    def _next(self, assigned: AssignedQueue) -> tuple[list[MessageExt], int]:
        """Take the next messages; also, how many the handler gets at a time."""
        size, head = self._options.batch_size, assigned.window.waiting[0].queue_offset
        if head <= assigned.one_by_one_until:
            return assigned.window.take(min(assigned.one_by_one_until - head + 1, _RUN_MESSAGES)), 1
        return assigned.window.take(max(size, _RUN_MESSAGES)), size

    async def _run(
        self, assigned: AssignedQueue, messages: list[MessageExt], size: int
    ) -> HandlerRun:
        """Run a handler in a thread or here; at most `consume_threads` queues at once."""
        loop = asyncio.get_running_loop()
        subscription = self._subscriptions.subscription_of(messages[0].topic)
        run = HandlerRun(assigned, messages, subscription, loop.time, _RUN_S)
        if not self._auto_commits(run):
            run.max_s = 0  # each batch has its own commit
        async with self._slots:
            assigned.in_flight = len(run.messages)
            if subscription.is_async:
                await run.run_async(size)
            else:
                await self._threads.run(lambda: run.run(size))
            assigned.in_flight = 0
        return run

    async def _after_failure(
        self, assigned: AssignedQueue, run: HandlerRun, *, is_out: bool
    ) -> None:
        failed = run.messages[run.done : run.done + run.failed]
        if run.outcome.status is ConsumeStatus.ROLLBACK and not self._auto_commits(run):
            await assigned.sleep_unless_dropped(
                retry_policy.clamp_suspend_ms(self._options.suspend_ms) / 1000
            )
            return
        self._blocked.record_failure(assigned.queue, failed[0], run.outcome.reason)
        asked_ms = run.outcome.suspend_ms
        pause_ms = retry_policy.clamp_suspend_ms(
            self._options.suspend_ms if asked_ms is None else asked_ms
        )
        assigned.one_by_one_until = max(assigned.one_by_one_until, failed[-1].queue_offset)
        if len(failed) == 1:
            policy = (
                self._failure_actions.policy_of(run.subscription, run.outcome)
                or self._default_policy
            )
            decision = decide(policy, failed[0].reconsume_times + 1, pause_ms, is_outage=is_out)
            if decision.action is not FailureAction.NONE:
                await self._apply(assigned, failed[0], decision, run.outcome)
                return
            failed[0].reconsume_times += not is_out  # an outage costs no attempt
            pause_ms = decision.pause_ms
        await assigned.sleep_unless_dropped(pause_ms / 1000)

    async def _apply(
        self,
        assigned: AssignedQueue,
        message: MessageExt,
        decision: FailureDecision,
        outcome: HandlerOutcome,
    ) -> None:
        """Carry out a decision about the head message."""
        if self._options.broadcasting and decision.action is FailureAction.DEAD_LETTER:
            log.error("%s has failed for the last time and is skipped: %s", message, outcome.reason)
        elif not await self._failure_actions.apply(assigned, message, decision, outcome):
            await assigned.sleep_unless_dropped(_REFUSED_PAUSE_S)
            return
        assigned.window.finish(assigned.window.take(1))
        self._blocked.unblock(assigned.queue)
        self._remember_offset(assigned)
        if decision.action is not FailureAction.SKIP:
            await self._commit(assigned)

    async def _commit(self, assigned: AssignedQueue) -> None:
        """Commit at once, so that a crash makes no second dead letter or row of a message."""
        if assigned.has_lost_lock:
            return  # the queue's next owner may have committed more
        try:
            await self._offsets.commit(assigned.queue, assigned.window.commit_offset)
        except CometError as error:
            log.warning(
                "the offset of %s is not committed yet after a message was given up: %s",
                assigned.queue,
                error,
            )

    def _remember_offset(self, assigned: AssignedQueue) -> None:
        if not assigned.is_dropped:
            self._offsets.remember(assigned.queue, assigned.window.commit_offset)


def _may_be_handled(assigned: AssignedQueue, now: float) -> bool:
    return bool(assigned.window.waiting) and assigned.holds_lock(now) and not assigned.is_dropped


def _probe_rank(assigned: AssignedQueue) -> tuple[bool, float]:
    head = assigned.window.waiting[0].queue_offset
    return head <= assigned.one_by_one_until, assigned.probed_at
