"""Deleting what is old: whole files of the log, then the queue files that spoke of them.

A file goes when it was last written longer ago than fileReservedTime and it is the hour for it or
the disk is filling up; when the disk is nearly full, age does not count. Never the newest file, nor
one that is not durable yet.
Java: CleanCommitLogService, CleanConsumeQueueService.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cometmq.settings.store import StoreSettings
    from cometmq.store.commit_log import CommitLog
    from cometmq.store.file_row import FileRow
    from cometmq.store.queues import Queues
    from cometmq.world.ports import Clock, Files

log = logging.getLogger(__name__)
_HOUR_MS = 3_600_000


class Retention:
    """Decides what is old and deletes it. Belongs to the store's loop."""

    def __init__(
        self,
        settings: StoreSettings,
        clock: Clock,
        files: Files,
        row: FileRow,
        commit_log: CommitLog,
        queues: Queues,
    ) -> None:
        """`row`: the files of `commit_log`."""
        self._settings, self._clock, self._files = settings, clock, files
        self._row, self._log, self._queues = row, commit_log, queues
        self._first = row.first
        self.is_disk_full = False
        """Whether the disk is used beyond diskSpaceWarningLevelRatio: sends are refused."""

    def adjust(self, settings: StoreSettings) -> None:
        """Work with these ages and shares from now on."""
        self._settings = settings

    async def clean(self, *, any_hour: bool = False) -> None:
        """One round: measure the disk, delete what may go, let the queues follow."""
        used = self._used_percent()
        settings = self._settings
        was_full, self.is_disk_full = self.is_disk_full, used > settings.disk_full_percent
        if self.is_disk_full != was_full:
            log.warning("the disk is used to %d %%: %s", used, _word(is_full=self.is_disk_full))
        at_once = settings.clean_forcibly and used > settings.disk_clean_percent
        is_hour = any_hour or self._clock.local_hour() in settings.delete_hours
        if at_once or is_hour or used > settings.disk_used_percent_max:
            self._delete_old(at_once=at_once)
        if self._row.first != self._first:
            self._first = self._row.first
            await asyncio.sleep(0)
            self._queues.drop_expired(self._first)

    def _used_percent(self) -> int:
        space = self._files.space(self._row.directory.parent)
        return -(-100 * space.used // max(space.total, 1))

    def _delete_old(self, *, at_once: bool) -> None:
        before = self._clock.now_ms() - self._settings.file_reserved_hours * _HOUR_MS
        for base in self._row.bases[:-1][: self._settings.delete_file_batch_max]:
            if base + self._row.file_bytes > self._log.flushed:
                break  # senders still wait for it, and the worker may be flushing it
            stat = self._files.stat(self._row.path_of(base))
            if not at_once and stat is not None and stat.modified_ms > before:
                break
            log.info("deleting %s: it is older than need be", self._row.path_of(base))
            self._row.remove(base)


def _word(*, is_full: bool) -> str:
    return "sends are refused" if is_full else "sends are taken again"
