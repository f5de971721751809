"""Where handlers run: plain ones in threads, async ones as tasks, a bounded number of either.

In virtual time plain ones run on the loop, one after the other.
Owns threads, tasks and how results return to the loop; knows nothing of messages and outcomes.
Invariant: each job's end is reported on the loop exactly once, many ends with one wake-up.
Java: the executor of ConsumeMessageConcurrentlyService and ConsumeMessageOrderlyService
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import copy_context
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from cometmq.runtime.loop_clock import is_in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Job = Callable[[], None]

_TURN_S = 0.005
"""How long a worker runs jobs that never wait before others of the loop have their turn."""
_LOOK = (lambda: None, lambda: None)
"""In the place of a job: look whether you are to leave."""


class ThreadPool:
    """Threads that run plain jobs. The caller bounds the number of jobs. One loop owns it."""

    def __init__(self, count: int, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._count = count
        self._name = name
        self._jobs: SimpleQueue[tuple[Job, Job] | None] = SimpleQueue()
        self._finished: deque[Job] = deque()
        self._alive = 0
        """Threads that run, without those that are to leave."""
        self._leaving: deque[None] = deque()
        """An entry for each thread that is to leave: whichever comes by next takes it."""
        self._made = 0
        self._open = 0
        self._is_woken = False
        self._has_threads = not is_in_virtual_time()

    def submit(self, job: Job, done: Job) -> None:
        """Run `job`, which must not raise, in a thread; then call `done` on the loop."""
        self._open += 1
        if not self._has_threads:
            self._loop.call_soon(self._run_on_loop, job, done)
            return
        if self._open > self._alive < self._count:
            self._start_thread()
        self._jobs.put((job, done))

    def resize(self, count: int) -> None:
        """Run up to `count` jobs at once from now on; threads too many end after their job."""
        self._count = count
        while self._alive > count:
            self._alive -= 1
            self._leaving.append(None)
            self._jobs.put(_LOOK)  # for one that waits
        while self._has_threads and self._alive < min(count, self._open):
            self._start_thread()

    @property
    def count(self) -> int:
        """How many jobs may run at once."""
        return self._count

    @property
    def busy(self) -> int:
        """Jobs that run now."""
        return min(self._open, self._count)

    @property
    def is_wanted(self) -> bool:
        """Whether another job waits for the thread of one that goes on, or nobody should have it.

        Any thread may ask.
        """
        return not self._jobs.empty() or bool(self._leaving)

    async def run(self, job: Job) -> None:
        """Run `job`, which must not raise, in a thread and wait for its end.

        When the caller is cancelled, the job goes on and nobody waits for it.
        """
        ended: asyncio.Future[None] = self._loop.create_future()
        self.submit(job, lambda: ended.set_result(None))
        await asyncio.shield(ended)

    def close(self) -> None:
        """Let each thread end once the jobs given before are done; waits for none."""
        for _ in range(self._alive):
            self._jobs.put(None)
        self._alive = 0

    def _run_on_loop(self, job: Job, done: Job) -> None:
        job()
        self._finished.append(done)
        self._collect()

    def _start_thread(self) -> None:
        try:
            self._leaving.pop()  # one stays that was to leave
        except IndexError:
            name = f"{self._name}-{self._made}"
            Thread(target=self._work, name=name, daemon=True).start()
            self._made += 1
        self._alive += 1  # one that could not be started is not counted

    def _work(self) -> None:
        while (task := self._jobs.get()) is not None:
            if task is not _LOOK:
                job, done = task
                job()
                self._finished.append(done)
                if not self._is_woken:
                    self._is_woken = True
                    self._wake()
            if self._leaving and self._may_leave():
                return

    def _may_leave(self) -> bool:
        """Take the place of one thread that is to leave, unless another has taken it."""
        try:
            self._leaving.pop()
        except IndexError:
            return False
        return True

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._collect)
        except RuntimeError:
            self._finished.clear()  # the loop has ended: nobody waits any more

    def _collect(self) -> None:
        self._is_woken = False  # before looking: who appends later wakes the loop again
        left = len(self._finished)
        try:
            while left:
                left -= 1
                self._open -= 1
                assert self._open >= 0, "more jobs ended than began"
                self._finished.popleft()()
        finally:
            if left:  # an error of one, which the loop reports, does not hold up the others
                self._loop.call_soon(self._collect)


class Slots:
    """So many places for work, as a context manager; those who find none wait in turn.

    A semaphore whose number may change while places are taken. One loop owns it.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def resize(self, count: int) -> None:
        """Have so many places from now on; work in places too many goes on."""
        self._count = count
        self._wake()

    async def __aenter__(self) -> None:
        """Take a place."""
        if self._taken < self._count and not self._waiting:
            self._taken += 1
            return
        mine = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self._free()  # it was given the place just now
            raise

    async def __aexit__(self, *exc: object) -> None:
        """Give the place back."""
        self._free()

    def _free(self) -> None:
        self._taken -= 1
        assert self._taken >= 0, "a place was given back twice"
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self._taken < self._count:
            first = self._waiting.popleft()
            if not first.done():
                self._taken += 1
                first.set_result(None)


