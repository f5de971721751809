"""Supervised background work: what runs beside the requests and must not die unnoticed.

An error of a task is logged with its traceback, and the task continues with its next run. `stop`
cancels all tasks and waits for them.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

log = logging.getLogger(__name__)


class BackgroundTasks:
    """The background tasks of one owner. Made and used on one loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[None]] = set()

    def every(
        self,
        interval_s: float,
        work: Callable[[], object],
        *,
        name: str,
        first_s: float | None = None,
    ) -> None:
        """Call `work` (plain or async) repeatedly, `interval_s` after its last run ended.

        The first call comes after `first_s` (default: one interval). An error is logged
        and does not end the series.
        """
        self._start(
            self._repeat(interval_s if first_s is None else first_s, interval_s, work), name
        )

    def spawn(self, work: Awaitable[object], *, name: str) -> None:
        """Run one awaitable to its end; an error is logged."""
        task = self._start(self._once(work), name)
        if asyncio.iscoroutine(work):  # a task that is cancelled before it began never awaits it
            task.add_done_callback(lambda _task: work.close())

    async def stop(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, coroutine: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine, name=f"{self._name}: {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _repeat(self, first_s: float, interval_s: float, work: Callable[[], object]) -> None:
        await asyncio.sleep(first_s)
        while True:
            try:
                found = work()
                if asyncio.iscoroutine(found):
                    await found
            except Exception:
                log.exception("%s: a run of background work failed", self._task_name())
            await asyncio.sleep(interval_s)

    async def _once(self, work: Awaitable[object]) -> None:
        try:
            await work
        except Exception:
            log.exception("%s: background work failed", self._task_name())

    def _task_name(self) -> str:
        task = asyncio.current_task()
        return task.get_name() if task else self._name
