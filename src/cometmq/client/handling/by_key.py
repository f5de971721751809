"""Handling by key: each key of a queue is a lane of its own, under the broker's lock of the queue.

Owns slots, turns, and the way of finished messages to the journal, then to the broker; refuses to
know pulls and rebalance, and leaves what may run next to `rules.key_queue`. Invariants: nothing is
handled without a lock that surely holds; a broker is told an offset only after the journal has it,
so on its return the client knows whether the broker's offset is its own.
Java: nothing alike; compare ConsumeMessageOrderlyService
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from cometmq.client.failures.circuit_breakers import CircuitBreakers
from cometmq.client.failures.failure_actions import FailureActions
from cometmq.client.handling import handler_call as handlers
from cometmq.client.handling.key_run import RUN_MESSAGES, KeyQueueState, KeyRun
from cometmq.client.offsets.completed_offset_store import CompletedOffsetStore
from cometmq.errors import ClientError, CometError
from cometmq.model.results import BlockedQueue
from cometmq.rules.circuit_breaker import BreakerLimits
from cometmq.rules.failure_policy import FailureAction, default_policy
from cometmq.rules.key_lanes import BARRIER
from cometmq.runtime.system import expand_user_path

if TYPE_CHECKING:
    from collections.abc import Hashable

    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.handling.consume_strategy import StrategyContext
    from cometmq.model.message import MessageExt
    from cometmq.rules.failure_policy import FailureDecision
    from cometmq.rules.key_queue import LaneBatch

log = logging.getLogger(__name__)

_TELL_S = 1.0
_LOOK_S = 0.2
_LOCK_PAUSE_S = 0.5
_STUCK_S = 60.0
_FOR_EVER = float("inf")
_KEYLESS = ("no key",)


class KeyStrategy:
    """Runs the queues of one consumer by key. One loop owns it."""

    def __init__(self, parts: StrategyContext) -> None:
        if parts.locks is None:
            raise ClientError("a consumer by key cannot do without locks")
        options = parts.options
        self._parts, self._options, self._locks = parts, options, parts.locks
        folder = expand_user_path("state_dir", options.state_dir) / "done"
        self._store = CompletedOffsetStore(parts.files, folder, options.group, parts.namesrv)
        self._store.delete_old_files(parts.clock.now_ms())
        self._failure_actions = FailureActions(parts)
        self._states: dict[AssignedQueue, KeyQueueState] = {}
        self._breakers = CircuitBreakers(options.breaker or BreakerLimits())
        self._waiting: deque[KeyQueueState] = deque()
        self._slots = options.consume_threads
        self.overlap_count = 0
        self._default = default_policy(options.max_attempts)

    def start_queue(self, assigned: AssignedQueue) -> None:
        """Start state on a new queue: what its journal knows as done is left out."""
        queue, offset = assigned.queue, assigned.window.next_offset
        found = self._store.open(queue, offset, is_reset=self._parts.offsets.was_reset(queue))
        state = KeyQueueState(assigned, found, self._breakers.breaker_of(queue.topic))
        self._states[assigned] = state
        assigned.committed_offset = offset
        task = asyncio.get_running_loop().create_task(self._keep(state), name=f"{queue}")
        assigned.tasks.append(task)

    def add_messages(self, assigned: AssignedQueue, messages: list[MessageExt]) -> None:
        """Put newly pulled messages into their lanes."""
        state = self._states.get(assigned)
        if state is None or not messages:
            return
        assigned.window.take(len(messages))
        state.key_queue.add_messages((self._key_of(message), message) for message in messages)
        self._want(state)
        self._pump()

    async def drain_queue(self, assigned: AssignedQueue, timeout_s: float) -> bool:
        """Wait until no handler has a message of the queue; then write and tell how far it is."""
        state = self._states.get(assigned)
        if state is None:
            return True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while assigned.in_flight and loop.time() < deadline:
            await asyncio.sleep(0.01)
        for task in assigned.tasks:
            task.cancel()
        await asyncio.wait(assigned.tasks)
        self._write(state)
        if not self._parts.offsets.was_reset(assigned.queue):  # else that is where it begins
            await self._tell(state)
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
                head, queue = lane.waiting[0], state.assigned.queue
                entry = (
                    head.queue_offset,
                    head.msg_id,
                    head.reconsume_times,
                    lane.failing_since_ms,
                )
                found.append(BlockedQueue(queue, *entry, lane.failure_reason))
        return found

    def running_info(self) -> dict[str, str]:
        """Which topics have an outage, and which keys hold back their queues."""
        found = {"KEY_OVERLAPS": str(self.overlap_count), **self._breakers.running_info()}
        for state in self._states.values():
            if (lane := state.key_queue.blocking_lane()) is not None:
                found[f"KEY_STUCK {state.assigned.queue}"] = _story(
                    lane.waiting[0], lane.failure_reason
                )
        return found

    def close(self) -> None:
        """Let go of the journals of queues whose handlers did not end."""
        for state in self._states.values():
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

    def _want(self, state: KeyQueueState) -> None:
        """Have a queue ask for a slot."""
        if not state.is_waiting_for_slot and not state.assigned.is_dropped:
            state.is_waiting_for_slot = True
            self._waiting.append(state)

    def _woken(self, state: KeyQueueState) -> None:
        self._want(state)
        self._pump()

    def _topic_woken(self, topic: str) -> None:
        now = asyncio.get_running_loop().time()
        own = [state for state in self._states.values() if state.assigned.queue.topic == topic]
        for state in sorted(own, key=lambda state: state.key_queue.probe_rank(now)):
            self._want(state)
        self._pump()

    def _pump(self) -> None:
        """Give free slots to queues that have something to do, in batch."""
        now = asyncio.get_running_loop().time()
        while self._slots and self._waiting:
            state = self._waiting.popleft()
            state.is_waiting_for_slot = False
            if self._start_batch(state, now):
                self._want(state)

    def _start_batch(self, state: KeyQueueState, now: float) -> bool:
        assigned, size = state.assigned, self._options.batch_size
        if assigned.is_dropped or not assigned.holds_lock(now):
            return False
        batch = state.key_queue.take_batch(max(size, RUN_MESSAGES), now)
        if batch is None:
            self._set_alarm(state, now)
            return False
        if batch.messages[0].queue_offset <= batch.lane.one_by_one_until:
            size = 1
        clock = asyncio.get_running_loop().time
        subscription = self._parts.subscriptions.subscription_of(batch.messages[0].topic)
        call = KeyRun(state, batch, subscription, clock)
        assigned.in_flight += 1
        self._slots -= 1
        if subscription.is_async:
            self._parts.tasks.submit(self._run_async(call, size))
        else:
            self._parts.threads.submit(partial(call.run, size), partial(self._ended, call))
        return True

    def _set_alarm(self, state: KeyQueueState, now: float) -> None:
        """Look at a queue again when its first resting lane goes on."""
        if state.wake_timer is not None:
            state.wake_timer.cancel()
            state.wake_timer = None
        wake = state.key_queue.next_wake_at()
        if wake is not None and now < wake < _FOR_EVER:
            state.wake_timer = asyncio.get_running_loop().call_at(wake, self._woken, state)

    async def _run_async(self, call: KeyRun, size: int) -> None:
        await call.run_async(size)
        self._ended(call)

    def _ended(self, call: KeyRun) -> None:
        state, batch = call.state, call.batch
        now = asyncio.get_running_loop().time()
        self._slots += 1
        state.assigned.consumed_at = now
        topic, breaker = state.assigned.queue.topic, state.key_queue.breaker
        self._count(call, now)
        if call.done:
            well = max(1, call.calls - bool(call.failed))
            if state.key_queue.record_success(batch, call.done, now, well):
                self._breakers.log_closed(topic)
                self._topic_woken(topic)
            self._noted(state)
        if call.failed:
            self._failed(call, now)
        else:
            self._release_batch(state, batch, None)
            if batch.is_probe and not call.done:
                breaker.cancel_probe()
                self._topic_woken(topic)
        self._pump()

    def _count(self, call: KeyRun, now: float) -> None:
        call.report_to(self._parts.stats)
        if call.calls and not call.assigned.holds_lock(now):
            # it ran out meanwhile: somebody else may have them too
            self.overlap_count += call.done + call.failed

    def _failed(self, call: KeyRun, now: float) -> None:
        state, batch, outcome = call.state, call.batch, call.outcome
        breaker, topic = state.key_queue.breaker, state.assigned.queue.topic
        batch.lane.failure_reason = outcome.reason
        batch.lane.failing_since_ms = batch.lane.failing_since_ms or self._parts.clock.now_ms()
        rest_ms = self._options.suspend_ms if outcome.suspend_ms is None else outcome.suspend_ms
        policy = self._failure_actions.policy_of(call.subscription, outcome) or self._default
        decision, has_begun = state.key_queue.record_failure(
            batch, call.failed, policy, rest_ms, now
        )
        if breaker.next_probe_at is not None and (has_begun or batch.is_probe):
            if has_begun:
                self._breakers.log_opened(topic, outcome.reason)
            loop = asyncio.get_running_loop()
            loop.call_at(breaker.next_probe_at, self._topic_woken, topic)
        if decision.action is FailureAction.NONE:
            self._noted(state)  # a restart goes on counting
            self._release_batch(state, batch, now + decision.pause_ms / 1000)
        else:
            self._spawn(call, decision)

    def _spawn(self, call: KeyRun, decision: FailureDecision) -> None:
        name = f"{decision.action.name} {call.state.assigned.queue}"
        self._parts.background.spawn(self._end(call, decision), name=name)

    async def _end(self, call: KeyRun, decision: FailureDecision) -> None:
        """Have the head message meet its end; its lane waits for that."""
        state, is_over, is_met = call.state, False, False
        assigned, message = state.assigned, call.batch.messages[0]
        try:
            is_met = await self._failure_actions.apply(assigned, message, decision, call.outcome)
            is_over = True
        finally:
            if is_met:
                state.key_queue.finish(call.batch, 1)
                self._noted(state)
            rest_until = _FOR_EVER if decision.action is FailureAction.STOP else None
            self._release_batch(state, call.batch, rest_until)
            if not is_over:
                self._parts.restart_after_error(assigned)
            self._pump()

    def _release_batch(
        self, state: KeyQueueState, batch: LaneBatch[MessageExt], rest_until: float | None
    ) -> None:
        state.key_queue.release(batch, rest_until)
        state.assigned.in_flight -= 1
        self._want(state)

    def _noted(self, state: KeyQueueState) -> None:
        if not state.is_write_scheduled:
            state.is_write_scheduled = True
            asyncio.get_running_loop().call_soon(self._write, state)

    def _write(self, state: KeyQueueState) -> None:
        """Write down what is finished or has failed, unless somebody else may have the queue."""
        state.is_write_scheduled = False
        if not state.assigned.has_lost_lock:
            state.file.append(state.key_queue.take_journal_records())

    async def _keep(self, state: KeyQueueState) -> None:
        """Keep the lock and the broker's knowledge up to date until the queue is dropped."""
        loop, assigned = asyncio.get_running_loop(), state.assigned
        while not assigned.is_dropped:
            now = loop.time()
            if not assigned.holds_lock(now):
                await self._regain(state)
            elif self._is_due(state, now):
                await self._tell(state)
            self._look_for_stuck(state, now)
            await asyncio.sleep(_LOOK_S)

    def _is_due(self, state: KeyQueueState, now: float) -> bool:
        pause_s = min(_TELL_S, self._options.persist_s)
        return (
            now >= state.committed_at + pause_s
            or state.assigned.span > self._options.flow.span // 2
        )

    async def _tell(self, state: KeyQueueState) -> None:
        """Tell the broker the lowest unfinished offset, if it is news: first the journal, then it.

        Never raises for a broker that does not answer: the next time comes soon.
        """
        assigned, journal, offsets = state.assigned, state.file.journal, self._parts.offsets
        async with state.commit_lock:
            self._write(state)
            offset, is_first = assigned.window.commit_offset, not state.committed_at
            if assigned.has_lost_lock or (offset == assigned.committed_offset and not is_first):
                return
            state.committed_at = asyncio.get_running_loop().time()
            state.file.append(journal.record_commit_begin(offset))
            try:
                await offsets.commit(assigned.queue, offset)
            except CometError as error:
                log.debug("the offset of %s is told later: %s", assigned.queue, error)
                return
            state.file.append(journal.record_commit_done(offset))
            assigned.committed_offset = offset
            if not assigned.is_dropped:
                offsets.remember(assigned.queue, offset)

    async def _regain(self, state: KeyQueueState) -> None:
        """Take the lock again; whoever had it meanwhile may have gone on, then start anew."""
        assigned = state.assigned
        assigned.lose_lock()
        until = (await self._locks.lock([assigned.queue])).get(assigned.queue)
        if assigned.is_dropped:
            return
        if not until:
            await asyncio.sleep(_LOCK_PAUSE_S)
            return
        try:
            committed = await self._parts.offsets.committed(assigned.queue)
        except CometError:
            return
        if assigned.is_dropped:
            return
        if committed is not None and committed > assigned.window.commit_offset:
            log.info("%s went on elsewhere: it starts anew here at %d", assigned.queue, committed)
            self._parts.restart_queue(assigned)
            return
        assigned.has_lost_lock = False
        assigned.lock_until = until
        self._write(state)
        self._woken(state)

    def _look_for_stuck(self, state: KeyQueueState, now: float) -> None:
        """Say which key holds a queue back that can go no further, every minute."""
        assigned, limits = state.assigned, self._options.flow
        if assigned.span <= limits.span // 2 and assigned.window.count <= limits.count // 2:
            return
        if (
            now < state.blocking_logged_at + _STUCK_S
            or (lane := state.key_queue.blocking_lane()) is None
        ):
            return
        state.blocking_logged_at = now
        log.warning(
            "%s is held back by the key %r: %s; %d of at most %d unfinished messages, %d of at "
            "most %d offsets ahead: other keys wait once a bound is reached",
            assigned.queue,
            lane.key,
            _story(lane.waiting[0], lane.failure_reason),
            assigned.window.count,
            limits.count,
            assigned.span,
            limits.span,
        )


def _story(message: MessageExt, reason: str) -> str:
    """What operators want to know of a message that holds others up."""
    return (
        f"offset {message.queue_offset} of {message.msg_id}, stored at {message.store_ms}, "
        f"{message.reconsume_times} failures, the last: {reason}"
    )
