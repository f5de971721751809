"""A simulated disk, clock and worker: files that forget what was not synced when the power goes.

Writes are seen at once and durable only after `sync`; names only after `sync_dir`. `power_cut`
decides for each page written since: kept, dropped, torn between sectors, or as it was in between;
for each change of a size or a name: kept or dropped. The same seed gives the same course of events.
A sector of 512 bytes is written whole or not at all, as disks promise.
"""

from __future__ import annotations

import asyncio
import errno
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cometmq.runtime.clock_and_file_protocols import DiskSpace, FileStat
from cometmq.runtime.worker_jobs import problem_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from mmap import mmap
    from random import Random

    _Names = dict[Path, "_Inode | _Directory"]
    _Change = list[tuple[Path, "_Inode | _Directory | None"]]

PAGE = 4096
SECTOR = 512
_VERSIONS_MAX = 4


class SimClock:
    """A clock that a test moves: `ms` makes time pass, `step` sets the wall clock."""

    def __init__(self, now_ms: int = 1_700_000_000_000, hour: int = 0) -> None:
        self.ms = now_ms
        self.hour = hour
        self._stepped_ms = 0

    def step(self, by_ms: int) -> None:
        """Set the wall clock ahead, or back; no time passes."""
        self._stepped_ms += by_ms

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        return self.ms + self._stepped_ms

    def monotonic_ms(self) -> int:
        """Milliseconds that a step does not change."""
        return self.ms

    def monotonic_s(self) -> float:
        """The same in seconds."""
        return self.monotonic_ms() / 1000

    def local_hour(self) -> int:
        """The hour of day."""
        return self.hour

    def local_stamp(self) -> str:
        """The time as 17 digits, down to the millisecond; this clock stands at Greenwich."""
        seconds, ms = divmod(self.now_ms(), 1000)
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y%m%d%H%M%S") + f"{ms:03d}"


class _Directory:
    """A name that stands for a directory."""


_DIRECTORY = _Directory()


