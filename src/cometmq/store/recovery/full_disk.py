"""A start on a full disk: room is made by the rules of retention, or one sentence says what helps.

A start writes a few small files. Without room for them, the oldest files of the log go here, as
they would a moment later in a running broker, by age and by how far the disk is used. Queue and
index files follow with the first round of retention.
Invariants: nothing goes before every other reason to refuse the start was looked at; the newest
file stays, and so does every file from the checkpoint on, since recovery may have to read it.
Java: none; there a start on a full disk ends with an exception.
"""

from __future__ import annotations

import errno
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cometmq.errors import StoreError, StoreFull
from cometmq.store.log.log_reader import LogReader
from cometmq.store.log.retention import deletion_limit, used_percent_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Clock, Files
    from cometmq.settings.store import StoreSettings
    from cometmq.store.log.mapped_file_queue import MappedFileQueue
    from cometmq.store.queues.queue_checksums import QueueChecksums
    from cometmq.store.recovery.checkpoint import Checkpoint
    from cometmq.store.recovery.store_directory import StoreDirectory

log = logging.getLogger(__name__)
ROOM_BYTES = 8 << 20
"""Below this a start makes room: its tables and the first queue files fit into it."""


class RoomMaker:
    """Makes room for the start of one store, whose lock the caller holds."""

    def __init__(
        self,
        files: Files,
        directory: StoreDirectory,
        log_files: MappedFileQueue,
        checkpoint: Checkpoint,
        checksums: QueueChecksums,
        settings: StoreSettings,
        clock: Clock,
    ) -> None:
        self._files = files
        self._directories = (directory.root, directory.commit_log)
        self._log_files = log_files
        self._checkpoint = checkpoint
        self._checksums = checksums
        self._settings = settings
        self._clock = clock

    def run(self, refuse: Callable[[], None]) -> None:
        """Delete old files of the log, the oldest first, until there is room; say so once.

        `refuse` raises where somebody else will refuse the start: then nothing goes.
        """
        free = self._room()
        if free >= ROOM_BYTES:
            return
        refuse()
        oldest, why, count, deleted_bytes = self._begin_time(), "", 0, 0
        while self._room() < ROOM_BYTES and (reason := self._why_first_may_go()):
            deleted_bytes += self._delete_first()
            count += 1
            why = reason
        if count:
            log.warning(
                "%d of the oldest files of the log %s are deleted, %d bytes, with the messages "
                "stored from %s to %s: a start takes %d bytes of room, %d were free, and %s",
                count,
                self._log_files.directory,
                deleted_bytes,
                oldest,
                self._begin_time(),
                ROOM_BYTES,
                free,
                why,
            )

    def _room(self) -> int:
        spaces = map(self._files.space, self._directories)
        return min(space.total - space.used for space in spaces)

    def _why_first_may_go(self) -> str:
        """Why retention may delete the oldest file now; empty: it may not."""
        base = self._log_files.first
        is_needed = base + self._log_files.file_bytes > self._checkpoint.dispatched
        if len(self._log_files.bases) < 2 or is_needed:
            return ""
        used = used_percent_of(self._files, self._directories)
        now_ms, hour = self._clock.now_ms(), self._clock.local_hour()
        rule = deletion_limit(self._settings, used, now_ms, hour)
        stat = self._files.stat(self._log_files.path_of(base))
        if rule is None or (stat is not None and stat.modified_ms > rule.until_ms):
            return ""
        return rule.why

    def _delete_first(self) -> int:
        """Delete the oldest file, and write down that it went; its size."""
        base = self._log_files.first
        path = self._log_files.release(base)
        assert base < self._log_files.first, "the newest file of the log stays"
        assert self._log_files.first <= self._checkpoint.dispatched, "recovery may read the file"
        stat = self._files.stat(path)
        self._files.delete(path)
        self._files.sync_dir(path.parent)
        self._checksums.begin_at(self._log_files.first)
        self._checksums.try_rewrite()  # not before: there was no room
        return stat.size if stat is not None else 0

    def _begin_time(self) -> str:
        """When the first message of the log was stored."""
        record = LogReader(self._log_files, check_crc=False).at(self._log_files.first)
        if record is None:
            return "a time not known"
        return datetime.fromtimestamp(record.store_ms / 1000, UTC).isoformat(" ", "seconds")


def open_failure(root: Path, problem: OSError) -> StoreError:
    """The error of a start that the system refuses; of a full disk with what helps."""
    if problem.errno not in (errno.ENOSPC, errno.EDQUOT):
        return StoreError(f"the store {root} cannot be opened: {problem}")
    return StoreFull(
        f"the store {root} cannot be opened: its disk is full ({problem}); free some MiB there, or "
        "let the oldest messages go with cleanFileForciblyEnable=true or a smaller fileReservedTime"
    )
