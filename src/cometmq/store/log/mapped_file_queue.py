"""A queue of files of one size that together hold one range of bytes.

A file is named by the offset of its first byte, in decimal digits. Files are opened when they are
first used and closed when too many are open; callers do not notice. Refuses to know what the bytes
mean. Invariant: a read or write is within one file.
Java: MappedFileQueue, DefaultMappedFile.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right, insort
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cometmq.errors import NotAStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files, OpenFile

_NOWHERE = 1 << 62
NAME_DIGITS = 20
AHEAD_BYTES = 8160
"""What `read_ahead` keeps of an open file: two pages, a dozen pulls of 32 messages."""


class NotInMemory(Exception):
    """Bytes were asked for at once and the disk would have to be waited for: `fetch` them first."""

    def __init__(self, segment: Segment, at: int, length: int) -> None:
        self.segment = segment
        self.at = at
        self.length = length
        super().__init__(f"{length} bytes at {at}")


class OpenFiles:
    """The bound on files kept open; the ones not used lately are closed first."""

    __slots__ = ("_limit", "_ring")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._ring: deque[Segment] = deque()

    def add(self, segment: Segment) -> None:
        """Count a segment that was just opened, and close others if it is one too many."""
        assert segment.file is not None, "only open files count"
        ring = self._ring
        for _ in range(2 * len(ring)):
            if len(ring) < self._limit:
                break
            oldest = ring.popleft()
            if oldest.used or oldest.pins:
                oldest.used = False
                ring.append(oldest)
            else:
                oldest.close()
        assert len(ring) < self._limit or all(each.pins for each in ring), "too many are open"
        ring.append(segment)

    def remove(self, segment: Segment) -> None:
        """Count a segment no longer and close it, once nobody has it pinned."""
        if segment.file is not None:
            self._ring.remove(segment)
            segment.close()

    def __len__(self) -> int:
        """How many files are open."""
        return len(self._ring)


class Segment:
    """One file of a queue of files, open or not."""

    __slots__ = ("ahead", "ahead_at", "base", "file", "is_leaving", "mapped_files", "pins", "used")

    def __init__(self, mapped_files: MappedFileQueue, base: int) -> None:
        self.mapped_files = mapped_files
        self.base = base
        self.ahead = b""
        """What `read_ahead` read last, while the file is open and nothing is written to it."""
        self.ahead_at = 0
        self.file: OpenFile | None = None
        self.used = self.is_leaving = False
        self.pins = 0

    def open(self) -> OpenFile:
        """The open file, opened now if it is not."""
        if self.file is None:
            mapped_files = self.mapped_files
            size = mapped_files.file_bytes if mapped_files.may_grow else 0
            self.file = mapped_files.files.open(
                mapped_files.path_of(self.base), size, mapped=mapped_files.mapped
            )
            mapped_files.open_files.add(self)
        self.used = True
        return self.file

    @property
    def exists(self) -> bool:
        """Whether the file still belongs to its queue; a deleted one must not be opened."""
        return self.mapped_files.segments.get(self.base) is self

    def pin(self) -> OpenFile:
        """Open the file and keep it open until `unpin`: another thread is about to use it."""
        file = self.open()
        self.pins += 1
        return file

    def unpin(self) -> None:
        """Allow the file to be closed; close it now if `close` was called meanwhile."""
        assert self.pins > 0, "unpinned more often than pinned"
        self.pins -= 1
        if self.is_leaving and not self.pins:
            self.close()

    def close(self) -> None:
        """Close the file, now or with the last `unpin`; the next use opens it again."""
        self.is_leaving = self.pins > 0
        if self.file is not None and not self.is_leaving:
            self.file.close()
            self.file = None
            self.ahead = b""


def is_number(name: str, digits: int) -> bool:
    """Whether a file's name is a number with so many digits: their order is that of the numbers."""
    return len(name) == digits and name.isascii() and name.isdecimal()


