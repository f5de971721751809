"""Hot. The log: every record of every topic, one after the other, in files of one size.

A record gets its place at once and waits in memory for `write`, which hands all of them to the
system in one call a file. A file ends with a blank, so a record is followed by at least 8 bytes.
Under SYNC_FLUSH small writes carry zeros for the room behind them: a flush of blocks that the file
has already is cheaper than one of new blocks.
Invariants: first <= flushed <= written <= tail; bytes below `written` are in the files, below
`flushed` they survive a power cut; a failed `write` leaves the log as if nothing had been placed.
Java: CommitLog.
"""

from __future__ import annotations

import logging
from struct import Struct
from typing import TYPE_CHECKING

from cometmq import native
from cometmq.wire.records import log_record as stored

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cometmq.store.log.mapped_file_queue import MappedFileQueue, Segment
    from cometmq.store.message_draft import MessageDraft

_logger = logging.getLogger(__name__)
_REPORTED_MAX = 1_000
"""Damaged records that are named in the log, each once."""
_encode = stored.encode
_HEAD_BYTES = 56
_PREFIX = Struct(">iI")
_OFFSETS = Struct(">qqi")
_TIME = Struct(">q")
SMALL_BYTES = 1024
NOWHERE = (1 << 63) - 1
RESIDENT_BYTES_MIN = 64 * 1024 * 1024
"""How much of what was written last is taken to be in memory without asking, at least."""
_SPAN_BYTES = 65_536
ZEROS_AHEAD_BYTES = 256 * 1024
"""How far ahead blocks are taken by zeros, under SYNC_FLUSH. Measured on ext4, disk shared, a flush
of 10 KB: 180 us of CPU and 0.7 ms without, 120 us and 0.3 ms with them."""
_SMALL_WRITE_BYTES = 64 * 1024
"""A larger write takes no zeros along: its bytes would cost more than the blocks."""
_MAGICS = (stored.MAGIC_V1, stored.MAGIC_V2)


