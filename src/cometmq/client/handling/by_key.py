"""Handling by key: each key of a queue is a lane of its own, under the broker's lock of the queue.

Owns the slots in which handlers run and what follows a run; leaves which lane is next to
`rules.queues.by_key_process_queue` and commits to `by_key_commits`. Invariant: nothing is handled
without a lock that is certainly ours.
Java: nothing alike; compare ConsumeMessageOrderlyService
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from cometmq.client.failures.circuit_breakers import CircuitBreakers
from cometmq.client.handling import handler_call as handlers
from cometmq.client.handling.by_key_commits import KeyCommits
from cometmq.client.handling.by_key_run import KeyQueueState, KeyRun
from cometmq.client.handling.lock_recovery import LockRecovery
from cometmq.client.offsets.offset_journal_files import OffsetJournalFiles
from cometmq.client.parking.key_parking import KeyParking
from cometmq.model.results import BlockedQueue
from cometmq.rules.failures.circuit_breaker import BreakerLimits
from cometmq.rules.failures.failure_policy import FailureAction, default_policy
from cometmq.rules.queues.key_lanes import BARRIER
from cometmq.runtime.system_clock_and_files import expand_user_path

if TYPE_CHECKING:
    from collections.abc import Hashable

    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.handling.consume_strategy import StrategyContext
    from cometmq.client.parking.queue_parking import QueueParking
    from cometmq.model.message import MessageExt
    from cometmq.rules.failures.failure_policy import FailureDecision
    from cometmq.rules.queues.by_key_process_queue import LaneBatch

log = logging.getLogger(__name__)

_CHECK_S = 0.2
_BLOCKING_LOG_S = 60.0
_FULL_PAUSE_S = 0.5
_FOR_EVER = float("inf")
_KEYLESS = ("no key",)
_RUNS_A_THREAD = 2
"""One that runs, and one that waits for a thread, so that no thread waits for the loop."""
_SAMPLE_LANES = 4
"""A sample of keys has so many lanes of one key alone."""


class KeyStrategy:
    """Runs the queues of one consumer by key. One loop owns it."""

    def __init__(self, context: StrategyContext) -> None:
        options = context.options
        self._options = options
        self._subscriptions = context.subscriptions
        self._threads = context.threads
        self._tasks = context.tasks
        self._offsets = context.offsets
        self._background = context.background
        self._report = context.report
        self._clock = context.clock
        self._restart_after_error = context.restart_after_error
        self._failure_actions = context.failure_actions
        self._default_policy = default_policy(options.max_attempts)
        self._breakers = CircuitBreakers(options.breaker or BreakerLimits())
        self._locks = LockRecovery(context.locks, context.offsets, context.restart_queue)
        self._commits = KeyCommits(options, context.offsets)
        folder = expand_user_path("state_dir", options.state_dir) / "done"
        self._files = OffsetJournalFiles(context.files, folder, options.group, context.namesrv)
        self._files.delete_old_files(context.clock.now_ms())
        self._parking = KeyParking(context, self._key_of)
        self._restart_queue = context.restart_queue
        self._states: dict[AssignedQueue, KeyQueueState] = {}
        self._waiting: deque[KeyQueueState] = deque()
        self._free_slots = self._slots = _RUNS_A_THREAD * options.consume_threads
        self.overlap_count = 0

    def start_queue(self, assigned: AssignedQueue) -> None:
        """Start work on a new queue; what its journal knows as finished is left out."""
        queue, offset = assigned.queue, assigned.window.next_offset
        file = self._files.open(queue, offset, is_reset=self._offsets.was_reset(queue))
        state = KeyQueueState(assigned, file, self._breakers.breaker_of(queue.topic))
        self._states[assigned] = state
        assigned.committed_offset = offset
        state.parking = self._parking.parking_of(assigned)
        task = asyncio.get_running_loop().create_task(self._maintain(state), name=f"{queue}")
        assigned.tasks.append(task)

    def add_messages(self, assigned: AssignedQueue, messages: list[MessageExt]) -> None:
        """Put newly pulled messages into their lanes."""
        state = self._states.get(assigned)
        if state is None or not messages:
            return
        assigned.window.take(len(messages))
        state.key_queue.add_messages((self._key_of(message), message) for message in messages)
        self._request_slot(state)
        self._fill_slots()

    async def drain_queue(self, assigned: AssignedQueue, timeout_s: float) -> bool:
        """Wait until no handler has a message of the queue, then commit; whether it was in time."""
        state = self._states.get(assigned)
        if state is None:
            return True
        self._withdraw_runs(state)
        await assigned.wait_until_idle(timeout_s)
        for task in assigned.tasks:
            task.cancel()
        await asyncio.wait(assigned.tasks)
        self._commits.write(state)
        if not self._offsets.was_reset(assigned.queue):  # a reset has committed its own offset
            await self._commits.commit(state)
        if assigned.in_flight:
            return False
        del self._states[assigned]
        state.close()
        return True

    def blocked_queues(self) -> list[BlockedQueue]:
        """The queues whose commit is held back by a message that keeps failing."""
        found = []
        for state in self._states.values():
            if (lane := state.key_queue.blocking_lane()) is not None:
                head = lane.waiting[0]
                blocked = BlockedQueue(
                    state.assigned.queue,
                    head.queue_offset,
                    head.msg_id,
                    head.reconsume_times,
                    lane.failing_since_ms,
                    lane.failure_reason,
                )
                found.append(blocked)
        return found

    def waiting_keys(self, assigned: AssignedQueue, most: int) -> tuple[list[str], int]:
        """The keys of some of what waits, those that came first, and how many keys do."""
        state = self._states.get(assigned)
        lanes = [] if state is None else list(state.key_queue.lanes)
        found: list[str] = []
        for lane in lanes:
            found += [str(lane.key)] * min(len(lane.waiting), most)
            if len(found) >= most * _SAMPLE_LANES:
                break
        return found, len(lanes)

    def running_info(self) -> dict[str, str]:
        """Which topics have an outage, and which keys hold back their queues."""
        found = {"KEY_OVERLAPS": str(self.overlap_count), **self._breakers.running_info()}
        for state in self._states.values():
            if (lane := state.key_queue.blocking_lane()) is not None:
                text = _describe(lane.waiting[0], lane.failure_reason)
                found[f"KEY_STUCK {state.assigned.queue}"] = text
        return found

    def resize(self, threads: int) -> None:
        """Run up to so many handlers at once from now on."""
        slots = _RUNS_A_THREAD * threads
        self._free_slots += slots - self._slots
        self._slots = slots
        self._fill_slots()

    def close(self) -> None:
        """Close the journals of queues whose handlers did not end."""
        for state in self._states.values():
            self._commits.write(state)
            state.close()
        self._states.clear()

    def _key_of(self, message: MessageExt) -> Hashable:
        key = self._options.key
        found: Hashable
        if key is None:
            found = message.sharding_key
        elif isinstance(key, str):
            found = message.properties.get(key)
        else:
            found = handlers.call_key_function(key, message)
        if found is not None:
            return found
        rule = self._options.without_key
        if rule == "barrier":
            return BARRIER
        return _KEYLESS if rule == "lane" else (*_KEYLESS, message.queue_offset)

    def _request_slot(self, state: KeyQueueState) -> None:
        if not state.is_waiting_for_slot and not state.assigned.is_dropped:
            state.is_waiting_for_slot = True
            self._waiting.append(state)

    def _wake_queue(self, state: KeyQueueState) -> None:
        self._request_slot(state)
        self._fill_slots()

    def _wake_topic(self, topic: str) -> None:
        """Let all queues of a topic ask for slots, the best one for a probe first."""
        now = asyncio.get_running_loop().time()
        own = [state for state in self._states.values() if state.assigned.queue.topic == topic]
        for state in sorted(own, key=lambda state: state.key_queue.probe_rank(now)):
            self._request_slot(state)
        self._fill_slots()

    def _fill_slots(self) -> None:
        """Give free slots to the queues that wait for one, round robin."""
        now = asyncio.get_running_loop().time()
        while self._free_slots > 0 and self._waiting:
            state = self._waiting.popleft()
            state.is_waiting_for_slot = False
            if self._start_run(state, now):
                self._request_slot(state)

    def _start_run(self, state: KeyQueueState, now: float) -> bool:
        """Start the next run of a queue; False when there is none."""
        assigned, size = state.assigned, self._options.batch_size
        if assigned.is_dropped or not assigned.holds_lock(now):
            return False
        parking = state.parking
        if parking is not None and not parking.is_open:
            return False
        batch = state.key_queue.take_batch(max(size, state.run_messages), now)
        if batch is None:
            self._set_timer(state, now)
            return False
        if parking is not None:
            handled = parking.leading_to_handle(batch.messages)
            if not handled:
                assigned.in_flight += 1
                self._background.spawn(
                    self._park_followers(state, parking, batch), name=f"park {assigned.queue}"
                )
                return True
            del batch.messages[handled:]
        if batch.messages[0].queue_offset <= batch.lane.one_by_one_until:
            size = 1
        clock = asyncio.get_running_loop().time
        subscription = self._subscriptions.subscription_of(batch.messages[0].topic)
        run = KeyRun(state, batch, subscription, clock)
        state.runs.add(run)
        assigned.in_flight += 1
        self._free_slots -= 1
        if subscription.is_async:
            self._tasks.submit(self._run_async(run, size))
        else:
            self._threads.submit(partial(run.run, size), partial(self._end_run, run))
        return True

    def _set_timer(self, state: KeyQueueState, now: float) -> None:
        """Wake a queue when its first resting lane may go on."""
        if state.wake_timer is not None:
            state.wake_timer.cancel()
            state.wake_timer = None
        wake_at = state.key_queue.next_wake_at()
        if wake_at is not None and now < wake_at < _FOR_EVER:
            loop = asyncio.get_running_loop()
            state.wake_timer = loop.call_at(wake_at, self._wake_queue, state)

    async def _run_async(self, run: KeyRun, size: int) -> None:
        await run.run_async(size)
        self._end_run(run)

    def _end_run(self, run: KeyRun) -> None:
        self._free_slots += 1
        assert self._free_slots <= self._slots, "a slot was freed twice"
        if run in run.state.runs:
            self._record_run(run)
        self._fill_slots()

    def _withdraw_runs(self, state: KeyQueueState) -> None:
        """Release what only waits for a thread, which another queue's handler may keep for long.

        The slots are free once a thread has come by.
        """
        for run in [each for each in state.runs if each.claim()]:
            self._record_run(run)

    def _record_run(self, run: KeyRun) -> None:
        """Note what a run has done, and release its lane."""
        state, batch, now = run.state, run.batch, asyncio.get_running_loop().time()
        state.runs.remove(run)
        state.assigned.consumed_at = now
        topic, breaker = state.assigned.queue.topic, state.key_queue.breaker
        self._count(run, now)
        state.adapt_run(run.done, len(run.messages))
        if run.done:
            succeeded = max(1, run.calls - bool(run.failed))
            if state.key_queue.record_success(batch, run.done, now, succeeded):
                self._breakers.log_closed(topic)
                self._wake_topic(topic)
            self._commits.schedule_write(state)
            state.assigned.note_room()
        if run.failed:
            self._end_failed_run(run, now)
        else:
            self._release(state, batch, None)
            if batch.is_probe and not run.done:
                breaker.cancel_probe()
                self._wake_topic(topic)

    def _count(self, run: KeyRun, now: float) -> None:
        run.report_to(self._report)
        if run.calls and not run.assigned.holds_lock(now):
            # the lock ran out meanwhile: another member may have had them too
            self.overlap_count += run.done + run.failed

    def _end_failed_run(self, run: KeyRun, now: float) -> None:
        state, batch, outcome = run.state, run.batch, run.outcome
        breaker, topic = state.key_queue.breaker, state.assigned.queue.topic
        batch.lane.failure_reason = outcome.reason
        batch.lane.failing_since_ms = batch.lane.failing_since_ms or self._clock.now_ms()
        asked_ms = outcome.suspend_ms
        pause_ms = self._options.suspend_ms if asked_ms is None else asked_ms
        policy = self._failure_actions.policy_of(run.subscription, outcome) or self._default_policy
        decision, has_begun = state.key_queue.record_failure(
            batch, run.failed, policy, pause_ms, now, is_handlers=outcome.is_handlers
        )
        if breaker.next_probe_at is not None and (has_begun or batch.is_probe):
            if has_begun:
                self._breakers.log_opened(topic, outcome.reason)
            loop = asyncio.get_running_loop()
            loop.call_at(breaker.next_probe_at, self._wake_topic, topic)
        if decision.action is FailureAction.NONE:
            self._commits.schedule_write(state)  # a restart goes on counting the failures
            self._release(state, batch, now + decision.pause_ms / 1000)
        else:
            name = f"{decision.action.name} {state.assigned.queue}"
            self._background.spawn(self._apply(run, decision), name=name)

    async def _apply(self, run: KeyRun, decision: FailureDecision) -> None:
        """Carry out a decision about the head message; its lane waits for that."""
        state, is_over, is_applied = run.state, False, False
        assigned, message = state.assigned, run.batch.messages[0]
        try:
            if decision.action is FailureAction.PARK:
                assert state.parking is not None, "a policy that parks has opened the queue"
                is_applied = await self._parking.park_failed(run, state.parking, decision)
            else:
                is_applied = await self._failure_actions.apply(
                    assigned, message, decision, run.outcome
                )
            is_over = True
        finally:
            if is_applied:
                state.key_queue.finish(run.batch, 1)
                self._commits.schedule_write(state)
            rest_until = _FOR_EVER if decision.action is FailureAction.STOP else None
            self._release(state, run.batch, rest_until)
            if not is_over:
                self._restart_after_error(assigned)
            self._fill_slots()

    async def _park_followers(
        self, state: KeyQueueState, parking: QueueParking, batch: LaneBatch[MessageExt]
    ) -> None:
        """Let messages follow their parked key; their lane waits for that."""
        finished, messages = 0, batch.messages
        try:
            finished = await self._parking.park_followers(parking, list(messages))
        finally:
            if batch.is_probe:
                state.key_queue.breaker.cancel_probe()
            if finished:
                state.key_queue.finish(batch, finished)
                self._commits.schedule_write(state)
            may_go_on = finished or parking.leading_to_handle(messages)
            now = asyncio.get_running_loop().time()
            self._release(state, batch, None if may_go_on else now + _FULL_PAUSE_S)
            self._fill_slots()

    def _release(
        self, state: KeyQueueState, batch: LaneBatch[MessageExt], rest_until: float | None
    ) -> None:
        state.key_queue.release(batch, rest_until)
        state.assigned.in_flight -= 1
        self._request_slot(state)

    async def _maintain(self, state: KeyQueueState) -> None:
        """Keep the lock and the broker's offset up to date until the queue is dropped."""
        loop, assigned = asyncio.get_running_loop(), state.assigned
        if state.parking is not None:
            await state.parking.open()
            self._wake_queue(state)
        while not assigned.is_dropped:
            now = loop.time()
            if not assigned.holds_lock(now):
                await self._recover_lock(state)
            elif self._commits.is_due(state, now):
                await self._commits.commit(state)
            if state.parking is not None:
                await self._parking.maintain(assigned, state.parking)
            self._log_blocking_key(state, now)
            await asyncio.sleep(_CHECK_S)

    async def _recover_lock(self, state: KeyQueueState) -> None:
        if await self._locks.recover(state.assigned):
            if state.parking is not None:  # another member may have parked keys meanwhile
                self._restart_queue(state.assigned)
                return
            self._commits.write(state)
            self._wake_queue(state)

    def _log_blocking_key(self, state: KeyQueueState, now: float) -> None:
        """Log which key keeps a queue from going further, every minute."""
        assigned, limits = state.assigned, self._options.flow
        if assigned.span <= limits.span // 2 and assigned.window.count <= limits.count // 2:
            return
        if now < state.blocking_logged_at + _BLOCKING_LOG_S:
            return
        if (lane := state.key_queue.blocking_lane()) is None:
            return
        state.blocking_logged_at = now
        log.warning(
            "%s is held back by the key %r: %s; %d of at most %d unfinished messages, %d of at "
            "most %d offsets ahead: other keys wait once a bound is reached",
            assigned.queue,
            lane.key,
            _describe(lane.waiting[0], lane.failure_reason),
            assigned.window.count,
            limits.count,
            assigned.span,
            limits.span,
        )


def _describe(message: MessageExt, reason: str) -> str:
    """What operators want to know of a message that holds up others."""
    return (
        f"offset {message.queue_offset} of {message.msg_id}, stored at {message.store_ms}, "
        f"{message.reconsume_times} failures, the last: {reason}"
    )
