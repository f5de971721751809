"""Reading what may not be in memory, without blocking the loop.

What needs such reads is split in two. `prepare(context)` only reads, through the `ReadContext` it
is given; where that context raises NotInMemory, a thread loads the bytes into the system's page
cache and `prepare` runs again, from its start. `apply(result)` then changes state and builds the
response, once, on the loop:

    found = await store.cold_reader.run(lambda context: context.record_at(phy_offset))
    return make_response(found)

    return store.cold_reader.prepare_and_apply(prepare, apply)  # at once where all is in memory

`prepare` must change nothing and read the store only through its context. It may raise what it
likes: that ends the read. Whoever wants to try from memory only asks `cold_reader.cached` and
handles NotInMemory himself: `await cold_reader.fetch(missing)`, then again.

Bounds: the threads, and how often a read runs again before it may wait for the disk.
Java: none; its pulls run in a pool of threads.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from cometmq.runtime.worker_jobs import run_job
from cometmq.store.log.mapped_file_queue import NotInMemory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from cometmq.runtime.clock_and_file_protocols import Worker
    from cometmq.store.cold_read_context import ReadContext

READS_MAX = 200
"""How often a read runs: a search over time meets a new place with each step."""
_AHEAD_BYTES, _RUN_BYTES = 128 * 1024, 1024 * 1024
"""Load at least so much, for a few messages or a long run: old messages are read in order."""
_LONG_BYTES = 32 * 1024
_SLICE = 32
"""Keys read in one iteration of the loop, of all callers together that have more."""
_FEW = 16
"""So many keys are read at once."""
_T = TypeVar("_T")
_K = TypeVar("_K")
_R = TypeVar("_R")


class ColdReader:
    """The threads that wait for the disk. Belongs to the store's loop."""

    def __init__(
        self,
        workers: list[Worker],
        cached: ReadContext,
        blocking: ReadContext,
    ) -> None:
        assert cached.cached_only
        assert not blocking.cached_only
        self._workers = workers
        self._next_worker = 0
        self._is_closed = False
        self.waits = 0
        """Reads that waited for the disk."""
        self._reading_many = asyncio.Lock()
        self._blocking = blocking
        self.cached = cached
        """Answers from memory; raises NotInMemory where the disk would have to be waited for."""

    async def run(self, prepare: Callable[[ReadContext], _T]) -> _T:
        """What `prepare` returns, once all that it reads is in memory. It must change nothing."""
        for _ in range(READS_MAX):
            try:
                return prepare(self.cached)
            except NotInMemory as missing:
                await self.fetch(missing)
        # Memory loses the bytes as fast as they are loaded: better to block once than for ever.
        return prepare(self._blocking)

    async def run_each(
        self, keys: Iterable[_K], prepare: Callable[[ReadContext, _K], _T]
    ) -> list[_T]:
        """Do `run` for each key, one after the other; the loop does other work in between.

        Of callers with many keys one is served at a time.
        """
        asked, results = list(keys), []
        if len(asked) <= _FEW:
            return [await self.run(partial(_with_key, prepare, key)) for key in asked]
        async with self._reading_many:
            for number, key in enumerate(asked, 1):
                results.append(await self.run(partial(_with_key, prepare, key)))
                if number % _SLICE == 0:
                    await asyncio.sleep(0)
        return results

    def prepare_and_apply(
        self, prepare: Callable[[ReadContext], _T], apply: Callable[[_T], _R]
    ) -> _R | Awaitable[_R]:
        """What `apply` makes of what `prepare` read: at once, or awaitable where that takes time.

        `apply` runs exactly once, unless `prepare` raises.
        """
        try:
            prepared = prepare(self.cached)
        except NotInMemory as missing:
            return self._apply_later(missing, prepare, apply)
        return apply(prepared)

    async def _apply_later(
        self,
        missing: NotInMemory,
        prepare: Callable[[ReadContext], _T],
        apply: Callable[[_T], _R],
    ) -> _R:
        await self.fetch(missing)
        return apply(await self.run(prepare))

    async def fetch(self, missing: NotInMemory) -> None:
        """Load bytes into memory, in a thread; nothing happens when their file has gone."""
        assert missing.length >= 0
        segment = missing.segment
        if segment.exists and not self._is_closed:
            self.waits += 1
            length = _RUN_BYTES if missing.length >= _LONG_BYTES else _AHEAD_BYTES
            file, length = segment.pin(), max(missing.length, length)
            await self.run_in_thread(lambda: _drop(file.fetch(missing.at, length)), segment.unpin)

    async def run_in_thread(self, job: Callable[[], None], after: Callable[[], None]) -> None:
        """Do a job that reads in one of the threads; see `run_job`."""
        self._next_worker = (self._next_worker + 1) % len(self._workers)
        await run_job(self._workers[self._next_worker], job, after)

    def close(self) -> None:
        """End the threads; what they were given is done first."""
        self._is_closed = True
        for worker in self._workers:
            worker.close()


def _with_key(prepare: Callable[[ReadContext, _K], _T], key: _K, context: ReadContext) -> _T:
    return prepare(context, key)


def _drop(_data: bytes) -> None:
    """What was loaded is in the system's page cache now, where the loop finds it."""
