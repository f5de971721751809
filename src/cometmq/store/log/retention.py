"""Retention: deletes old files of the log, then the queue and index files that refer to them.

A file is deleted when its last write is older than fileReservedTime, in the hours of deleteWhen or
when the disk fills up; when the disk is nearly full, age does not count. The loop removes files
from its lists and a worker deletes them, the oldest first and each durably before the next, so
neither a crash nor a file that cannot be deleted leaves a gap. That they go is written down first:
a start after a crash must not call them lost.
Invariant: a durable record that the checkpoint on disk knows lies behind every file that is
deleted. So no power cut empties the log, and no queue entry is lost that only the log could give.
Java: CleanCommitLogService, CleanConsumeQueueService.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from cometmq.runtime.worker_jobs import run_job

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Clock, Files, Worker
    from cometmq.settings.store import StoreSettings
    from cometmq.store.cold_read_context import ReadContext
    from cometmq.store.cold_reads import ColdReader
    from cometmq.store.index.key_index import KeyIndex
    from cometmq.store.log.commit_log import CommitLog
    from cometmq.store.queues.consume_queue import ConsumeQueue
    from cometmq.store.queues.consume_queues import ConsumeQueues
    from cometmq.store.recovery.checkpoint import Checkpoint
    from cometmq.store.store_clock import StoreClock

log = logging.getLogger(__name__)
_HOUR_MS = 3_600_000
_SLICE = 256
"""Queues checked in one iteration of the loop."""
_NOT_FOLLOWED = -1
"""Where the log began when queues and index last followed it: not known, so they do at first."""
_ANY_AGE_MS = 1 << 62


class DeletionLimit(NamedTuple):
    """Which files of the log may go now: those last written up to a time, ms; and why."""

    until_ms: int
    why: str


def deletion_limit(
    settings: StoreSettings, used_percent: int, now_ms: int, hour: int
) -> DeletionLimit | None:
    """What the settings allow with the disk used so far, at this hour of day; None: nothing."""
    old = f"last written more than {settings.file_reserved_hours} hours ago (fileReservedTime)"
    rule = DeletionLimit(now_ms - settings.file_reserved_hours * _HOUR_MS, old)
    if settings.clean_forcibly and used_percent > settings.disk_clean_percent:
        limit = settings.disk_clean_percent
        why = f"the disk is used to {used_percent} % (diskSpaceCleanForciblyRatio={limit})"
        return DeletionLimit(_ANY_AGE_MS, why)
    is_time = hour in settings.delete_hours or used_percent > settings.disk_used_percent_max
    return rule if is_time else None


def used_percent_of(files: Files, directories: Iterable[Path]) -> int:
    """The use of the disk, or of the fullest one where the directories lie on several."""
    spaces = map(files.space, directories)
    return max(-(-100 * space.used // max(space.total, 1)) for space in spaces)


class Retention:
    """Finds files that are too old and deletes them. Belongs to the store's loop."""

    def __init__(
        self,
        settings: StoreSettings,
        clock: Clock,
        store_clock: StoreClock,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        checkpoint: Checkpoint,
        index: KeyIndex,
        cold_reader: ColdReader,
        worker: Worker,
        directories: Iterable[Path],
    ) -> None:
        """`directories`: where the store's files lie."""
        self._directories = tuple(directories)
        self._index = index
        self._cold_reader = cold_reader
        self._worker = worker
        self._settings = settings
        self._clock = clock
        self._store_clock = store_clock
        self._mapped_files = commit_log.mapped_files
        self._files = self._mapped_files.files
        self._log = commit_log
        self._queues = queues
        self._checkpoint = checkpoint
        self._first = _NOT_FOLLOWED
        self._released: list[Path] = []
        """Files that the log has released and that are not deleted yet, the oldest first.

        One that cannot be deleted is tried again before those behind it: no start finds a gap.
        """
        self.is_disk_full = False
        """Whether the disk is used beyond diskSpaceWarningLevelRatio: sends are refused."""
        self.keeps_old_files = False
        """Whether files stay, whatever their age, unless the disk is nearly full."""

    def adjust(self, settings: StoreSettings) -> None:
        """Use these ages and percentages from now on."""
        self._settings = settings

    async def clean(self, *, any_hour: bool = False) -> None:
        """One round: measure the disk, delete what may go, let the queues follow."""
        used = used_percent_of(self._files, self._directories)
        settings = self._settings
        was_full, self.is_disk_full = self.is_disk_full, used > settings.disk_full_percent
        if self.is_disk_full != was_full:
            log.warning("the disk is used to %d %%: %s", used, _word(is_full=self.is_disk_full))
        hour = min(settings.delete_hours) if any_hour else self._clock.local_hour()
        rule = deletion_limit(settings, used, self._store_clock.believed_ms(), hour)
        if rule and (rule.until_ms == _ANY_AGE_MS or not self.keeps_old_files):
            self._released += self._release_old(rule)
        if self._released:
            await self._delete_released()
        assert self._mapped_files.first >= self._first, "files before the log's begin came back"
        if self._mapped_files.first != self._first:
            self._first = self._mapped_files.first
            await self._follow(self._first)

    async def _delete_released(self) -> None:
        """Delete what the log has released, once it is written down that it goes."""
        checksums = self._queues.checksums
        checksums.begin_at(self._mapped_files.first)
        await run_job(self._worker, checksums.try_rewrite)
        await self._delete(self._released)

    def _release_old(self, rule: DeletionLimit) -> list[Path]:
        """Take the files that may be deleted out of the log; their paths, the oldest first."""
        gone = []
        for base in self._mapped_files.bases[:-1][: self._settings.delete_file_batch_max]:
            if base + self._mapped_files.file_bytes >= self._checkpoint.saved_end:
                break  # a start may have to read it; senders may wait for it still
            path = self._mapped_files.path_of(base)
            stat = self._files.stat(path)
            if stat is not None and stat.modified_ms > rule.until_ms:
                break
            level = logging.WARNING if rule.until_ms == _ANY_AGE_MS else logging.INFO
            log.log(level, "deleting %s: %s", path, rule.why)
            gone.append(self._mapped_files.release(base))
            assert base < self._mapped_files.first <= self._log.flushed, "the oldest goes first"
        return gone

    async def _follow(self, log_first: int) -> None:
        """Delete the files of queues and index whose records are all gone."""
        assert log_first <= self._log.flushed, "the log begins behind what is durable"
        for number, queue in enumerate(self._queues):
            if len(queue.mapped_files.bases) > 1:
                bases = await self._cold_reader.run(partial(self._expired, queue, log_first))
                alive = [base for base in bases if base in queue.mapped_files.segments]
                await self._delete([self._queues.release(queue, base) for base in alive])
            elif number % _SLICE == 0:
                await asyncio.sleep(0)
        expired = self._index.expired(log_first)
        await self._delete([self._index.forget(file) for file in expired])

    def _expired(self, queue: ConsumeQueue, log_first: int, context: ReadContext) -> list[int]:
        return self._queues.expired(queue, log_first, context.cached_only)

    async def _delete(self, paths: list[Path]) -> None:
        """Delete files in the worker, each durably before the next; the list keeps what is left."""
        if not paths:
            return

        def job() -> None:
            while paths:
                self._files.delete(paths[0])
                self._files.sync_dir(paths[0].parent)
                del paths[0]

        await run_job(self._worker, job)


def _word(*, is_full: bool) -> str:
    return "sends are refused" if is_full else "sends are taken again"
