"""The layout of a store directory, its lock, and the file that marks it as running.

commitlog/ consumequeue/ index/ config/ checkpoint lock abort; commitlog/ may be elsewhere. The lock
is a record lock on byte 0 of `lock`, and one on commitlog/, which two stores must not share;
`abort` exists while a broker runs, so finding it means that the last one crashed.
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
        "abort.tmp",
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
        "queueChecksums",
        "queueChecksums.tmp",
        "snapshot",
        "snapshot.answer",
        "snapshot.answer.tmp",
        "snapshot.request",
        "snapshot.request.tmp",
        "timerlog",
        "timerwheel",
        "transaction",
        "unreplicated",
    ]
)
UNFINISHED_LOG = "commitlog.unfinished"
"""The log in a snapshot that is being taken."""


class StoreDirectory:
    """One store directory."""

    def __init__(self, files: Files, root: Path, commit_log: Path | None = None) -> None:
        """`commit_log`: the directory of the log, where it is not `root`/commitlog."""
        self._files = files
        self.root = root
        self.commit_log = commit_log or root / "commitlog"
        self.consume_queue = root / "consumequeue"
        self.index = root / "index"
        self.config = root / "config"
        self.checkpoint = root / "checkpoint"
        self.abort = root / "abort"
        self._locks: list[HeldLock] = []

    @property
    def is_log_elsewhere(self) -> bool:
        """Whether the log is not in the store's own directory."""
        return self.commit_log != self.root / "commitlog"

    def check(self) -> None:
        """NotAStore unless the directory is missing, empty or a store; changes nothing."""
        stat = self._files.stat(self.root)
        if stat is None:
            return
        if stat.size >= 0:
            raise NotAStore(f"{self.root} is a file; a store is a directory")
        names = self._files.names(self.root)
        if UNFINISHED_LOG in names:
            raise NotAStore(
                f"{self.root} is a snapshot that was broken off: delete it and take another one"
            )
        strange = [name for name in names if name not in KNOWN]
        marks = {"commitlog", "consumequeue"} if self.is_log_elsewhere else {"commitlog"}
        if strange and marks.isdisjoint(names):
            raise NotAStore(
                f"{self.root} is no store: it holds {strange[0]!r} and no commitlog; "
                "choose an empty or a new directory"
            )

    def take(self) -> None:
        """Make the directory if need be and lock it; StoreLocked when another broker has it."""
        assert not self._locks, "locked already"
        self._files.make_dir(self.root)
        self._take(self.root / "lock", f"the store {self.root}")
        self._files.make_dir(self.commit_log)
        self._take(self.commit_log, f"the commit log {self.commit_log}")

    def _take(self, path: Path, what: str) -> None:
        held = self._files.lock(path)
        if held is None:
            raise StoreLocked(
                f"{what} is in use by another broker; stop that one or choose another directory"
            )
        self._locks.append(held)

    def release(self) -> None:
        """Release the locks."""
        while self._locks:
            self._locks.pop().release()

    @property
    def was_stopped(self) -> bool:
        """Whether the last broker stopped the store in order."""
        return self._files.stat(self.abort) is None

    @property
    def is_same_boot(self) -> bool:
        """Whether the machine has run on since the last broker crashed: no write was lost."""
        lines = (self._files.read(self.abort) or b"").decode("ascii", "replace").split("\n")
        return len(lines) > 1 and bool(lines[1]) and lines[1] == self._files.boot_id()

    def mark_running(self, pid: int) -> None:
        """Write `abort`, durably: a broker runs, since this boot of the machine.

        OSError: it is as it was, so that a start that fails does not look like a crash.
        """
        assert self._locks, "only the holder of the lock runs"
        fresh = self.abort.with_name("abort.tmp")
        self._files.write(fresh, f"{pid}\n{self._files.boot_id()}\n".encode())
        self._files.rename(fresh, self.abort)
        self._files.sync_dir(self.root)

    def mark_stopped(self) -> None:
        """Delete `abort`, durably: everything is on disk."""
        assert self._locks, "only the holder of the lock stops"
        self._files.delete(self.abort)
        self._files.sync_dir(self.root)


def check_files(mapped_files: MappedFileQueue) -> None:
    """NotAStore or StoreCorrupt unless the files of a log can be one; opens and changes none."""
    mapped_files.load()
    if missing := mapped_files.missing():
        raise StoreCorrupt(
            f"{missing} is missing; bring it back, move away the files before it, or give up what "
            "it held with `cometmq store repair --accept-loss`"
        )
