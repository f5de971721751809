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

`read`, `read_each`, `read_cached` and `run_when_cached` are the older form, for callers that take
no context: they set a mode on the open files for the length of a call, and go when nobody uses
them. Bounds: the threads, and how often a read runs again before it may wait for the disk.
Java: none; its pulls run in a pool of threads.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from cometmq.errors import StoreError
from cometmq.store.log.mapped_file_queue import NotInMemory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from cometmq.runtime.ports import Worker
    from cometmq.store.log.mapped_file_queue import OpenFiles
    from cometmq.store.read_context import ReadContext

READS_MAX = 200
"""How often a read runs: a search over time meets a new place with each step."""
_AHEAD_BYTES, _RUN_BYTES = 128 * 1024, 1024 * 1024
"""Load at least so much, for a few messages or a long run: old messages are read in order."""
_LONG_BYTES = 32 * 1024
_SLICE = 64
"""Keys of one caller between two iterations of the loop."""
_T = TypeVar("_T")
_K = TypeVar("_K")
_R = TypeVar("_R")


class ColdReader:
    """The threads that wait for the disk. Belongs to the store's loop."""

    def __init__(
        self,
        open_files: OpenFiles,
        workers: list[Worker],
        cached: ReadContext,
        blocking: ReadContext,
    ) -> None:
        assert cached.cached_only
        assert not blocking.cached_only
        self._open_files = open_files
        self._workers = workers
        self._next_worker = 0
        self._is_closed = False
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
        """Do `run` for each key in turn; other work of the loop gets its time in between."""
        results = []
        for number, key in enumerate(keys, 1):
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

        self._next_worker += 1
        self._workers[self._next_worker % len(self._workers)].submit(job, done)
        await ended

    def close(self) -> None:
        """End the threads; what they were given is done first."""
        self._is_closed = True
        for worker in self._workers:
            worker.close()

    # ---- the older form, without a context

    def read_cached(self, ask: Callable[[], _T]) -> _T:
        """Ask without waiting for the disk; NotInMemory says what must be loaded first."""
        self._open_files.may_wait = False
        try:
            return ask()
        finally:
            self._open_files.may_wait = True

    async def read(self, ask: Callable[[], _T]) -> _T:
        """Ask, and have loaded what the answer needs. `ask` must change nothing."""
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
        """Ask about each key in turn; other work of the loop gets its time in between."""
        answers = []
        for index, key in enumerate(keys, 1):
            answers.append(await self.read(partial(ask, key)))
            if index % _SLICE == 0:
                await asyncio.sleep(0)
        return answers


def _with_key(prepare: Callable[[ReadContext, _K], _T], key: _K, context: ReadContext) -> _T:
    return prepare(context, key)


def _drop(_data: bytes) -> None:
    """What was loaded is in the system's page cache now, where the loop finds it."""
