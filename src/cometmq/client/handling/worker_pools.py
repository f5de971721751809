"""Where handlers run: plain ones in threads, async ones as tasks, a bounded number of either.

In virtual time plain ones run on the loop, one after the other.
Owns threads, tasks and how results return to the loop; knows nothing of messages and outcomes.
Invariant: each job's end is reported on the loop exactly once, many ends with one wake-up.
Java: the executor of ConsumeMessageConcurrentlyService and ConsumeMessageOrderlyService
"""

from __future__ import annotations

import asyncio
from collections import deque
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from cometmq.runtime.loop_clock import is_in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Job = Callable[[], None]


class ThreadPool:
    """Threads that run plain jobs. The caller bounds the number of jobs. One loop owns it."""

    def __init__(self, count: int, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._count = count
        self._name = name
        self._jobs: SimpleQueue[tuple[Job, Job] | None] = SimpleQueue()
        self._finished: deque[Job] = deque()
        self._threads: list[Thread] = []
        self._open = 0
        self._is_woken = False
        self._has_threads = not is_in_virtual_time()

    def submit(self, job: Job, done: Job) -> None:
        """Run `job`, which must not raise, in a thread; then call `done` on the loop."""
        self._open += 1
        if not self._has_threads:
            self._loop.call_soon(self._run_on_loop, job, done)
            return
        if self._open > len(self._threads) < self._count:
            name = f"{self._name}-{len(self._threads)}"
            thread = Thread(target=self._work, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)  # one that could not be started is not counted
        self._jobs.put((job, done))

    @property
    def busy(self) -> int:
        """Jobs that run now."""
        return min(self._open, self._count)

    async def run(self, job: Job) -> None:
        """Run `job`, which must not raise, in a thread and wait for its end.

        When the caller is cancelled, the job goes on and nobody waits for it.
        """
        ended: asyncio.Future[None] = self._loop.create_future()
        self.submit(job, lambda: ended.set_result(None))
        await asyncio.shield(ended)

    def close(self) -> None:
        """Let each thread end once the jobs given before are done; waits for none."""
        for _ in self._threads:
            self._jobs.put(None)
        self._threads.clear()

    def _run_on_loop(self, job: Job, done: Job) -> None:
        job()
        self._finished.append(done)
        self._collect()

    def _work(self) -> None:
        while (task := self._jobs.get()) is not None:
            job, done = task
            job()
            self._finished.append(done)
            if not self._is_woken:
                self._is_woken = True
                self._wake()

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


class TaskPool:
    """Tasks that run async jobs, `count` at a time; the others wait. One loop owns it."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._waiting: deque[Coroutine[object, object, None]] = deque()
        self._running: set[asyncio.Task[None]] = set()

    def submit(self, job: Coroutine[object, object, None]) -> None:
        """Run a coroutine as soon as fewer than `count` others are running."""
        self._waiting.append(job)
        self._start_next()

    @property
    def busy(self) -> int:
        """Jobs that run now."""
        return len(self._running)

    def close(self) -> None:
        """Drop the jobs that have not begun and cancel the others."""
        for job in self._waiting:
            job.close()
        self._waiting.clear()
        for task in self._running:
            task.cancel()

    def _start_next(self) -> None:
        while self._waiting and len(self._running) < self._count:
            task = asyncio.get_running_loop().create_task(_run(self._waiting.popleft()))
            self._running.add(task)
            task.add_done_callback(self._end_task)

    def _end_task(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._start_next()
        if not task.cancelled() and (error := task.exception()):
            raise error  # to the loop, which reports it


async def _run(job: Coroutine[object, object, None]) -> None:
    await job