def pin_segments(segments: list[Segment]) -> list[OpenFile]:
    """Pin several files; OSError: one could not be opened, and none is pinned."""
    files: list[OpenFile] = []
    try:
        for segment in segments:
            files.append(segment.pin())  # noqa: PERF401 - those before a failure are needed
    except OSError:
        for segment in segments[: len(files)]:
            segment.unpin()
        raise
    return files


class MappedFileQueue:
    """All files of one directory, in the order of their offsets."""

    __slots__ = (
        "bases",
        "directory",
        "file_bytes",
        "files",
        "mapped",
        "may_grow",
        "open_files",
        "preallocated",
        "preallocated_base",
        "resident_from",
        "segments",
    )

    def __init__(
        self,
        files: Files,
        directory: Path,
        file_bytes: int,
        open_files: OpenFiles,
        *,
        mapped: bool = False,
        may_grow: bool = True,
    ) -> None:
        """`mapped`: read by mappings; `may_grow`: a file that is too short is made full size."""
        assert file_bytes > 0
        self.files = files
        self.directory = directory
        self.file_bytes = file_bytes
        self.open_files = open_files
        self.mapped = mapped
        self.may_grow = may_grow
        self.bases: list[int] = []
        self.segments: dict[int, Segment] = {}
        self.preallocated_base = -1
        """The file that is made ahead for `segment`, if one is: where it begins."""
        self.preallocated: OpenFile | None = None
        """That file once it is durable; it is none of `segments` until it is asked for."""
        self.resident_from = _NOWHERE
        """Bytes from here on were written lately, so they are in memory."""

    def load(self) -> None:
        """Find the files that are there; NotAStore when one cannot be one of them."""
        for name in self.files.names(self.directory):
            path = self.directory / name
            if not is_number(name, NAME_DIGITS):
                if (stat := self.files.stat(path)) and stat.size >= 0:
                    raise NotAStore(
                        f"{path} is no store file: its name is not {NAME_DIGITS} digits"
                    )
                continue
            base = int(name)
            if base % self.file_bytes:
                raise NotAStore(
                    f"{path} does not begin at a multiple of {self.file_bytes} bytes: "
                    "the store was written with another file size; set that one"
                )
            self.add(base)

    def add(self, base: int) -> None:
        """Count a file that is there; the bases must come in order."""
        assert not self.bases or base > self.bases[-1], "the bases must come in order"
        self.bases.append(base)
        self.segments[base] = Segment(self, base)

    def missing(self) -> Path | None:
        """The first file that should stand between two others and does not."""
        for base, following in itertools.pairwise(self.bases):
            if following != base + self.file_bytes:
                return self.path_of(base + self.file_bytes)
        return None

    def path_of(self, base: int) -> Path:
        """The file that begins at this offset."""
        return self.directory / f"{base:0{NAME_DIGITS}d}"

    @property
    def first(self) -> int:
        """The offset of the first byte of the first file; 0 when there is none."""
        return self.bases[0] if self.bases else 0

    @property
    def end(self) -> int:
        """The offset after the last byte of the last file; 0 when there is none."""
        return self.bases[-1] + self.file_bytes if self.bases else 0

    def base_of(self, at: int) -> int:
        """The first offset of the file that holds this one."""
        return at - at % self.file_bytes

    def read(self, at: int, length: int, cached_only: bool = False) -> bytes:
        """Copy bytes out of the one file that holds `at`; empty when that file is not there.

        With `cached_only` raises NotInMemory where the disk would have to be waited for.
        """
        file_offset = at % self.file_bytes
        segment = self.segments.get(at - file_offset)
        if segment is None:
            return b""
        if at >= self.resident_from or not cached_only:
            return segment.open().read(file_offset, length)
        if (found := segment.open().read_cached(file_offset, length)) is None:
            raise NotInMemory(segment, file_offset, length)
        return found

    def read_ahead(self, at: int, length: int, length_max: int, cached_only: bool = False) -> bytes:
        """Do as `read` for who goes on behind it: some more, up to `length_max`, is read at once.

        Measured alone: a pull's entries cost 2 us by a system call, 1 from what was read ahead.
        """
        file_offset = at % self.file_bytes
        segment = self.segments.get(at - file_offset)
        if segment is None:
            return b""
        start = file_offset - segment.ahead_at
        if 0 <= start <= len(segment.ahead) - length:
            segment.used = True
            return segment.ahead[start : start + length]
        found = self.read(at, max(length, min(AHEAD_BYTES, length_max)), cached_only)
        if len(found) <= AHEAD_BYTES:
            segment.ahead = found
            segment.ahead_at = file_offset
        return found[:length]

    def segment(self, base: int) -> Segment:
        """The file that begins at `base`, made when it is missing; durably if `mapped`."""
        segment = self.segments.get(base)
        if segment is None:
            segment = Segment(self, base)
            self.files.make_dir(self.directory, durable=self.mapped)
            preallocated = self._take_preallocated(base)
            try:
                if preallocated is not None:
                    segment.file = preallocated
                    self.open_files.add(segment)
                file = segment.open()
                if self.mapped and preallocated is None:
                    file.sync()
                    self.files.sync_dir(self.directory)
            except OSError:
                self.open_files.remove(segment)
                self.files.delete(self.path_of(base))
                raise
            insort(self.bases, base)
            self.segments[base] = segment
            assert len(self.bases) == len(self.segments)
        return segment

    def _take_preallocated(self, base: int) -> OpenFile | None:
        """The file made ahead for `base`; from now on what is made for it comes too late."""
        if self.preallocated_base != base:
            return None
        preallocated, self.preallocated, self.preallocated_base = self.preallocated, None, -1
        return preallocated

    def delete_preallocated(self) -> None:
        """Close and delete the file made ahead, if there is one."""
        path = self.path_of(self.preallocated_base)
        assert self.preallocated_base not in self.segments, "it belongs to the log already"
        if preallocated := self._take_preallocated(self.preallocated_base):
            preallocated.close()
            self.files.delete(path)

    def write(self, at: int, data: bytes) -> None:
        """Write within the file that holds `at`, made when missing; OSError: perhaps in part."""
        file_offset = at % self.file_bytes
        assert file_offset + len(data) <= self.file_bytes, "a write is within one file"
        segment = self.segment(at - file_offset)
        segment.ahead = b""
        segment.open().write(file_offset, data)

    def cut(self, at: int) -> None:
        """Drop everything from `at` on: zeros in its file, later files deleted, the last first."""
        assert at >= 0
        for base in [base for base in reversed(self.bases) if base >= at]:
            self.remove(base)
        assert not self.bases or self.bases[-1] < at or at == 0
        file_offset = at % self.file_bytes
        if file_offset and (segment := self.segments.get(at - file_offset)):
            segment.ahead = b""
            segment.open().cut(file_offset)

    def remove(self, base: int) -> None:
        """Delete one file; durably if `mapped`, so that no power cut brings it back."""
        self.files.delete(self.release(base))
        if self.mapped:
            self.files.sync_dir(self.directory)

    def release(self, base: int) -> Path:
        """Count a file no longer; the caller deletes what has this path."""
        segment = self.segments.pop(base)
        self.bases.remove(base)
        assert len(self.bases) == len(self.segments)
        self.open_files.remove(segment)
        return self.path_of(base)

    def between(self, start: int, end: int) -> list[Segment]:
        """The files that hold bytes of [start, end)."""
        assert start <= end, "a range ends before it begins"
        at = max(bisect_right(self.bases, start) - 1, 0)
        return [
            self.segments[b] for b in self.bases[at:] if b < end and b + self.file_bytes > start
        ]

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Within it files are read as they are: one that is too short stays so."""
        mapped, may_grow = self.mapped, self.may_grow
        self.mapped = self.may_grow = False
        try:
            yield
        finally:
            self.close()
            self.mapped, self.may_grow = mapped, may_grow

    def close(self) -> None:
        """Close all files."""
        if preallocated := self._take_preallocated(self.preallocated_base):
            preallocated.close()
        for segment in self.segments.values():
            self.open_files.remove(segment)
