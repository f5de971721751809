"""The outside world as the store and the roles see it: a clock, files, a worker, a disk's room.

Protocols only; `system_clock_and_files.py` has the real ones, `cometmq.testing` simulated ones.
What a method promises here, both keep: a write is visible to later reads at once and survives the
death of the process, and it survives a power cut only after `sync` (bytes) and `sync_dir` (names).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from mmap import mmap
    from pathlib import Path


class Clock(Protocol):
    """The wall clock, which may be set, and a monotonic one, which only goes on."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC: for what is stored, or compared with others' clocks."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment: for how long something takes, lives or waits."""
        ...

    def monotonic_s(self) -> float:
        """The same in seconds, as finely as the clock has it: for shares of a loop's iteration."""
        ...

    def local_hour(self) -> int:
        """The local hour of day, 0 to 23."""
        ...

    def local_stamp(self) -> str:
        """Local time as 17 digits: year, month, day, hour, minute, second, millisecond."""
        ...


class OpenFile(Protocol):
    """One file of a fixed size. Belongs to one thread, but for `sync` and `fetch`."""

    def read(self, at: int, length: int) -> bytes:
        """Copy bytes out; fewer come back past the end."""
        ...

    def gather(self, base: int, places: Sequence[int], sizes: Sequence[int]) -> bytes:
        """Copy pieces out, side by side; `places` count from `base` bytes before the file."""
        ...

    def readable(self) -> tuple[bytearray | mmap, int] | None:
        """The file's bytes where they are, and how many may be looked at; None: only by `read`.

        To be used at once, by the file's own thread: a write moves the end, `cut` and `close` take
        the bytes away. A look may wait for the disk.
        """
        ...

    def read_cached(self, at: int, length: int) -> bytes | None:
        """Do as `read` if the bytes are in memory; None when the disk would have to be waited for.

        May say None of bytes that are in memory.
        """
        ...

    def fetch(self, at: int, length: int) -> bytes:
        """Do as `read`, from any thread, holding nobody up while the disk is waited for."""
        ...

    def write(self, at: int, data: bytes) -> None:
        """Write all bytes, or raise OSError: then any part of them may have been written."""
        ...

    def cut(self, at: int) -> None:
        """Make every byte from `at` on zero and give its room back; the size stays."""
        ...

    def sync(self) -> None:
        """Make every byte written before durable. May be called from another thread."""
        ...

    def close(self) -> None:
        """Give the file back; its bytes stay as they are."""
        ...


class HeldLock(Protocol):
    """A lock on a file, held until it is released or the process dies."""

    def release(self) -> None:
        """Let others have it."""
        ...


class FileStat(NamedTuple):
    """What a directory knows about a file: its size in bytes and when it was last written, ms."""

    size: int
    modified_ms: int
    is_private: bool = False
    """Whether nobody but its owner may read it."""


class DiskSpace(NamedTuple):
    """The partition that holds a path: the bytes one can have in all, and those in use."""

    total: int
    used: int


class Files(Protocol):
    """A tree of files and directories. Every method may raise OSError."""

    def names(self, directory: Path) -> list[str]:
        """The names in a directory, sorted; none when there is no such directory."""
        ...

    def stat(self, path: Path) -> FileStat | None:
        """Size and time of a file; None when there is none (a directory has size -1)."""
        ...

    def make_dir(self, directory: Path, *, durable: bool = True) -> None:
        """Make a directory and its parents; nothing happens when it is there.

        Durably, unless the caller will `sync_dir` every parent itself.
        """
        ...

    def open(self, path: Path, size: int, *, mapped: bool = False) -> OpenFile:
        """Open a file, made when it is missing, and grown with zeros to `size` when it is shorter.

        `mapped`: read through a memory mapping, best for a file that is read in many places.
        """
        ...

    def read(self, path: Path) -> bytes | None:
        """All bytes of a file; None when there is none."""
        ...

    def write(self, path: Path, data: bytes) -> None:
        """Make or replace a file; on return its bytes are durable, its name is not."""
        ...

    def write_private(self, path: Path, data: bytes) -> None:
        """Do as `write`, with a file that nobody but its owner may read."""
        ...

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name in one step, replacing what had it."""
        ...

    def delete(self, path: Path) -> None:
        """Remove a file or an empty directory; nothing happens when there is none."""
        ...

    def sync_dir(self, directory: Path) -> None:
        """Make the names in a directory durable."""
        ...

    def sync_all(self) -> None:
        """Make all bytes and names written so far durable; cheaper than many a single sync."""
        ...

    def lock(self, path: Path) -> HeldLock | None:
        """Take the lock on a directory, or on byte 0 of a file, made when missing.

        None when somebody has it.
        """
        ...

    def boot_id(self) -> str:
        """What stays the same until the machine goes down, and with it writes; empty: not known."""
        ...

    def space(self, path: Path) -> DiskSpace:
        """The room on the partition of a path."""
        ...


class Worker(Protocol):
    """Somewhere else to do what blocks: one job at a time, in the order they came."""

    def submit(self, job: Callable[[], None], done: Callable[[OSError | None], None]) -> None:
        """Run `job` off the loop; then call `done` on the loop with its OSError or None.

        Whatever else the job raises becomes an OSError, too: `done` is called in any case.
        """
        ...

    def close(self) -> None:
        """Finish the jobs that were given and stop."""
        ...
