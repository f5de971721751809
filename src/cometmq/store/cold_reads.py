"""Reading what may not be in memory without holding up the loop.

A question is asked at once, on the loop; where it meets bytes that only the disk has, a thread
fetches these into the system's cache and the question is asked again. So all that reads the store
stays plain code of one thread. Refuses to know what is asked. Bounds: the threads, and how often a
question is asked again before it may wait for the disk like any other.
Java: none; its pulls run in a pool of threads.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from cometmq.errors import StoreError
from cometmq.store.log.mapped_file_queue import NotInMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cometmq.runtime.ports import Worker
    from cometmq.store.log.mapped_file_queue import OpenFiles

READS_MAX = 200
"""How often a question is asked: a search over time meets a new place with each step."""
_AHEAD_BYTES, _RUN_BYTES = 128 * 1024, 1024 * 1024
"""Read at least, for a few messages or a long run: who reads old ones goes on behind them."""
_LONG_BYTES = 32 * 1024
_SLICE = 64
"""Questions of one asker between two turns of the loop."""
_T = TypeVar("_T")
_K = TypeVar("_K")


class ColdReader:
    """The threads that wait for the disk. Belongs to the store's loop."""

    def __init__(self, open_files: OpenFiles, workers: list[Worker]) -> None:
        self._open_files, self._workers = open_files, workers
        self._given = 0
        self._is_closed = False

    def read_cached(self, ask: Callable[[], _T]) -> _T:
        """Ask without waiting for the disk; NotInMemory says what is to be fetched first."""
        self._open_files.may_wait = False
        try:
            return ask()
        finally:
            self._open_files.may_wait = True

    async def read(self, ask: Callable[[], _T]) -> _T:
        """Ask, and have fetched what the answer needs. `ask` must change nothing."""
        for _ in range(READS_MAX):
            try:
                return self.read_cached(ask)
            except NotInMemory as missing:
                await self.fetch(missing)
        return ask()

    async def run_when_cached(self, act: Callable[[], _T]) -> _T:
        """Do what looks by `read_cached` before it changes anything, once all it needs is there.

        Raises StoreError when memory loses it again and again.
        """
        for _ in range(READS_MAX):
            try:
                return act()
            except NotInMemory as missing:
                await self.fetch(missing)
        raise StoreError(f"{READS_MAX} reads in a row were not in memory; give the machine more")

    async def read_each(self, keys: Iterable[_K], ask: Callable[[_K], _T]) -> list[_T]:
        """Ask about each key in turn; the loop gets its turns between them."""
        answers = []
        for index, key in enumerate(keys, 1):
            answers.append(await self.read(partial(ask, key)))
            if index % _SLICE == 0:
                await asyncio.sleep(0)
        return answers

    async def fetch(self, missing: NotInMemory) -> None:
        """Bring bytes into memory, in a thread; nothing happens when their file has gone."""
        segment = missing.segment
        if segment is None:
            await missing.made()
        elif segment.exists and not self._is_closed:
            length = _RUN_BYTES if missing.length >= _LONG_BYTES else _AHEAD_BYTES
            file, length = segment.pin(), max(missing.length, length)
            await self.run_in_thread(lambda: _drop(file.fetch(missing.at, length)), segment.unpin)

    async def run_in_thread(self, job: Callable[[], None], after: Callable[[], None]) -> None:
        """Do a job that reads in a thread and wait for it; OSError when it failed."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(problem: OSError | None) -> None:
            after()
            if ended.done():
                return
            if problem is None:
                ended.set_result(None)
            else:
                ended.set_exception(problem)

        self._given += 1
        self._workers[self._given % len(self._workers)].submit(job, done)
        await ended

    def close(self) -> None:
        """End the threads; what they were given is done first."""
        self._is_closed = True
        for worker in self._workers:
            worker.close()


def _drop(_data: bytes) -> None:
    """What was fetched is in the system's cache now, where the loop finds it."""
