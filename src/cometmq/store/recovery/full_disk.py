"""A start on a full disk: room is made by the rules of retention, or one sentence says what helps.

A start writes a few small files. Without room for them, the oldest files of the log go here, as
they would a moment later in a running broker: those older than fileReservedTime, and with
cleanFileForciblyEnable whatever their age. Invariant: the newest file stays, and so does every file
from the checkpoint on, since recovery may have to read it.
Java: none; there a start on a full disk ends with an exception.
"""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING

from cometmq.errors import StoreError, StoreFull
from cometmq.store.recovery.checkpoint import Checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Clock, Files
    from cometmq.settings.store import StoreSettings
    from cometmq.store.log.mapped_file_queue import MappedFileQueue
    from cometmq.store.recovery.store_directory import StoreDirectory

log = logging.getLogger(__name__)
ROOM_BYTES = 8 << 20
"""Below this a start makes room: its tables and the first queue files fit into it."""
_HOUR_MS = 3_600_000


def make_room(
    files: Files,
    directory: StoreDirectory,
    log_files: MappedFileQueue,
    settings: StoreSettings,
    clock: Clock,
) -> None:
    """Delete old files of the log, the oldest first, until there is room; the lock is held."""
    if _room(files, directory) >= ROOM_BYTES:
        return
    checkpoint = Checkpoint(files, directory.checkpoint)
    checkpoint.load()
    oldest_ms = clock.now_ms() - settings.file_reserved_hours * _HOUR_MS
    for base in log_files.bases[:-1]:
        path = log_files.path_of(base)
        stat = files.stat(path)
        is_old = stat is not None and stat.modified_ms <= oldest_ms
        is_needed = base + log_files.file_bytes > checkpoint.dispatched
        if is_needed or not (is_old or settings.clean_forcibly):
            return
        log.warning("deleting %s: the disk is too full to start", path)
        files.delete(path)
        files.sync_dir(path.parent)
        if _room(files, directory) >= ROOM_BYTES:
            return


def open_failure(root: Path, problem: OSError) -> StoreError:
    """The error of a start that the system refuses; of a full disk with what helps."""
    if problem.errno not in (errno.ENOSPC, errno.EDQUOT):
        return StoreError(f"the store {root} cannot be opened: {problem}")
    return StoreFull(
        f"the store {root} cannot be opened: its disk is full ({problem}); free some MiB there, or "
        "let the oldest messages go with cleanFileForciblyEnable=true or a smaller fileReservedTime"
    )


def _room(files: Files, directory: StoreDirectory) -> int:
    spaces = map(files.space, (directory.root, directory.commit_log))
    return min(space.total - space.used for space in spaces)