class TaskPool:
    """Runs async jobs, `count` at a time; the others wait. One loop owns it.

    A worker is a task that awaits one job after the other, so a job that never waits costs no task
    of its own (measured: 5 us). While a job waits for something, another worker goes on with the
    next ones. A worker ends when nothing waits, and after a job that has changed its context or
    has left a request to cancel it: neither reaches the next job.
    """

    def __init__(self, count: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._count = count
        self._waiting: deque[Coroutine[object, object, None]] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._busy = 0
        self._is_checked = False
        """Whether the loop will look soon for jobs that wait although others could run them."""
        self._context = copy_context()

    def resize(self, count: int) -> None:
        """Run up to `count` jobs at once from now on; those that run go on."""
        self._count = count
        self._start_workers()

    def submit(self, job: Coroutine[object, object, None]) -> None:
        """Run a coroutine as soon as fewer than `count` others are running."""
        self._waiting.append(job)
        if not self._workers:
            self._start_workers()
        elif not self._is_checked:
            self._check_soon()

    @property
    def count(self) -> int:
        """How many jobs may run at once."""
        return self._count

    @property
    def busy(self) -> int:
        """Jobs that run now."""
        return self._busy

    @property
    def is_wanted(self) -> bool:
        """Whether another job waits for the place of one that goes on, or nobody should have it."""
        return bool(self._waiting) or len(self._workers) > self._count

    def close(self) -> None:
        """Drop the jobs that have not begun and cancel the others."""
        for job in self._waiting:
            job.close()
        self._waiting.clear()
        for worker in self._workers:
            worker.cancel()

    def _check_soon(self) -> None:
        self._is_checked = True
        self._loop.call_soon(self._check)

    def _check(self) -> None:
        self._is_checked = False
        self._start_workers()

    def _start_workers(self) -> None:
        """Start as many workers as there are, since all of them wait: the first ones run first."""
        many = min(len(self._waiting), max(len(self._workers), 1), self._count - len(self._workers))
        for _ in range(many):
            worker = self._loop.create_task(self._work(), context=self._context.copy())
            self._workers.add(worker)
            worker.add_done_callback(self._end_worker)

    async def _work(self) -> None:
        """Run jobs until none waits."""
        clean, clock = copy_context(), self._loop.time
        until = clock() + _TURN_S
        me = asyncio.current_task()
        assert me is not None, "a worker is a task"
        while self._waiting and len(self._workers) <= self._count:
            if not self._is_checked:
                self._check_soon()  # for the case that this job waits for something
            self._busy += 1
            try:
                await self._waiting.popleft()
            finally:
                self._busy -= 1
            if me.cancelling() or copy_context() != clean:
                return
            if clock() > until:
                await asyncio.sleep(0)
                until = clock() + _TURN_S

    def _end_worker(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if self._waiting and not self._is_checked:
            self._check_soon()
        if not worker.cancelled() and (error := worker.exception()):
            raise error  # to the loop, which reports it
