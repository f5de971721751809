"""Whether a log is where the settings say, looked at before a start changes anything.

A start without its log would find no message, and remove the queues and the index that refer to
it. Owns that refusal and its sentence. Refuses to know how much of a log is left: recovery does.
Java: none; there the queues are cut to what the log holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import StoreCorrupt
from cometmq.store.queues.queue_directories import queue_directories
from cometmq.store.recovery.checkpoint import Checkpoint

if TYPE_CHECKING:
    from cometmq.runtime.clock_and_file_protocols import Files
    from cometmq.store.log.mapped_file_queue import MappedFileQueue
    from cometmq.store.recovery.store_directory import StoreDirectory

_LOOKED_AT_BYTES = 1 << 20
"""A first file without a byte here is empty; with one it is damaged, which recovery judges."""


def require_log(files: Files, directory: StoreDirectory, mapped_files: MappedFileQueue) -> None:
    """Raise StoreCorrupt where the store had messages and its log is missing or empty.

    A store that crashed before its first flush may have queues and no log: it had no message yet.
    """
    what = _missing(mapped_files)
    if not what:
        return
    inside = directory.root / "commitlog"
    if directory.is_log_elsewhere and any(map(str.isdecimal, files.names(inside))):
        raise StoreCorrupt(
            f"the store {directory.root} has a commit log in {inside}, but storePathCommitLog is "
            f"{directory.commit_log}, where {what}; remove the setting, or move the files there"
        )
    checkpoint = Checkpoint(files, directory.checkpoint)
    checkpoint.load()
    had_messages = checkpoint.log_ms > 0 or checkpoint.dispatched > 0
    if had_messages or (directory.was_stopped and _has_queues(files, directory)):
        raise StoreCorrupt(
            f"the commit log of the store {directory.root} is not where it should be: in "
            f"{directory.commit_log} {what}; set storePathCommitLog to the directory that has it, "
            "or bring it back, or, to give up all messages and begin with an empty log, move "
            f"consumequeue, index and checkpoint out of {directory.root}"
        )


def _missing(mapped_files: MappedFileQueue) -> str:
    if not mapped_files.bases:
        return "there is no file"
    path = mapped_files.path_of(mapped_files.first)
    file = mapped_files.files.open(path, 0)
    try:
        return (
            "" if any(file.read(0, _LOOKED_AT_BYTES)) else f"the first file, {path.name}, is empty"
        )
    finally:
        file.close()


def _has_queues(files: Files, directory: StoreDirectory) -> bool:
    queues = queue_directories(files, directory.consume_queue)
    return any(files.names(queue.path) for queue in queues)
