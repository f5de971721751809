"""The real clock, files and worker thread of this machine.

Writes by `pwrite` and reads, where asked, by a memory mapping: a full disk is then an exception
and not a signal. Layout: none of its own. Locks are POSIX record locks on byte 0, which exclude
Java brokers too; they do not exclude their own process, so this file remembers what it holds.
Where a system lacks them (Windows), everything works that clients need; `lock` refuses.
"""

from __future__ import annotations

import asyncio
import errno
import mmap
import os
import time
from pathlib import Path
from queue import SimpleQueue
from stat import S_ISDIR
from threading import Lock, Thread
from typing import TYPE_CHECKING

from cometmq import native
from cometmq.errors import SettingsError, StoreError
from cometmq.runtime.clock_and_file_protocols import DiskSpace, FileStat
from cometmq.runtime.worker_jobs import problem_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike

    from cometmq.runtime.clock_and_file_protocols import OpenFile

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_READ_WRITE = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_DIRECTORY: int | None = getattr(os, "O_DIRECTORY", None)
_HAS_PREAD = hasattr(os, "pread")
_fdatasync = getattr(os, "fdatasync", os.fsync)
_SEEK_HOLE = getattr(os, "SEEK_HOLE", None)
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_RANDOM = getattr(os, "POSIX_FADV_RANDOM", None)
_NO_DIRECTORY_LOCKS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_held: set[tuple[int, int]] = set()


class SystemClock:
    """The wall clock and the monotonic clock of the machine."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment; setting the wall clock does not move it."""
        return time.monotonic_ns() // 1_000_000

    monotonic_s = staticmethod(time.monotonic)
    """The same in seconds; not a method, which would cost more than the clock itself."""

    def local_hour(self) -> int:
        """The local hour of day, 0 to 23."""
        return time.localtime().tm_hour

    def local_stamp(self) -> str:
        """Local time as 17 digits, down to the millisecond."""
        seconds, ms = divmod(self.now_ms(), 1000)
        return time.strftime("%Y%m%d%H%M%S", time.localtime(seconds)) + f"{ms:03d}"


class PlainFile:
    """A file read by `pread`: one descriptor, no mapping."""

    __slots__ = ("_fd", "_size")

    def __init__(self, path: Path, size: int) -> None:
        self._size = size
        self._fd = os.open(path, _READ_WRITE, 0o644)
        try:
            if os.fstat(self._fd).st_size < size:
                os.ftruncate(self._fd, size)
            if _RANDOM is not None:
                # Else `read_cached` would read megabytes ahead while the loop waits.
                os.posix_fadvise(self._fd, 0, 0, _RANDOM)
        except OSError:
            os.close(self._fd)
            raise

    def read(self, at: int, length: int) -> bytes:
        """Copy bytes out; fewer come back past the end."""
        return os.pread(self._fd, length, at)

    def gather(self, base: int, places: Sequence[int], sizes: Sequence[int]) -> bytes:
        """Copy pieces out, side by side; `places` count from `base` bytes before the file."""
        return b"".join(
            [self.read(at - base, size) for at, size in zip(places, sizes, strict=True)]
        )

    def readable(self) -> tuple[bytearray | mmap.mmap, int] | None:
        """The file's bytes where they are, and how many may be looked at; None: only by `read`."""
        return None

    def read_cached(self, at: int, length: int) -> bytes | None:
        """Do as `read` if the bytes are in memory; None when the disk must be waited for."""
        if not _NOWAIT:
            return self.fetch(at, length)
        found = bytearray(length)
        done = 0
        while done < length:
            try:
                more = os.preadv(self._fd, [memoryview(found)[done:]], at + done, _NOWAIT)
            except OSError as problem:
                if problem.errno == errno.EAGAIN:
                    return None
                if problem.errno == errno.EOPNOTSUPP:  # a tmpfs, for one, cannot tell
                    return self.fetch(at, length)
                raise
            if not more:
                break
            done += more
        return bytes(found) if done == length else bytes(found[:done])

    def fetch(self, at: int, length: int) -> bytes:
        """Do as `read`, from any thread; others run while the disk is waited for."""
        return os.pread(self._fd, length, at)

    def write(self, at: int, data: bytes) -> None:
        """Write all bytes, or raise OSError: then any part of them may have been written."""
        done = os.pwrite(self._fd, data, at)
        while done < len(data):
            more = os.pwrite(self._fd, memoryview(data)[done:], at + done)
            if not more:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            done += more

    def cut(self, at: int) -> None:
        """Make every byte from `at` on zero and give its room back; the size stays."""
        os.ftruncate(self._fd, at)
        os.ftruncate(self._fd, self._size)

    def sync(self) -> None:
        """Make every byte written before durable. May be called from another thread."""
        _fdatasync(self._fd)

    def close(self) -> None:
        """Give the file back; its bytes stay as they are."""
        os.close(self._fd)


