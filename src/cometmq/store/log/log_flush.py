"""Making the log durable: one flush at a time, off the loop, for all who wait meanwhile.

Whoever joins while a flush is under way is in the next one. A failed flush fails its group and
stops the log, because nobody can say any more what the disk holds.
Invariant: bytes of a group are in the files before its flush begins; `log.flushed` grows only when
one has succeeded. Java: GroupCommitService, FlushRealTimeService.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from cometmq.store.log.mapped_file_queue import pin_all
from cometmq.store.log.put_times import PutTimes
from cometmq.store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.runtime.ports import Worker
    from cometmq.store.log.commit_log import CommitLog
    from cometmq.store.log.mapped_file_queue import Segment
    from cometmq.store.queues.consume_queue import ConsumeQueue

    Entry = tuple[ConsumeQueue, int, int, int]
    Done = Callable[[PutStatus], None]

log = logging.getLogger(__name__)


class Group:
    """Messages and askers of one flush."""

    __slots__ = ("asked", "begun", "entries", "store_ms", "timer", "upto")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.begun: list[tuple[int, float]] = []
        """Of each turn how many of the entries are its, and when it began by the loop's clock."""
        self.asked: list[Done] = []
        self.upto = 0
        self.store_ms = 0
        self.timer: asyncio.TimerHandle | None = None

    def take(self, entries: list[Entry], asked: list[Done], begun_s: float) -> None:
        """Add what a turn put and who asked in it."""
        if entries:
            self.entries += entries
            self.begun.append((len(entries), begun_s))
        self.asked += asked

    def settle(self, status: PutStatus) -> None:
        """Tell all who asked and have not been told."""
        asked, self.asked = self.asked, []
        for done in asked:
            done(status)


class LogFlush:
    """Flushes the log in groups. Belongs to the store's loop."""

    def __init__(
        self,
        log: CommitLog,
        worker: Worker,
        timeout_ms: int,
        flushed: Callable[[Group], None],
    ) -> None:
        """`flushed`: called with each group that is durable, before its askers are told."""
        self._log, self._worker, self._timeout_s = log, worker, timeout_ms / 1000
        self._flushed = flushed
        self.times = PutTimes()
        self._next: Group | None = None
        self._busy = False
        self._idle: list[asyncio.Future[None]] = []
        self.broken: OSError | None = None
        """The error that stopped the log, if one did."""

    def join(
        self, entries: list[Entry], asked: list[Done], store_ms: int, begun_s: float = 0.0
    ) -> None:
        """Flush what has been written so far; then show `entries` and answer `asked`."""
        group = self._next
        if group is None:
            group = self._next = Group()
        if asked and group.timer is None:
            loop = asyncio.get_running_loop()
            group.timer = loop.call_later(self._timeout_s, self._late, group)
        group.take(entries, asked, begun_s)
        group.upto = self._log.written
        group.store_ms = store_ms
        if not self._busy:
            self._start()

    def count(self, group: Group) -> None:
        """Count how long the puts of a group took that is shown now."""
        now_s = asyncio.get_running_loop().time()
        for count, begun_s in group.begun:
            self.times.add(count, begun_s, now_s)

    async def idle(self) -> None:
        """Wait until nothing is under way."""
        if self._busy:
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(ended)
            await ended

    def _late(self, group: Group) -> None:
        group.settle(PutStatus.FLUSH_DISK_TIMEOUT)

    def _start(self) -> None:
        group, self._next = self._next, None
        if group is None:
            return
        self._busy = True
        segments = self._log.segments(self._log.flushed, group.upto)
        try:
            files = pin_all(segments)
        except OSError as problem:
            # A file cannot be opened, so nothing can be promised any more.
            self._ended(group, [], problem)
            return

        def job() -> None:
            for file in files:
                file.sync()

        self._worker.submit(job, lambda problem: self._ended(group, segments, problem))

    def _ended(self, group: Group, segments: list[Segment], problem: OSError | None) -> None:
        for segment in segments:
            segment.unpin()
        if group.timer is not None:
            group.timer.cancel()
        self._busy = False
        is_durable = problem is None and self.broken is None
        if is_durable:
            self._log.flushed = group.upto
        else:
            if self.broken is None:
                log.error(
                    "the log %s cannot be flushed, sends are refused until a restart: %s",
                    self._log.directory,
                    problem,
                )
            self.broken = self.broken or problem
            self.times.failed += len(group.entries)
            group.settle(PutStatus.SERVICE_NOT_AVAILABLE)
        # The next flight leaves before the answers of this one are written; should that break the
        # log, this one is on the disk all the same.
        self._start()
        if is_durable:
            self._flushed(group)
            group.settle(PutStatus.PUT_OK)
        if not self._busy:
            idle, self._idle = self._idle, []
            for ended in idle:
                if not ended.done():
                    ended.set_result(None)