class _Inode:
    """One file's bytes: as programs see them, and as the disk has them."""

    def __init__(self, modified_ms: int) -> None:
        self.live = bytearray()
        self.disk = bytearray()
        self.versions: dict[int, list[bytes]] = {}
        self.sizes: list[int] = []
        self.modified_ms = modified_ms

    def resize(self, size: int) -> None:
        if size < len(self.live):
            for page in range(size // PAGE, -(-len(self.live) // PAGE)):
                self.versions.setdefault(page, [])
            del self.live[size:]
        else:
            self.live.extend(bytes(size - len(self.live)))
        self.sizes.append(size)

    def write(self, at: int, data: bytes) -> None:
        self.live[at : at + len(data)] = data
        self.note(at, at + len(data))

    def note(self, start: int, end: int) -> None:
        """Remember the pages of [start, end) as they are now."""
        for page in range(start // PAGE, -(-end // PAGE)):
            seen = self.versions.setdefault(page, [])
            seen.append(bytes(self.live[page * PAGE : (page + 1) * PAGE]))
            del seen[:-_VERSIONS_MAX]

    def sync(self) -> None:
        size = len(self.live)
        del self.disk[size:]
        self.disk.extend(bytes(size - len(self.disk)))
        for page in self.versions:  # every byte that differs lies in a page noted here
            start, end = page * PAGE, min((page + 1) * PAGE, size)
            self.disk[start:end] = self.live[start:end]
        self.versions.clear()
        self.sizes.clear()

    def power_cut(self, rng: Random) -> None:
        sizes = [len(self.disk), *self.sizes]
        size = rng.choice(sizes) if rng.random() < 0.5 else sizes[-1]
        disk = self.disk[:size].ljust(size, b"\0")
        for page, seen in self.versions.items():
            at = page * PAGE
            old = bytes(disk[at : at + PAGE])
            new = rng.choice([old, *seen])
            if rng.random() < 0.3:
                new = _torn(old, new, rng)
            disk[at : at + len(old)] = new[: len(old)].ljust(len(old), b"\0")
        self.disk = disk
        self.live = bytearray(disk)
        self.versions.clear()
        self.sizes.clear()


def _torn(old: bytes, new: bytes, rng: Random) -> bytes:
    """A page of which some sectors were written and some were not."""
    sectors = range(0, len(old), SECTOR)
    return b"".join([(new if rng.random() < 0.5 else old)[at : at + SECTOR] for at in sectors])


class SimFile:
    """An open file of the simulated disk."""

    def __init__(self, disk: SimFiles, inode: _Inode, size: int) -> None:
        self._disk = disk
        self._inode = inode
        self._size = size
        self._life = disk.life
        self._is_closed = False
        if len(inode.live) < size:
            inode.resize(size)

    def _check(self) -> None:
        assert self._life == self._disk.life, "this file was opened before the power went"
        assert not self._is_closed, "this file was closed"

    def read(self, at: int, length: int) -> bytes:
        """Copy bytes out; fewer come back past the end."""
        self._check()
        return bytes(self._inode.live[at : at + length])

    def gather(self, base: int, places: Sequence[int], sizes: Sequence[int]) -> bytes:
        """Copy pieces out, side by side; `places` count from `base` bytes before the file."""
        return b"".join(
            [self.read(at - base, size) for at, size in zip(places, sizes, strict=True)]
        )

    def readable(self) -> tuple[bytearray | mmap, int] | None:
        """The file's bytes where they are, and how many may be looked at."""
        self._check()
        return self._inode.live, self._size

    def read_cached(self, at: int, length: int) -> bytes | None:
        """Do as `read` unless the disk is asleep and these bytes were not fetched before."""
        self._check()
        if self._disk.is_asleep and (self._inode, at) not in self._disk.fetched:
            return None
        return self.read(at, length)

    def fetch(self, at: int, length: int) -> bytes:
        """Do as `read`; afterwards the bytes are in memory."""
        self._disk.fetched.add((self._inode, at))
        return self.read(at, length)

    def write(self, at: int, data: bytes) -> None:
        """Write all bytes, or raise OSError: then a part of them may have been written."""
        self._check()
        granted = self._disk.grant(len(data))
        self._inode.write(at, data[:granted])
        self._inode.modified_ms = self._disk.clock.now_ms()
        if granted < len(data):
            raise OSError(errno.ENOSPC, "No space left on the simulated disk")

    def cut(self, at: int) -> None:
        """Make every byte from `at` on zero and give its room back; the size stays."""
        self._check()
        self._inode.resize(at)
        self._inode.resize(self._size)
        self._inode.note(at, self._size)

    def sync(self) -> None:
        """Make every byte written before durable."""
        self._check()
        self._disk.check_sync()
        if self._disk.syncs:
            self._inode.sync()

    def close(self) -> None:
        """Give the file back; using it afterwards is an AssertionError."""
        self._is_closed = True


class SimLock:
    """A lock of the simulated disk."""

    def __init__(self, disk: SimFiles, path: Path) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        """Let others have it."""
        self._disk.locked.discard(self._path)


class SimFiles:
    """A whole simulated disk. Belongs to one thread."""

    def __init__(self, rng: Random, clock: SimClock | None = None) -> None:
        self._rng = rng
        self.clock = clock or SimClock()
        self.life = self._boots = 0
        self.syncs = True
        """Set to False, `sync` does nothing: for tests of the tests."""
        self.syncs_names = True
        """The same for `sync_dir`."""
        self.room: int | None = None
        """Bytes that may still be written before the disk is full; None: without end."""
        self.sync_error: OSError | None = None
        """Raised by every sync while it is set."""
        self.is_asleep = False
        """Set to True, nothing is in memory until it is fetched; a fetch is kept in `fetched`."""
        self.fetched: set[tuple[_Inode, int]] = set()
        self.locked: set[Path] = set()
        self.total = 1 << 40
        self.used = 0
        self._names: _Names = {Path("/"): _DIRECTORY}
        self._disk_names: _Names = dict(self._names)
        self._changes: dict[Path, list[_Change]] = {}

    def grant(self, size: int) -> int:
        """How many of so many bytes there is room for."""
        if self.room is None:
            return size
        granted = min(size, self.room)
        self.room -= granted
        return granted

    def check_sync(self) -> None:
        """Fail if syncs are to fail."""
        if self.sync_error is not None:
            raise self.sync_error

    def power_cut(self) -> None:
        """Lose what was not synced, by luck of the seed; locks and open files are gone."""
        for changes in self._changes.values():
            keep = self._rng.choice((0.0, 0.5, 1.0))
            for change in changes:
                if self._rng.random() < keep:
                    _apply(self._disk_names, change)
        self._changes.clear()
        names = self._disk_names
        for path in [path for path in names if any(up not in names for up in path.parents)]:
            del names[path]
        self._names = dict(names)
        for inode in dict.fromkeys(names.values()):
            if isinstance(inode, _Inode):
                inode.power_cut(self._rng)
        self._boots += 1
        self.kill()

    def kill(self) -> None:
        """Let the process die: locks and open files are gone, every write stays."""
        self.locked.clear()
        self.life += 1

    def names(self, directory: Path) -> list[str]:
        """The names in a directory, sorted; none when there is no such directory."""
        return sorted(p.name for p in self._names if p.parent == directory and p != directory)

    def stat(self, path: Path) -> FileStat | None:
        """Size and time of a file; None when there is none (a directory has size -1)."""
        found = self._names.get(path)
        if isinstance(found, _Inode):
            return FileStat(len(found.live), found.modified_ms)
        return None if found is None else FileStat(-1, 0)

    def make_dir(self, directory: Path, *, durable: bool = True) -> None:
        """Make a directory and its parents; durably, unless the caller will `sync_dir` them."""
        for path in (*reversed(directory.parents), directory):
            if path not in self._names:
                self._change([(path, _DIRECTORY)])
                if durable:
                    self.sync_dir(path.parent)

    def open(self, path: Path, size: int, *, mapped: bool = False) -> SimFile:  # noqa: ARG002
        """Open a file, made when it is missing, and grown with zeros to `size` when shorter."""
        return SimFile(self, self._inode(path), size)

    def read(self, path: Path) -> bytes | None:
        """All bytes of a file; None when there is none."""
        inode = self._names.get(path)
        return bytes(inode.live) if isinstance(inode, _Inode) else None

    def write_private(self, path: Path, data: bytes) -> None:
        """Do as `write`: there is one user here."""
        self.write(path, data)

    def write(self, path: Path, data: bytes) -> None:
        """Make or replace a file; on return its bytes are durable, its name is not."""
        inode = self._inode(path)
        inode.resize(0)
        granted = self.grant(len(data))
        inode.write(0, data[:granted])
        if granted < len(data):
            raise OSError(errno.ENOSPC, "No space left on the simulated disk")
        self.check_sync()
        if self.syncs:
            inode.sync()

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name in one step, replacing what had it."""
        self._change([(old, None), (new, self._names[old])])

    def delete(self, path: Path) -> None:
        """Remove a file or an empty directory; nothing happens when there is none."""
        if path in self._names:
            self._change([(path, None)])

    def sync_dir(self, directory: Path) -> None:
        """Make the names in a directory durable."""
        self.check_sync()
        if self.syncs_names:
            for change in self._changes.pop(directory, []):
                _apply(self._disk_names, change)

    def sync_all(self) -> None:
        """Make all bytes and names written so far durable."""
        for directory in list(self._changes):
            self.sync_dir(directory)
        for inode in self._names.values():
            if isinstance(inode, _Inode) and self.syncs:
                inode.sync()

    def boot_id(self) -> str:
        """What stays the same until the power is cut."""
        return f"boot-{self._boots}"

    def lock(self, path: Path) -> SimLock | None:
        """Take the lock on a directory, or a file, made when missing; None: somebody has it."""
        if self._names.get(path) is not _DIRECTORY:
            self._inode(path)
        if path in self.locked:
            return None
        self.locked.add(path)
        return SimLock(self, path)

    def space(self, path: Path) -> DiskSpace:  # noqa: ARG002
        """The room there is: `total` and `used`, as the test set them."""
        return DiskSpace(self.total, self.used)

    def _inode(self, path: Path) -> _Inode:
        if path.parent not in self._names:
            raise FileNotFoundError(errno.ENOENT, "No such directory", str(path.parent))
        if path not in self._names:
            self._change([(path, _Inode(self.clock.now_ms()))])
        found = self._names[path]
        if isinstance(found, _Inode):
            return found
        raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))

    def _change(self, change: _Change) -> None:
        _apply(self._names, change)
        self._changes.setdefault(change[0][0].parent, []).append(change)


def _apply(names: _Names, change: _Change) -> None:
    for path, found in change:
        if found is None:
            names.pop(path, None)
        else:
            names[path] = found


class SimWorker:
    """A worker without a thread: each job runs a few turns of the loop after it was given."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._jobs: list[tuple[Callable[[], None], Callable[[OSError | None], None]]] = []
        self.is_dead = False
        """Set to True, it does nothing more: its process was killed."""

    def submit(self, job: Callable[[], None], done: Callable[[OSError | None], None]) -> None:
        """Run `job` later; then call `done` with its OSError or None."""
        self._jobs.append((job, done))
        if len(self._jobs) == 1:
            self._wait(self._rng.randint(0, 3))

    def _wait(self, turns: int) -> None:
        step = (lambda: self._wait(turns - 1)) if turns else self._run
        asyncio.get_running_loop().call_soon(step)

    def _run(self) -> None:
        if self.is_dead:
            return
        job, done = self._jobs[0]
        problem = problem_of(job)
        del self._jobs[0]
        if self._jobs:
            self._wait(self._rng.randint(0, 3))
        done(problem)

    def close(self) -> None:
        """Stop; the jobs that were given have been run."""
        assert self.is_dead or not self._jobs, "closed with jobs waiting"