class CommitLog:
    """The run of records. One loop owns it; only `Segment.pin`ned files are synced elsewhere."""

    __slots__ = (
        "_file_bytes",
        "_is_torn",
        "_mapped_files",
        "_reported",
        "_resident_bytes",
        "_resident_update_at",
        "_with_crc",
        "_with_zeros_ahead",
        "_zeros_end",
        "checksums_from",
        "flushed",
        "life_start",
        "pending",
        "room",
        "store_host",
        "tail",
        "written",
    )

    def __init__(
        self,
        mapped_files: MappedFileQueue,
        store_host: bytes,
        ram_bytes: int,
        *,
        with_crc: bool,
        with_zeros_ahead: bool,
    ) -> None:
        self._mapped_files = mapped_files
        self._with_zeros_ahead = with_zeros_ahead
        self._resident_bytes = max(ram_bytes >> 5, RESIDENT_BYTES_MIN)
        self._file_bytes = mapped_files.file_bytes
        self.store_host = store_host
        self._with_crc = with_crc
        self.checksums_from = NOWHERE
        """From this byte on every record has a checksum of its own: one without it is damaged."""
        self.pending: list[bytes] = []
        self._reported: set[int] = set()
        self._is_torn = False
        self.begin_at(mapped_files.first)

    def begin_at(self, tail: int) -> None:
        """Take `tail` as the end of what is in the files and durable."""
        assert tail >= 0
        assert not self.pending, "messages wait to be written"
        self.tail = self.written = self.flushed = tail
        # What lies before it was on the disk before this process, and may be damaged.
        self.life_start = self._resident_update_at = tail
        self.room = self._file_bytes - tail % self._file_bytes
        # Up to where the last file has blocks, as far as this process knows.
        self._zeros_end = tail if self._with_zeros_ahead else NOWHERE

    @property
    def mapped_files(self) -> MappedFileQueue:
        """The files."""
        return self._mapped_files

    @property
    def directory(self) -> Path:
        """Where the files are."""
        return self._mapped_files.directory

    @property
    def first(self) -> int:
        """The offset of the oldest byte still there."""
        return self._mapped_files.first

    @property
    def resident_from(self) -> int:
        """Bytes from here on were written lately, so they are in memory."""
        return self._mapped_files.resident_from

    @property
    def file_bytes(self) -> int:
        """How large each file is."""
        return self._file_bytes

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever written, or all of it was deleted."""
        return not self._mapped_files.bases

    def fits(self, size: int) -> bool:
        """Whether so many bytes of records can lie in one file."""
        return size + 8 <= self._file_bytes

    def make_room(self, size: int) -> None:
        """End the current file with a blank unless `size` bytes and a blank still fit."""
        if self.room < size + 8:
            self.pending.append(stored.BLANK.pack(self.room, stored.MAGIC_BLANK))
            self.tail += self.room
            self.room = self._file_bytes
            assert self.tail % self._file_bytes == 0, "a blank ends with its file"

    def place(
        self, draft: MessageDraft, properties: bytes, sys_flag: int, queue_offset: int, now_ms: int
    ) -> tuple[int, int]:
        """Put a record at the tail, still in memory; its phy_offset and size come back.

        Only after `make_room` for it.
        """
        phy_offset = self.tail
        record = _encode(
            draft.topic,
            draft.queue_id,
            draft.flag,
            queue_offset,
            phy_offset,
            sys_flag,
            draft.born_ms,
            draft.born_host,
            now_ms,
            self.store_host,
            draft.reconsume_times,
            draft.prepared_offset,
            draft.body,
            properties,
            self._with_crc,
        )
        self.pending.append(record)
        size = len(record)
        self.tail = phy_offset + size
        self.room -= size
        return phy_offset, size

    def write(self) -> None:
        """Hand everything placed to the system; OSError: nothing of it was kept."""
        pending = self.pending
        if not pending:
            return
        self.pending = []
        start, end = self.written, self.tail
        assert self.flushed <= start < end
        try:
            if self._is_torn:
                self._repair(start)
            if start // self._file_bytes == (end - 1) // self._file_bytes:
                self._write_piece(start, b"".join(pending))
            else:
                self._write_over_files(pending)
        except OSError:
            self.tail = start
            self.room = self._file_bytes - start % self._file_bytes
            self._is_torn = True
            self._repair(start)
            raise
        self.written = end
        assert self.room == self._file_bytes - end % self._file_bytes
        if end > self._resident_update_at:
            self._resident_update_at = end + (self._resident_bytes >> 3)
            self._mapped_files.resident_from = max(self.life_start, end - self._resident_bytes)

    def append_raw(self, data: bytes) -> None:
        """Write bytes that are encoded already behind the last one; OSError: nothing was kept."""
        assert not self.pending, "messages wait to be written before these bytes"
        assert self.tail == self.written
        start = at = self.written
        try:
            if self._is_torn:
                self._repair(start)
            while at < start + len(data):
                room = self._file_bytes - at % self._file_bytes
                piece = data[at - start : at - start + room]
                self._write_piece(at, piece)
                at += len(piece)
        except OSError:
            self._is_torn = True
            self._repair(start)
            raise
        self._end_at(at)

    def _end_at(self, end: int) -> None:
        self.tail = self.written = end
        self.room = self._file_bytes - end % self._file_bytes
        if end > self._resident_update_at:
            self._resident_update_at = end + (self._resident_bytes >> 3)
            self._mapped_files.resident_from = max(self.life_start, end - self._resident_bytes)

    def _repair(self, start: int) -> None:
        """Wipe out what a failed write left behind; tried again before the next write."""
        assert start == self.written, "what was written is never wiped out"
        self._mapped_files.cut(start)
        self._is_torn = False
        if self._with_zeros_ahead:
            self._zeros_end = start

    def _write_over_files(self, pending: list[bytes]) -> None:
        """Write pieces that reach over a file's end: the blank is the last piece of each."""
        at, first = self.written, 0
        room = self._file_bytes - at % self._file_bytes
        for index, piece in enumerate(pending):
            if len(piece) == 8:
                self._write_piece(at, b"".join(pending[first : index + 1]))
                at += room
                first, room = index + 1, self._file_bytes
        if first < len(pending):
            last = b"".join(pending[first:])
            self._write_piece(at, last)
            at += len(last)
        assert at == self.tail, "the pieces do not fill the log up to its tail"

    def _write_piece(self, at: int, data: bytes) -> None:
        """Write bytes of one file."""
        end = at + len(data)
        if end > self._zeros_end:
            self._zeros_end = end
            if len(data) <= _SMALL_WRITE_BYTES:
                room = self._file_bytes - at % self._file_bytes - len(data)
                self._zeros_end += min(room, ZEROS_AHEAD_BYTES)
                data += bytes(self._zeros_end - end)
        self._mapped_files.write(at, data)

    def read(self, at: int, length: int, cached_only: bool = False) -> bytes:
        """Copy bytes of one file out.

        With `cached_only`, here and below, NotInMemory is raised rather than the disk waited for.
        """
        return self._mapped_files.read(at, length, cached_only)

    def read_runs(self, runs: list[tuple[int, int]], cached_only: bool = False) -> bytes:
        """Copy several byte ranges out, each given by its begin and end within one file."""
        parts: list[bytes] = []
        base = end = -1
        if cached_only and runs[0][0] < self._mapped_files.resident_from:
            read_cached = self._mapped_files.read
            return b"".join([read_cached(start, end - start, True) for start, end in runs])
        for run_start, run_end in runs:
            if not base <= run_start < end:
                base = self._mapped_files.base_of(run_start)
                if (segment := self._mapped_files.segments.get(base)) is None:
                    continue
                end = base + self._file_bytes
                read = segment.open().read
            parts.append(read(run_start - base, run_end - run_start))
        return b"".join(parts)

    def properties_at(self, phy_offset: int, size: int, cached_only: bool = False) -> bytes:
        """The raw properties of the record of this size, its body left where it is.

        A record of up to `SMALL_BYTES` is copied whole, which is one read instead of two.
        """
        read = self._mapped_files.read
        head = read(phy_offset, size if size <= SMALL_BYTES else stored.HEAD_BYTES_MAX, cached_only)
        magic, body_end = stored.body_end(head)
        if not 0 < body_end < size:
            return b""
        if size <= SMALL_BYTES:
            return stored.properties_after(magic, head, body_end)
        rest = read(phy_offset + body_end, size - body_end, cached_only)
        return stored.properties_after(magic, rest, 0)

    def recent_records(
        self, entries: bytes, lowest: int, bytes_max: int
    ) -> tuple[int, bytes] | None:
        """Copy out the records of a queue's entries, side by side, as many as fit: (count, bytes).

        None: none fits, the first lies before `lowest`, they are not in one file that was written
        lately and can be read so, or an entry is damaged.
        """
        files, first = self._mapped_files, int.from_bytes(entries[:8])
        if first < files.resident_from or first < lowest:
            return None
        base = first - first % self._file_bytes
        segment = files.segments.get(base)
        loops = native.c
        if loops is None or segment is None or (found := segment.open().readable()) is None:
            return None
        data, end = found
        return loops.read_records(entries, data, end, base, bytes_max)

    def gather(
        self,
        places: Sequence[int],
        sizes: Sequence[int],
        total: int,
        cached_only: bool = False,
        span_max: int = 0,
    ) -> bytes | None:
        """Copy records out, side by side, in the order of their places; None: not in one file.

        None also for records that lie too far apart to be read at once from the disk; within
        `span_max` bytes they never do.
        """
        first, end = places[0], places[-1] + sizes[-1]
        base = self._mapped_files.base_of(first)
        segment = self._mapped_files.segments.get(base)
        if segment is None or end > base + self._file_bytes:
            return None
        if cached_only and first < self._mapped_files.resident_from:
            return self._gather_cached(places, sizes, end, total, span_max)
        if end - first == total:
            return segment.open().read(first - base, total)
        return segment.open().gather(base, places, sizes)

    def _gather_cached(
        self, places: Sequence[int], sizes: Sequence[int], end: int, total: int, span_max: int
    ) -> bytes | None:
        """Do as `gather` with what may not be in memory: in one read, unless it lies far apart."""
        first = places[0]
        if end - first > max(4 * total + _SPAN_BYTES, span_max + sizes[-1]):
            return None
        raw = self._mapped_files.read(first, end - first, True)
        if end - first == total:
            return raw
        pairs = zip(places, sizes, strict=True)
        return b"".join([raw[at - first : at - first + size] for at, size in pairs])

    def record_at(self, phy_offset: int, cached_only: bool = False) -> bytes | None:
        """The record that begins there; None when none does, or what the disk has is damaged."""
        size = self.size_at(phy_offset, cached_only)
        if not size:
            return None
        raw = self._mapped_files.read(phy_offset, size, cached_only)
        # Who asks by place often copies it, and a copy gets a checksum of its own.
        if stored.is_whole_raw(raw, must_have_checksum=phy_offset >= self.checksums_from):
            return raw
        self._report_damage(phy_offset)
        return None

    def _report_damage(self, phy_offset: int) -> None:
        """Say once that a record is not given out."""
        if phy_offset not in self._reported and len(self._reported) < _REPORTED_MAX:
            self._reported.add(phy_offset)
            if len(self._reported) == _REPORTED_MAX:
                _logger.error("from now on no damaged record that is read by its place is named")
            _logger.error(
                "the record at byte %d of the log is damaged: it is not sent back, delivered "
                "later, committed or looked up; stop the broker and let `cometmq store verify` "
                "say more",
                phy_offset,
            )

    def size_at(self, phy_offset: int, cached_only: bool = False) -> int:
        """The size of the record that begins there; 0 when none does."""
        if not self._mapped_files.first <= phy_offset < self.written:
            return 0
        head = self._mapped_files.read(phy_offset, _HEAD_BYTES, cached_only)
        if len(head) < _HEAD_BYTES:
            return 0
        size, magic = _PREFIX.unpack_from(head)
        if magic not in _MAGICS or size < stored.FIXED_BYTES:
            return 0
        if _OFFSETS.unpack_from(head, 20)[1] != phy_offset or phy_offset + size > self.written:
            return 0
        return int(size)

    def store_time(self, phy_offset: int, cached_only: bool = False) -> int:
        """When the record that begins there was stored, ms; -1 when none does."""
        if not self.size_at(phy_offset, cached_only):
            return -1
        head = self._mapped_files.read(phy_offset, 76, cached_only)
        is_v6 = _OFFSETS.unpack_from(head, 20)[2] & 0x10
        return int(_TIME.unpack_from(head, 68 if is_v6 else 56)[0])

    def segments(self, start: int, end: int) -> list[Segment]:
        """The files that hold bytes of [start, end)."""
        return self._mapped_files.between(start, end)