class MappedFile(PlainFile):
    """A file read through a mapping: a slice costs no system call.

    Only up to the end of what was written: to look at a hole through a mapping takes a page, and
    where a full tmpfs has none the process is killed by SIGBUS.
    """

    __slots__ = ("_end", "_map")

    def __init__(self, path: Path, size: int) -> None:
        super().__init__(path, size)
        try:
            self._map = mmap.mmap(self._fd, size, access=mmap.ACCESS_READ)
            self._end = size if _SEEK_HOLE is None else os.lseek(self._fd, 0, _SEEK_HOLE)
        except OSError:
            os.close(self._fd)
            raise
        except ValueError as problem:  # cut short by another thread since its size was looked at
            os.close(self._fd)
            raise OSError(errno.EIO, f"{path} cannot be mapped: {problem}") from problem

    def read(self, at: int, length: int) -> bytes:
        """Copy bytes out; fewer come back past the end."""
        end = at + length
        return self._map[at:end] if end <= self._end else super().read(at, length)

    def gather(self, base: int, places: Sequence[int], sizes: Sequence[int]) -> bytes:
        """Copy pieces out, side by side; `places` count from `base` bytes before the file."""
        if places[-1] + sizes[-1] - base > self._end:
            return super().gather(base, places, sizes)
        mapped = self._map
        if native.c is not None and isinstance(places, tuple) and isinstance(sizes, tuple):
            gathered = native.c.gather(mapped, base, places, sizes)
            if gathered is not None:
                return gathered  # else an entry of a queue is damaged
        return b"".join(
            [
                mapped[(at := place - base) : at + size]
                for place, size in zip(places, sizes, strict=True)
            ]
        )

    def readable(self) -> tuple[bytearray | mmap.mmap, int] | None:
        """The file's bytes where they are, and how many may be looked at."""
        return self._map, self._end

    def write(self, at: int, data: bytes) -> None:
        """Write all bytes, or raise OSError: then any part of them may have been written."""
        super().write(at, data)
        end = at + len(data)
        if at <= self._end < end:  # else a hole stays before it
            self._end = end

    def cut(self, at: int) -> None:
        """Make every byte from `at` on zero and give its room back; the size stays."""
        self._end = min(self._end, at)
        super().cut(at)

    def close(self) -> None:
        """Give the file back; its bytes stay as they are."""
        self._map.close()
        super().close()


class SeekingFile(PlainFile):
    """A file of a system without `pread` and `pwrite`: for the small files of clients."""

    __slots__ = ("_seeking",)

    def __init__(self, path: Path, size: int) -> None:
        self._seeking = Lock()
        super().__init__(path, size)

    def read(self, at: int, length: int) -> bytes:
        """Copy bytes out; fewer come back past the end."""
        with self._seeking:
            os.lseek(self._fd, at, os.SEEK_SET)
            return os.read(self._fd, length)

    def fetch(self, at: int, length: int) -> bytes:
        """Do as `read`, from any thread; others run while the disk is waited for."""
        return self.read(at, length)

    def write(self, at: int, data: bytes) -> None:
        """Write all bytes, or raise OSError: then any part of them may have been written."""
        with self._seeking:
            os.lseek(self._fd, at, os.SEEK_SET)
            left = memoryview(data)
            while left:
                left = left[os.write(self._fd, left) :]


class FileLock:
    """A record lock on byte 0 of a file."""

    def __init__(self, fd: int, key: tuple[int, int]) -> None:
        self._fd = fd
        self._key = key

    def release(self) -> None:
        """Let others have it."""
        if self._key in _held:
            _held.discard(self._key)
            os.close(self._fd)


