"""Makes the calls of runs, in threads or in tasks: a worker makes one after the other.

Owns how many workers there are, and when ended calls are taken; knows nothing of windows and
failures. While a topic's handler is quick one worker makes its calls, since others would only take
turns with it; when it is not, or does not come back, as many work as there are calls and places.
Invariants: each call is claimed by one worker and reported on the loop once; whatever has ended is
reported within `HOLD_S`, also while a call beside it goes on for hours.
Java: the executor of ConsumeMessageConcurrentlyService
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, cast

from cometmq.client.handling import handler_call as handlers
from cometmq.client.handling.call_run import CallRun
from cometmq.runtime.loop_clock import is_in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.handling.call_run import EndedCalls
    from cometmq.client.handling.handler_call import AsyncHandler, SyncHandler
    from cometmq.client.handling.worker_pools import TaskPool, ThreadPool

    OnEnded = Callable[[CallRun, EndedCalls], None]

log = logging.getLogger(__name__)

RunningCall = tuple[CallRun, int, float]
"""The run, the place of the call in it, and when (loop time) it began."""
HOLD_S = 0.01
"""How long ended calls wait for the others of their run: a window is quick with whole pulls."""
_GAP_S = 0.001
"""The shortest time between two looks at what has ended, and at workers that do not come back."""
_TURN_S = 0.005
"""How long a worker makes calls before it looks whether others want its place."""
_CANCELLED = handlers.HandlerOutcome(
    is_done=False, reason="its task was cancelled", error=asyncio.CancelledError()
)
_QUICK_S = 0.00005
"""A handler that takes less is quick: to wake another thread costs as much."""


class CallWorker:
    """One worker, from its start until nothing waits or others want its place."""

    __slots__ = ("call", "seen")

    def __init__(self) -> None:
        self.call: RunningCall | None = None
        """The call that it makes now."""
        self.seen: RunningCall | None = None
        """The call that it made when somebody looked."""


class CallWorkers(ABC):
    """The workers of one consumer, in threads or in tasks. One loop owns it."""

    def __init__(self, on_ended: OnEnded) -> None:
        """`on_ended` is called on the loop."""
        self._loop = asyncio.get_running_loop()
        self._on_ended = on_ended
        self._is_in_virtual_time = is_in_virtual_time()
        # uvloop's own time stands still while a worker is busy
        self._clock = self._loop.time if self._is_in_virtual_time else time.monotonic
        self._turn_s = 0.0 if self._is_in_virtual_time else _TURN_S
        self._runs: dict[CallRun, None] = {}
        """Those with calls that were not taken, in the order in which they came."""
        self._waiting: deque[CallRun] = deque()
        """Those with calls that nobody has claimed, and perhaps some that were just claimed."""
        self._workers: set[CallWorker] = set()
        self._quick_topics: set[str] = set()
        self._is_looking = self._is_woken = self._is_holding = self._is_closed = False
        self._taken_at = 0.0

    @property
    def running(self) -> list[RunningCall]:
        """The calls that are made now."""
        return [call for worker in self._workers if (call := worker.call) is not None]

    def add(self, run: CallRun) -> None:
        """Make the calls of a run after those of the runs before."""
        self._runs[run] = None
        self._waiting.append(run)
        self.start_workers()

    def start_workers(self) -> None:
        """Start as many workers as there should be now."""
        places = 0 if self._is_closed else self._places - len(self._workers)
        if places <= 0:
            return
        calls, quick = self._unclaimed(places)
        is_stuck = all(map(self._is_stuck, self._workers))
        wanted = min(places, calls) if calls else min(quick, is_stuck)
        for _ in range(wanted):
            worker = CallWorker()
            self._start(worker)
            self._workers.add(worker)
        if not self._is_looking and calls + quick > wanted:
            self._is_looking = True
            self._look_later()

    def close(self) -> None:
        """Begin no more calls; the queues were dropped."""
        self._is_closed = True
        self._waiting.clear()

    def _unclaimed(self, most: int) -> tuple[int, int]:
        """Calls that nobody has claimed or is about to, those of quick handlers apart.

        Up to `most`: then counting ends.
        """
        calls = -sum(1 for worker in self._workers if worker.call is None)
        quick, topics = 0, self._quick_topics
        for run in self._runs:
            if run.messages[0].topic in topics:
                quick += run.unclaimed
            else:
                calls += run.unclaimed
            if calls >= most or quick >= most:
                break
        return max(calls, 0), quick

    def skip_queue(self, assigned: AssignedQueue) -> None:
        """Give up the calls of a dropped queue that nobody has claimed."""
        for run in [one for one in self._runs if one.assigned is assigned]:
            for at in run.starts:
                run.skip(at)
            self._retire(run)
            self._end_calls(run)

    @property
    @abstractmethod
    def _places(self) -> int:
        """How many workers there may be."""

    @abstractmethod
    def _start(self, worker: CallWorker) -> None:
        """Have a worker begin; `_end_worker` is called on the loop when it has ended."""

    @abstractmethod
    def _look_later(self) -> None:
        """Call `_look` soon."""

    @abstractmethod
    def _wake(self) -> None:
        """Have `_note` called on the loop (where calls are made)."""

    def _look(self) -> None:
        """Have others help when a worker does not come back while calls wait."""
        self._is_looking = False
        for worker in self._workers:
            if (call := worker.call) is not None and self._is_stuck(worker):
                self._quick_topics.discard(call[0].messages[0].topic)
            worker.seen = call
        self.start_workers()

    def _is_stuck(self, worker: CallWorker) -> bool:
        """Whether a worker makes a call that it made the last time somebody looked."""
        return (call := worker.call) is not None and call is worker.seen

    def _end_worker(self, worker: CallWorker) -> None:
        self._workers.discard(worker)
        self.start_workers()
        if not self._is_woken:  # nobody wakes the loop for the last call of a worker
            self._is_woken = True
            self._note()

    def _first_waiting(self) -> CallRun | None:
        try:
            return self._waiting[0]
        except IndexError:
            return None

    def _retire(self, run: CallRun) -> None:
        """Note that all calls of a run were claimed; several workers may find out."""
        with suppress(ValueError):
            self._waiting.remove(run)

    def _is_surplus(self, run: CallRun) -> bool:
        """Whether one worker less is better for calls as quick as those of this run."""
        return len(self._workers) > 1 and run.messages[0].topic in self._quick_topics

    def _note(self) -> None:
        """Take what has ended, now or soon."""
        wait_s = self._taken_at + _GAP_S - self._clock()
        if wait_s <= 0:
            self._take_ended()
        else:
            self._loop.call_later(wait_s, self._take_ended)

    def _take_held(self) -> None:
        self._is_holding = False
        self._take_ended()

    def _take_ended(self) -> None:
        """Report runs that have ended, failures, and ended calls that have waited for others."""
        self._is_woken = False  # before looking: who ends later wakes the loop again
        now = self._taken_at = self._clock()
        ready: deque[CallRun] = deque()
        for run in self._runs:
            if not run.ended:
                if run.unclaimed == run.open:
                    break  # nobody has come so far
            elif len(run.ended) == run.open or run.failures or 0 < run.held_until <= now:
                ready.append(run)
            else:
                run.held_until = run.held_until or now + HOLD_S
                if not self._is_holding:
                    self._is_holding = True
                    self._loop.call_later(HOLD_S, self._take_held)
        try:
            while ready:
                self._end_calls(ready.popleft())
        finally:
            if ready:  # an error of one, which the loop reports, does not hold up the others
                self._loop.call_soon(self._take_ended)

    def _end_calls(self, run: CallRun) -> None:
        self._judge(run)
        ended = run.take_ended()
        if not run.open:
            del self._runs[run]
        if ended.places:
            self._on_ended(run, ended)

    def _judge(self, run: CallRun) -> None:
        """Note whether most of the calls that have ended were quick: of three, two."""
        spent = run.spent
        if spent:
            some = sorted((spent[0], spent[len(spent) // 2], spent[-1]))
            change = self._quick_topics.add if some[1] < _QUICK_S else self._quick_topics.discard
            change(run.messages[0].topic)


class ThreadWorkers(CallWorkers):
    """Workers for plain handlers."""

    def __init__(self, pool: ThreadPool, on_ended: OnEnded) -> None:
        super().__init__(on_ended)
        self._pool = pool

    @property
    def _places(self) -> int:
        return self._pool.count

    def _start(self, worker: CallWorker) -> None:
        self._pool.submit(partial(self._work, worker), partial(self._end_worker, worker))

    def _look_later(self) -> None:
        self._loop.call_later(_GAP_S, self._look)

    def _wake(self) -> None:
        self._is_woken = True
        if self._is_in_virtual_time:
            self._loop.call_soon(self._note)
            return
        with suppress(RuntimeError):  # the loop has ended: nobody waits any more
            self._loop.call_soon_threadsafe(self._note)

    def _work(self, worker: CallWorker) -> None:
        """Make calls (in a thread)."""
        clock, call_handler = self._clock, handlers.call_handler
        now = clock()
        until, has_ended = now + self._turn_s, False
        while (run := self._first_waiting()) is not None:
            handler = cast("SyncHandler", run.subscription.handler)
            messages, size, unreadable, assigned = (
                run.messages,
                run.size,
                run.unreadable,
                run.assigned,
            )
            for at in run.starts:
                if has_ended and not self._is_woken:
                    self._wake()
                if assigned.is_dropped or (run.breaker is not None and run.is_out):
                    run.skip(at)
                else:
                    worker.call = run, at, now
                    outcome = unreadable or call_handler(handler, messages, at, at + size)
                    began, now = now, clock()
                    run.end(at, outcome, now - began)
                    worker.call = None
                has_ended = True
                if now >= until:
                    if self._pool.is_wanted or self._is_in_virtual_time or self._is_surplus(run):
                        return
                    until = now + self._turn_s
            self._retire(run)


class TaskWorkers(CallWorkers):
    """Workers for async handlers."""

    def __init__(self, pool: TaskPool, on_ended: OnEnded) -> None:
        super().__init__(on_ended)
        self._pool = pool

    @property
    def _places(self) -> int:
        return self._pool.count

    def _start(self, worker: CallWorker) -> None:
        self._pool.submit(self._run(worker))

    def _look_later(self) -> None:
        self._loop.call_soon(self._look)

    def _is_stuck(self, worker: CallWorker) -> bool:
        return worker.call is not None  # who has not ended when the loop goes on waits

    def _wake(self) -> None:
        self._is_woken = True
        self._loop.call_soon(self._note)

    async def _run(self, worker: CallWorker) -> None:
        try:
            await self._work(worker)
        finally:
            if not self._loop.is_closed():
                if worker.call is not None:
                    self._end_cancelled(*worker.call)
                self._end_worker(worker)

    def _end_cancelled(self, run: CallRun, at: int, began: float) -> None:
        """End a call whose task was cancelled, be it by the handler itself."""
        if run.assigned.is_dropped:
            run.skip(at)
        else:
            log.warning("the task was cancelled that handled %s, which has failed", run.call(at)[0])
            run.end(at, _CANCELLED, self._clock() - began)

    async def _work(self, worker: CallWorker) -> None:
        clock, call_handler = self._clock, handlers.call_async_handler
        clean, me = copy_context(), cast("asyncio.Task[None]", asyncio.current_task())
        now = clock()
        until, has_ended = now + self._turn_s, False
        while (run := self._first_waiting()) is not None:
            handler = cast("AsyncHandler", run.subscription.handler)
            messages, size, unreadable, assigned = (
                run.messages,
                run.size,
                run.unreadable,
                run.assigned,
            )
            for at in run.starts:
                if has_ended and not self._is_woken:
                    self._wake()
                if assigned.is_dropped or (run.breaker is not None and run.is_out):
                    run.skip(at)
                else:
                    worker.call = run, at, now
                    outcome = unreadable or await call_handler(handler, messages, at, at + size)
                    began, now = now, clock()
                    run.end(at, outcome, now - began)
                    worker.call = None
                    if run.failures:  # at once: a stop that follows would give its message away
                        self._end_calls(run)
                has_ended = True
                if me.cancelling() or copy_context() != clean:
                    return  # neither reaches the next call
                if now >= until:
                    await asyncio.sleep(0)
                    if self._pool.is_wanted:
                        return
                    now = clock()
                    until = now + self._turn_s
            self._retire(run)
