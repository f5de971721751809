"""A copy of a store, of one whose broker runs as well, that is as the store after a kill.

First the log up to where it is then; then tables, checkpoint, queues and index; last what the log
has got meanwhile, up to a byte that the broker names. So the log is never behind what refers to it,
and the next start completes the queues as after a crash. Should files vanish or the marks of
deleted topics change meanwhile, all but the log is copied again; the log too, should the broker get
another role, for which it may cut it.
Invariant: until everything is durable the log has a name with which no broker starts.
Java: none.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from cometmq.errors import StoreError, StoreLocked
from cometmq.runtime.file_copies import copy_range, data_bytes
from cometmq.store.log.mapped_file_queue import NAME_DIGITS, is_number
from cometmq.store.recovery.store_directory import UNFINISHED_LOG, StoreDirectory
from cometmq.store.snapshots.snapshot_request import NAMES, SnapshotFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Clock, Files, HeldLock

ANSWER_S = 30
"""How long a broker may take to answer, seconds."""
_LOOK_S = 0.05
_ROUNDS = 5
_ATTEMPTS = 40
_SPARE_BYTES = 64 << 20
_FIRST = ("abort", "checkpoint", "queueChecksums", "config")
"""What refers to the rest, and so must not be newer."""
_LEFT_OUT = NAMES | {"lock", "lost+found", "commitlog", "snapshot.json"}


class Snapshot(NamedTuple):
    """What was copied."""

    log_begin: int
    """The first byte of the log in the copy."""
    log_end: int
    """The byte behind the last one of the log in the copy; if stopped, the end of its file."""
    copied_bytes: int
    was_running: bool
    """Whether a broker used the store."""


class StoreSnapshot:
    """One copy of one store. Blocks; belongs to one thread."""

    def __init__(
        self,
        files: Files,
        clock: Clock,
        source: StoreDirectory,
        target: Path,
        wait: Callable[[float], None],
        copied: Callable[[int], None] = lambda _count: None,
        *,
        answer_s: float = ANSWER_S,
    ) -> None:
        """`wait(seconds)` sleeps; `copied` is called with the bytes of each piece."""
        self._files = files
        self._clock = clock
        self._source = source
        self._target = target
        self._wait = wait
        self._report = copied
        self._answer_s = answer_s
        self._request_files = SnapshotFiles(files, source.root)
        self._requests = 0
        self._copied = 0
        self._is_ours = False
        """Whether the store is stopped and its lock is held here."""
        self._log = source.commit_log

    def needed_bytes(self) -> int:
        """How much room the store takes now."""
        tree = [path for _name, path in self._tree(self._source.root)]
        return sum(map(data_bytes, [*tree, *self._log_paths()]))

    def run(self) -> Snapshot:
        """Copy. Raises StoreError: nothing that a broker would start from is left; OSError."""
        self._refuse()
        hold = self._hold()
        try:
            self._check_target()  # another snapshot may have been taken to it meanwhile
            history, at = self._history(), self._ask()
            self._check_target()  # now it is known where the log is
            self._check_room()
            begin = self._copy_log_anew(at)
            for _ in range(_ROUNDS):
                self._ask()
                marks = self._marks()
                is_whole = self._copy_rest()
                following = self._ask()
                if history != (now := self._history()):  # the log may have been cut and written on
                    history, is_whole, following = now, False, self._ask()
                    begin = self._copy_log_anew(following)
                elif at is not None:
                    self._copy_log(at, following)
                at = following
                if is_whole and marks == self._marks():
                    break
            else:
                raise StoreError(
                    f"topics were deleted again and again while {self._source.root} was copied: "
                    f"delete {self._target} and take the snapshot when fewer are"
                )
            self._finish()
            last = at if at is not None else self._log_end()
            return Snapshot(begin, last, self._copied, not self._is_ours)
        finally:
            self._request_files.clear()
            hold.release()
            if self._is_ours:
                self._source.release()

    def _refuse(self) -> None:
        source = self._source
        source.check()
        if not self._files.names(source.root):
            raise StoreError(f"there is no store in {source.root}")
        self._check_target()

    def _check_target(self) -> None:
        target = self._target
        stat = self._files.stat(target)
        if stat is not None and (stat.size >= 0 or self._files.names(target)):
            raise StoreError(f"{target} is not empty: choose a new or an empty directory")
        inside = target.resolve()
        for directory in (self._source.root, self._source.commit_log, self._log):
            if inside.is_relative_to(directory.resolve()):
                raise StoreError(f"{target} is inside the store: choose a directory outside of it")

    def _check_room(self) -> None:
        needed = self.needed_bytes() + _SPARE_BYTES
        place = self._target.absolute()
        while self._files.stat(place) is None:
            place = place.parent
        space = self._files.space(place)
        free = space.total - space.used
        if needed > free:
            raise StoreError(
                f"the snapshot needs {needed >> 20} MiB, and the disk of {self._target} has "
                f"{free >> 20} MiB free"
            )

    def _hold(self) -> HeldLock:
        path = self._request_files.lock_path
        for _ in range(int(2 / _LOOK_S)):  # the broker may be trying whether it is free
            if (lock := self._files.lock(path)) is not None:
                return lock
            self._wait(_LOOK_S)
        raise StoreLocked(f"another snapshot of {self._source.root} is being taken")

    def _ask(self) -> int | None:
        """Have the broker say up to where the log is; None: none runs, and now none can start."""
        if self._is_ours or (not self._requests and self._take()):
            return None  # one that has answered may be starting again: it is waited for
        self._requests += 1
        request = f"{os.getpid()}-{self._clock.monotonic_ms()}-{self._requests}"
        self._request_files.ask(request)
        begun = self._clock.monotonic_ms()
        while (answer := self._request_files.answer(request)) is None:
            self._wait(_LOOK_S)
            if self._clock.monotonic_ms() - begun > self._answer_s * 1000:
                if self._take():
                    return None
                raise StoreError(
                    f"the broker that uses {self._source.root} did not answer within "
                    f"{self._answer_s:g} s: it is not CometMQ's, or older; stop it to copy it"
                )
        if answer.problem:
            raise StoreError(f"the broker of {self._source.root} reports: {answer.problem}")
        self._log = self._source.root / answer.commit_log
        return answer.log_end

    def _take(self) -> bool:
        """Whether the store is stopped; from then on this is its only user."""
        log = self._source.commit_log
        is_new = self._files.stat(log) is None
        try:
            self._source.take()
        except StoreLocked:
            self._source.release()
            return False
        self._is_ours = True
        if is_new and self._log == log:
            self._files.delete(log)
            raise StoreError(
                f"{log} holds no commit log; where storePathCommitLog says another directory, give "
                "that one with --commit-log"
            )
        return True

    def _history(self) -> bytes | None:
        """What changes when the log may have been cut: the broker has got another role."""
        return self._files.read(self._source.config / "replication.json")

    def _marks(self) -> tuple[bytes | None, ...]:
        """What changes when topics are deleted, or when the broker gets another history."""
        return self._files.read(self._source.config / "deletedTopics.json"), self._history()

    # ---- copying

    def _copy_log_anew(self, end: int | None) -> int:
        """Copy the log from its first byte; where its first file begins."""
        self._delete(self._target / UNFINISHED_LOG)
        self._files.make_dir(self._target / UNFINISHED_LOG)
        return self._copy_log(0, end)

    def _copy_log(self, start: int, end: int | None) -> int:
        """Copy the bytes [start, end) of the log; where its first file begins."""
        bases = [int(path.name) for path in self._log_paths()]
        for base in bases:
            if end is not None and base >= end:
                continue  # made ahead, and deleted when the broker stops
            path = self._log / f"{base:0{NAME_DIGITS}d}"
            stat = self._files.stat(path)
            if stat is None:
                raise StoreError(
                    f"{path} was deleted while it was copied: the disk of the store is nearly "
                    "full; make room there and take another snapshot"
                )
            until = stat.size if end is None else end - base
            if base + stat.size <= start:
                continue
            self._copy(path, self._target / UNFINISHED_LOG, max(start - base, 0), until)
        return min(bases, default=0)

    def _log_paths(self) -> list[Path]:
        names = self._files.names(self._log)
        return [self._log / name for name in names if is_number(name, NAME_DIGITS)]

    def _log_end(self) -> int:
        paths = self._log_paths()
        stat = self._files.stat(paths[-1]) if paths else None
        return int(paths[-1].name) + stat.size if stat else 0

    def _copy_rest(self) -> bool:
        """Copy all but the log, what refers to the rest first; False: files vanished meanwhile."""
        self._clear_rest()
        names = self._files.names(self._source.root)
        rest = [name for name in names if name not in _FIRST]
        try:
            for name in [*(each for each in _FIRST if each in names), *rest]:
                if name == "config":
                    self._copy_tables()
                    continue
                for relative, path in self._tree(self._source.root, name):
                    self._copy(path, (self._target / relative).parent)
        except FileNotFoundError:
            return False
        return True

    def _copy_tables(self) -> None:
        """Copy config/; a table that is being replaced has no file for a moment."""
        for relative, path in self._tree(self._source.config):
            for attempt in range(_ATTEMPTS):
                try:
                    self._copy(path, (self._target / relative).parent)
                    break
                except FileNotFoundError:
                    if attempt == _ATTEMPTS - 1:
                        raise
                    self._wait(_LOOK_S)

    def _copy(self, path: Path, directory: Path, start: int = 0, end: int | None = None) -> None:
        self._files.make_dir(directory)
        copy_range(path, directory / path.name, start, end, self._count)

    def _count(self, size: int) -> None:
        self._copied += size
        self._report(size)

    def _tree(self, root: Path, only: str | None = None) -> Iterator[tuple[Path, Path]]:
        """Each file to copy: its place in the store, and its path."""
        for name in self._files.names(root) if only is None else [only]:
            path = root / name
            is_ours = root == self._source.root
            is_left_out = is_ours and (name in _LEFT_OUT or name.startswith("replaced-"))
            stat = self._files.stat(path)
            if is_left_out or name.endswith(".tmp"):
                continue
            if stat is None or stat.size >= 0:  # None: gone since, which whoever copies notices
                yield path.relative_to(self._source.root), path
            elif path != self._log:
                yield from self._tree(path)

    def _clear_rest(self) -> None:
        """Delete what an earlier round copied, but for the log."""
        for name in self._files.names(self._target):
            if name != UNFINISHED_LOG:
                self._delete(self._target / name)

    def _delete(self, path: Path) -> None:
        for name in self._files.names(path) if path.is_dir() else ():
            self._delete(path / name)
        self._files.delete(path)

    def _finish(self) -> None:
        """Make names durable, from the leaves up, and give the log its name."""
        for directory in sorted(
            (each for each in self._target.rglob("*") if each.is_dir()), reverse=True
        ):
            self._files.sync_dir(directory)
        self._files.sync_dir(self._target)
        self._files.rename(self._target / UNFINISHED_LOG, self._target / "commitlog")
        self._files.sync_dir(self._target)
