"""The layout of a store directory, its lock, and the file that marks it as running.

commitlog/ consumequeue/ index/ config/ checkpoint lock abort. The lock is a record lock on byte 0
of `lock`; `abort` exists while a broker runs, so finding it means that the last one crashed.
Invariant: a directory that is no store is not changed.
Java: StorePathConfigHelper, DefaultMessageStore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import NotAStore, StoreCorrupt, StoreLocked

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files, HeldLock
    from cometmq.store.log.mapped_file_queue import MappedFileQueue

KNOWN = frozenset(
    [
        "abort",
        "abort.bak",
        "batchconsumequeue",
        "brokerIdentity",
        "checkpoint",
        "commitlog",
        "compaction",
        "config",
        "consumequeue",
        "consumequeue_ext",
        "epochFileCheckpoint",
        "index",
        "lock",
        "lost+found",
        "timerlog",
        "timerwheel",
        "transaction",
    ]
)


class StoreDirectory:
    """One store directory."""

    def __init__(self, files: Files, root: Path) -> None:
        self._files = files
        self.root = root
        self.commit_log = root / "commitlog"
        self.consume_queue = root / "consumequeue"
        self.index = root / "index"
        self.config = root / "config"
        self.checkpoint = root / "checkpoint"
        self.abort = root / "abort"
        self._lock: HeldLock | None = None

    def check(self) -> None:
        """NotAStore unless the directory is missing, empty or a store; changes nothing."""
        stat = self._files.stat(self.root)
        if stat is None:
            return
        if stat.size >= 0:
            raise NotAStore(f"{self.root} is a file; a store is a directory")
        names = self._files.names(self.root)
        strange = [name for name in names if name not in KNOWN]
        if strange and "commitlog" not in names:
            raise NotAStore(
                f"{self.root} is no store: it holds {strange[0]!r} and no commitlog; "
                "choose an empty or a new directory"
            )

    def take(self) -> None:
        """Make the directory if need be and lock it; StoreLocked when another broker has it."""
        assert self._lock is None, "locked already"
        self._files.make_dir(self.root)
        self._lock = self._files.lock(self.root / "lock")
        if self._lock is None:
            raise StoreLocked(
                f"the store {self.root} is in use by another broker; "
                "stop that one or choose another directory"
            )

    def release(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @property
    def was_stopped(self) -> bool:
        """Whether the last broker stopped the store in order."""
        return self._files.stat(self.abort) is None

    def mark_running(self, text: str) -> None:
        """Write `abort`, durably: a broker runs."""
        assert self._lock is not None, "only the holder of the lock runs"
        self._files.write(self.abort, text.encode())
        self._files.sync_dir(self.root)

    def mark_stopped(self) -> None:
        """Delete `abort`, durably: everything is on disk."""
        assert self._lock is not None, "only the holder of the lock stops"
        self._files.delete(self.abort)
        self._files.sync_dir(self.root)


def check_files(mapped_files: MappedFileQueue) -> None:
    """NotAStore or StoreCorrupt unless the files of a log can be one; opens and changes none."""
    mapped_files.load()
    if missing := mapped_files.missing():
        raise StoreCorrupt(f"{missing} is missing; bring it back, or move away the files before it")