class SystemFiles:
    """The files of this machine."""

    def names(self, directory: Path) -> list[str]:
        """The names in a directory, sorted; none when there is no such directory."""
        try:
            return sorted(os.listdir(directory))  # noqa: PTH208 - names are all that is needed
        except FileNotFoundError:
            return []

    def stat(self, path: Path) -> FileStat | None:
        """Size and time of a file; None when there is none (a directory has size -1)."""
        try:
            found = path.stat()
        except FileNotFoundError:
            return None
        size = -1 if S_ISDIR(found.st_mode) else found.st_size
        is_private = not found.st_mode & 0o077
        return FileStat(size, found.st_mtime_ns // 1_000_000, is_private)

    def make_dir(self, directory: Path, *, durable: bool = True) -> None:
        """Make a directory and its parents; durably, unless the caller will `sync_dir` them."""
        if directory.is_dir():
            return
        self.make_dir(directory.parent, durable=durable)
        directory.mkdir(exist_ok=True)
        if durable:
            self.sync_dir(directory.parent)

    def open(self, path: Path, size: int, *, mapped: bool = False) -> OpenFile:
        """Open a file, made when it is missing, and grown with zeros to `size` when shorter."""
        if not _HAS_PREAD:
            return SeekingFile(path, size)
        return MappedFile(path, size) if mapped else PlainFile(path, size)

    def read(self, path: Path) -> bytes | None:
        """All bytes of a file; None when there is none."""
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def write(self, path: Path, data: bytes) -> None:
        """Make or replace a file; on return its bytes are durable, its name is not."""
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def write_private(self, path: Path, data: bytes) -> None:
        """Do as `write`, with a file that nobody but its owner may read."""
        path.unlink(missing_ok=True)  # who had it open sees nothing of the new one
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name in one step, replacing what had it."""
        old.replace(new)

    def delete(self, path: Path) -> None:
        """Remove a file or an empty directory; nothing happens when there is none."""
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)

    def sync_dir(self, directory: Path) -> None:
        """Make the names in a directory durable."""
        if _DIRECTORY is None:
            return  # Windows opens no directories; its file system keeps a journal of names
        fd = os.open(directory, os.O_RDONLY | _DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self) -> None:
        """Make all bytes and names written so far durable; cheaper than many a single sync."""
        os.sync()

    def lock(self, path: Path) -> FileLock | None:
        """Take the lock on a directory, or on byte 0 of a file, made when missing.

        None when somebody has it. Where the file system locks no directories, it is not locked.
        Raises StoreError on a system without such locks.
        """
        if fcntl is None:
            raise StoreError(
                f"{path} cannot be locked: this system has no POSIX record locks; run brokers on "
                "Linux or macOS, only clients run here"
            )
        found = path.stat() if path.exists() else None
        # Closing any descriptor of a locked file drops the lock, so look before opening it.
        if found is not None and (found.st_dev, found.st_ino) in _held:
            return None
        is_directory = path.is_dir()
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC if is_directory else _READ_WRITE, 0o644)
        try:
            if is_directory:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            else:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
                os.pwrite(fd, b"lock", 0)
        except OSError as problem:
            if problem.errno in (errno.EACCES, errno.EAGAIN):
                os.close(fd)
                return None
            if not (is_directory and problem.errno in _NO_DIRECTORY_LOCKS):
                os.close(fd)
                raise
        made = os.fstat(fd)
        _held.add((made.st_dev, made.st_ino))
        return FileLock(fd, (made.st_dev, made.st_ino))

    def boot_id(self) -> str:
        """What stays the same until the machine goes down, and with it writes; empty: not known."""
        return (self.read(_BOOT_ID) or b"").decode("ascii", "replace").strip()

    def space(self, path: Path) -> DiskSpace:
        """The room on the partition of a path."""
        found = os.statvfs(path)
        used = (found.f_blocks - found.f_bfree) * found.f_frsize
        # What is kept for root or by a quota is neither used nor to be had: as df counts.
        return DiskSpace(used + found.f_bavail * found.f_frsize, used)


class ThreadWorker:
    """One daemon thread that does what blocks and reports back to the loop that asked."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[tuple[Callable[[], None], Callable[[OSError | None], None]] | None]
        self._jobs = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = Thread(target=self._work, name=name, daemon=True)

    def submit(self, job: Callable[[], None], done: Callable[[OSError | None], None]) -> None:
        """Run `job` in the thread; then call `done` on the loop with its OSError or None."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._thread.start()
        self._jobs.put((job, done))

    def close(self) -> None:
        """Finish the jobs that were given and stop."""
        if self._loop is not None:
            self._jobs.put(None)
            self._thread.join()

    def _work(self) -> None:
        loop = self._loop
        assert loop is not None
        while (task := self._jobs.get()) is not None:
            job, done = task
            problem = problem_of(job)
            if loop.is_closed():
                return
            loop.call_soon_threadsafe(done, problem)


def ram_bytes() -> int:
    """How much memory the machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def expand_user_path(key: str, path: str | PathLike[str]) -> Path:
    """The path a setting gives, `~` being a home; SettingsError where nobody knows that home."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise SettingsError(
            f"{key} is {path}, and nobody knows that home directory; write the whole path"
        ) from None
