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
from cometmq.client.handling.key_run import STINT_MESSAGES, AssignedKeyQueue, KeyRun
from cometmq.client.offsets.completed_offset_store import CompletedOffsetStore
from cometmq.errors import ClientError, CometError
from cometmq.model.results import BlockedQueue
from cometmq.rules.circuit_breaker import BreakerLimits
from cometmq.rules.failure_policy import FailureAction, default_policy
from cometmq.rules.key_lanes import BARRIER
from cometmq.runtime.system import at_home

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
        folder = at_home("state_dir", options.state_dir) / "done"
        self._store = CompletedOffsetStore(parts.files, folder, options.group, parts.namesrv)
        self._store.sweep(parts.clock.now_ms())
        self._endings = FailureActions(parts)
        self._works: dict[AssignedQueue, AssignedKeyQueue] = {}
        self._outages = CircuitBreakers(options.breaker or BreakerLimits())
        self._waiting: deque[AssignedKeyQueue] = deque()
        self._slots = options.consume_threads
        self.overlaps = 0
        self._default = default_policy(options.max_attempts)

    def begin(self, assigned: AssignedQueue) -> None:
        """Start work on a new queue: what its journal knows as done is left out."""
        queue, offset = assigned.queue, assigned.window.next_offset
        found = self._store.open(queue, offset, is_reset=self._parts.offsets.was_reset(queue))
        work = AssignedKeyQueue(assigned, found, self._outages.of(queue.topic))
        self._works[assigned] = work
        assigned.told = offset
        task = asyncio.get_running_loop().create_task(self._keep(work), name=f"{queue}")
        assigned.tasks.append(task)

    def feed(self, assigned: AssignedQueue, messages: list[MessageExt]) -> None:
        """Put newly pulled messages into their lanes."""
        work = self._works.get(assigned)
        if work is None or not messages:
            return
        assigned.window.take(len(messages))
        work.keys.feed((self._key_of(message), message) for message in messages)
        self._want(work)
        self._pump()

    async def drain(self, assigned: AssignedQueue, timeout_s: float) -> bool:
        """Wait until no handler has a message of the queue; then write and tell how far it is."""
        work = self._works.get(assigned)
        if work is None:
            return True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while assigned.in_hand and loop.time() < deadline:
            await asyncio.sleep(0.01)
        for task in assigned.tasks:
            task.cancel()
        await asyncio.wait(assigned.tasks)
        self._write(work)
        if not self._parts.offsets.was_reset(assigned.queue):  # else that is where it begins
            await self._tell(work)
        if assigned.in_hand:
            return False
        del self._works[assigned]
        work.close()
        return True

    def blocked(self) -> list[BlockedQueue]:
        """The queues whose commit is held back by a message that keeps failing."""
        found = []
        for work in self._works.values():
            if (lane := work.keys.stuck()) is not None:
                head, queue = lane.waiting[0], work.assigned.queue
                entry = (head.queue_offset, head.msg_id, head.reconsume_times, lane.since_ms)
                found.append(BlockedQueue(queue, *entry, lane.reason))
        return found

    def facts(self) -> dict[str, str]:
        """Which topics have an outage, and which keys hold back their queues."""
        found = {"KEY_OVERLAPS": str(self.overlaps), **self._outages.facts()}
        for work in self._works.values():
            if (lane := work.keys.stuck()) is not None:
                found[f"KEY_STUCK {work.assigned.queue}"] = _story(lane.waiting[0], lane.reason)
        return found

    def close(self) -> None:
        """Let go of the journals of queues whose handlers did not end."""
        for work in self._works.values():
            work.close()
        self._works.clear()

    def _key_of(self, message: MessageExt) -> Hashable:
        key = self._options.key
        found: Hashable
        if key is None:
            found = message.sharding_key
        elif isinstance(key, str):
            found = message.properties.get(key)
        else:
            found = handlers.key_of(key, message)
        if found is not None:
            return found
        rule = self._options.without_key
        if rule == "barrier":
            return BARRIER
        return _KEYLESS if rule == "lane" else (*_KEYLESS, message.queue_offset)

    def _want(self, work: AssignedKeyQueue) -> None:
        """Have a queue ask for a slot."""
        if not work.is_waiting and not work.assigned.is_dropped:
            work.is_waiting = True
            self._waiting.append(work)

    def _woken(self, work: AssignedKeyQueue) -> None:
        self._want(work)
        self._pump()

    def _topic_woken(self, topic: str) -> None:
        now = asyncio.get_running_loop().time()
        own = [work for work in self._works.values() if work.assigned.queue.topic == topic]
        for work in sorted(own, key=lambda work: work.keys.probe_rank(now)):
            self._want(work)
        self._pump()

    def _pump(self) -> None:
        """Give free slots to queues that have something to do, in turn."""
        now = asyncio.get_running_loop().time()
        while self._slots and self._waiting:
            work = self._waiting.popleft()
            work.is_waiting = False
            if self._begin_turn(work, now):
                self._want(work)

    def _begin_turn(self, work: AssignedKeyQueue, now: float) -> bool:
        assigned, size = work.assigned, self._options.batch_size
        if assigned.is_dropped or not assigned.holds_lock(now):
            return False
        turn = work.keys.begin(max(size, STINT_MESSAGES), now)
        if turn is None:
            self._set_alarm(work, now)
            return False
        if turn.messages[0].queue_offset <= turn.lane.alone_until:
            size = 1
        clock = asyncio.get_running_loop().time
        subscription = self._parts.subscriptions.handler_of(turn.messages[0].topic)
        call = KeyRun(work, turn, subscription, clock)
        assigned.in_hand += 1
        self._slots -= 1
        if subscription.is_async:
            self._parts.tasks.submit(self._run_async(call, size))
        else:
            self._parts.threads.submit(partial(call.run, size), partial(self._ended, call))
        return True

    def _set_alarm(self, work: AssignedKeyQueue, now: float) -> None:
        """Look at a queue again when its first resting lane goes on."""
        if work.wake is not None:
            work.wake.cancel()
            work.wake = None
        wake = work.keys.next_wake()
        if wake is not None and now < wake < _FOR_EVER:
            work.wake = asyncio.get_running_loop().call_at(wake, self._woken, work)

    async def _run_async(self, call: KeyRun, size: int) -> None:
        await call.run_async(size)
        self._ended(call)

    def _ended(self, call: KeyRun) -> None:
        work, turn = call.work, call.turn
        now = asyncio.get_running_loop().time()
        self._slots += 1
        work.assigned.consumed_at = now
        topic, breaker = work.assigned.queue.topic, work.keys.breaker
        self._count(call, now)
        if call.done:
            well = max(1, call.calls - bool(call.failed))
            if work.keys.succeeded(turn, call.done, now, well):
                self._outages.ended(topic)
                self._topic_woken(topic)
            self._noted(work)
        if call.failed:
            self._failed(call, now)
        else:
            self._put_down(work, turn, None)
            if turn.is_probe and not call.done:
                breaker.gave_nothing()
                self._topic_woken(topic)
        self._pump()

    def _count(self, call: KeyRun, now: float) -> None:
        call.tell(self._parts.stats)
        if call.calls and not call.assigned.holds_lock(now):
            # it ran out meanwhile: somebody else may have them too
            self.overlaps += call.done + call.failed

    def _failed(self, call: KeyRun, now: float) -> None:
        work, turn, outcome = call.work, call.turn, call.outcome
        breaker, topic = work.keys.breaker, work.assigned.queue.topic
        turn.lane.reason = outcome.reason
        turn.lane.since_ms = turn.lane.since_ms or self._parts.clock.now_ms()
        rest_ms = self._options.suspend_ms if outcome.suspend_ms is None else outcome.suspend_ms
        policy = self._endings.policy_of(call.subscription, outcome) or self._default
        verdict, has_begun = work.keys.failed(turn, call.failed, policy, rest_ms, now)
        if breaker.next_probe is not None and (has_begun or turn.is_probe):
            if has_begun:
                self._outages.began(topic, outcome.reason)
            loop = asyncio.get_running_loop()
            loop.call_at(breaker.next_probe, self._topic_woken, topic)
        if verdict.ending is FailureAction.NONE:
            self._noted(work)  # a restart goes on counting
            self._put_down(work, turn, now + verdict.rest_ms / 1000)
        else:
            self._spawn(call, verdict)

    def _spawn(self, call: KeyRun, verdict: FailureDecision) -> None:
        name = f"{verdict.ending.name} {call.work.assigned.queue}"
        self._parts.background.spawn(self._end(call, verdict), name=name)

    async def _end(self, call: KeyRun, verdict: FailureDecision) -> None:
        """Have the head message meet its end; its lane waits for that."""
        work, is_over, is_met = call.work, False, False
        assigned, message = work.assigned, call.turn.messages[0]
        try:
            is_met = await self._endings.meet(assigned, message, verdict, call.outcome)
            is_over = True
        finally:
            if is_met:
                work.keys.finish(call.turn, 1)
                self._noted(work)
            rest_until = _FOR_EVER if verdict.ending is FailureAction.STOP else None
            self._put_down(work, call.turn, rest_until)
            if not is_over:
                self._parts.broke_off(assigned)
            self._pump()

    def _put_down(
        self, work: AssignedKeyQueue, turn: LaneBatch[MessageExt], rest_until: float | None
    ) -> None:
        work.keys.put_down(turn, rest_until)
        work.assigned.in_hand -= 1
        self._want(work)

    def _noted(self, work: AssignedKeyQueue) -> None:
        if not work.is_unwritten:
            work.is_unwritten = True
            asyncio.get_running_loop().call_soon(self._write, work)

    def _write(self, work: AssignedKeyQueue) -> None:
        """Write down what is finished or has failed, unless somebody else may have the queue."""
        work.is_unwritten = False
        if not work.assigned.has_lost_lock:
            work.log.append(work.keys.unwritten())

    async def _keep(self, work: AssignedKeyQueue) -> None:
        """Keep the lock and the broker's knowledge up to date until the queue is dropped."""
        loop, assigned = asyncio.get_running_loop(), work.assigned
        while not assigned.is_dropped:
            now = loop.time()
            if not assigned.holds_lock(now):
                await self._regain(work)
            elif self._is_due(work, now):
                await self._tell(work)
            self._look_for_stuck(work, now)
            await asyncio.sleep(_LOOK_S)

    def _is_due(self, work: AssignedKeyQueue, now: float) -> bool:
        pause_s = min(_TELL_S, self._options.persist_s)
        return now >= work.told_at + pause_s or work.assigned.span > self._options.flow.span // 2

    async def _tell(self, work: AssignedKeyQueue) -> None:
        """Tell the broker the lowest unfinished offset, if it is news: first the journal, then it.

        Never raises for a broker that does not answer: the next time comes soon.
        """
        assigned, journal, offsets = work.assigned, work.log.journal, self._parts.offsets
        async with work.is_telling:
            self._write(work)
            offset, is_first = assigned.window.commit_offset, not work.told_at
            if assigned.has_lost_lock or (offset == assigned.told and not is_first):
                return
            work.told_at = asyncio.get_running_loop().time()
            work.log.append(journal.telling(offset))
            try:
                await offsets.commit(assigned.queue, offset)
            except CometError as error:
                log.debug("the offset of %s is told later: %s", assigned.queue, error)
                return
            work.log.append(journal.told(offset))
            assigned.told = offset
            if not assigned.is_dropped:
                offsets.remember(assigned.queue, offset)

    async def _regain(self, work: AssignedKeyQueue) -> None:
        """Take the lock again; whoever had it meanwhile may have gone on, then start anew."""
        assigned = work.assigned
        assigned.lose_lock()
        until = (await self._locks.take([assigned.queue])).get(assigned.queue)
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
            self._parts.give_up(assigned)
            return
        assigned.has_lost_lock = False
        assigned.lock_until = until
        self._write(work)
        self._woken(work)

    def _look_for_stuck(self, work: AssignedKeyQueue, now: float) -> None:
        """Say which key holds a queue back that can go no further, every minute."""
        assigned, limits = work.assigned, self._options.flow
        if assigned.span <= limits.span // 2 and assigned.window.count <= limits.count // 2:
            return
        if now < work.stuck_said + _STUCK_S or (lane := work.keys.stuck()) is None:
            return
        work.stuck_said = now
        log.warning(
            "%s is held back by the key %r: %s; %d of at most %d unfinished messages, %d of at "
            "most %d offsets ahead: other keys wait once a bound is reached",
            assigned.queue,
            lane.key,
            _story(lane.waiting[0], lane.reason),
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
