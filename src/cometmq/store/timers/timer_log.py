"""The log of timers: a record for each, chained to the one before it in the same slot.

Files of `timerlog/` hold records of 52 bytes, big-endian: i32 size, i64 place of the record before
it in its slot (-1: none), i32 kind, i64 time of writing, i32 ms from then to the slot, i64 place of
the message in the commit log, i32 its size, i32 hash of its topic, i64 0. What does not fit at the
end of a file is a blank: i32 the room left, i64 0, i32 a magic number.
Invariant: a record lies in one file. Java: TimerLog.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from cometmq.store.log.mapped_file_queue import pin_segments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cometmq.store.log.mapped_file_queue import MappedFileQueue, Segment

RECORD = Struct(">iqiqiqiiq")
_BLANK = Struct(">iqi")
_BLANK_MAGIC = 0xCBD43194 - (1 << 32)

KIND_TIMER, KIND_ROLL, KIND_RECALL = 1, 2, 4
"""Bits of a record's kind. Roll: its time lies beyond the wheel, and the slot before it; recall: it
takes another message of its slot away."""

NOWHERE = -1
"""The place of a record that there is none."""

_SCAN_RECORDS = 4_096


class TimerRecord(NamedTuple):
    """One timer."""

    before: int
    """The place of the record before it in its slot, or NOWHERE."""
    kind: int
    slot_ms: int
    phy_offset: int
    size: int


class TimerLog:
    """The files of records. Belongs to the loop of its store, but for `sync`."""

    def __init__(self, mapped_files: MappedFileQueue) -> None:
        self._files = mapped_files
        self.end = 0
        """Where the next record goes, unless a file ends there."""

    def cut(self, end: int) -> None:
        """Drop the records from a place on. OSError: the disk refused."""
        self._files.cut(end)
        self.end = end

    def append(
        self, before: int, kind: int, now_ms: int, slot_ms: int, message: tuple[int, int, int]
    ) -> int:
        """Write a record and return its place. OSError: it was not written.

        `message`: its place in the commit log, its size, the hash of its topic's name.
        """
        room = self._files.file_bytes - self.end % self._files.file_bytes
        at = self.end
        if RECORD.size + _BLANK.size > room:
            self._files.write(at, _BLANK.pack(room, 0, _BLANK_MAGIC))
            at += room
        phy_offset, size, topic_hash = message
        record = RECORD.pack(
            RECORD.size, before, kind, now_ms, slot_ms - now_ms, phy_offset, size, topic_hash, 0
        )
        self._files.write(at, record)
        self.end = at + RECORD.size
        return at

    def record(self, at: int, cached_only: bool = False) -> TimerRecord | None:
        """The record at a place; None where there is none.

        NotInMemory, with `cached_only`: the disk would have to be waited for.
        """
        raw = self._files.read(at, RECORD.size, cached_only) if at >= 0 else b""
        return _decode(raw, 0) if len(raw) == RECORD.size else None

    def last_record(self) -> TimerRecord | None:
        """The newest record; waits for the disk."""
        return self.record(self.end - RECORD.size)

    def records(self, start: int, end: int) -> Iterator[tuple[int, TimerRecord]]:
        """All records of a range with their places, the oldest first; waits for the disk.

        Ends early where something that is no record lies in between.
        """
        at, file_bytes = start, self._files.file_bytes
        while at < end:
            room = file_bytes - at % file_bytes
            if room < RECORD.size + _BLANK.size:
                at += room
                continue
            count = min(_SCAN_RECORDS, (room - _BLANK.size) // RECORD.size)
            raw = self._files.read(at, count * RECORD.size)
            for index in range(0, len(raw) - RECORD.size + 1, RECORD.size):
                if at >= end:
                    return
                if (found := _decode(raw, index)) is None:
                    return
                yield at, found
                at += RECORD.size
            if len(raw) < RECORD.size:
                return

    def pin(self, start: int, end: int) -> list[Segment]:
        """Keep the files of a range open until `unpin` is called for each; OSError: none is."""
        segments = self._files.between(start, end)
        pin_segments(segments)
        return segments

    def sync(self, segments: list[Segment]) -> None:
        """Make pinned files durable, with their names; blocks, from any thread."""
        for segment in segments:
            assert segment.file is not None, "the files to sync are pinned"
            segment.file.sync()
        files, directory = self._files.files, self._files.directory
        if segments:
            files.sync_dir(directory)
            files.sync_dir(directory.parent)

    def delete_before(self, phy_offset: int) -> None:
        """Delete the files whose last message has left the commit log, which begins there."""
        last = (self._files.file_bytes - RECORD.size - _BLANK.size) // RECORD.size * RECORD.size
        for base in self._files.bases[:-1]:
            newest = self.record(base + last)
            if newest is None or newest.phy_offset >= phy_offset:
                return
            self._files.remove(base)

    def close(self) -> None:
        """Close the files."""
        self._files.close()


def _decode(raw: bytes, index: int) -> TimerRecord | None:
    size, before, kind, now_ms, delta, phy_offset, length, _, _ = RECORD.unpack_from(raw, index)
    if size != RECORD.size or not 0 < kind <= 0xF or length <= 0:
        return None
    return TimerRecord(before, kind, now_ms + delta, phy_offset, length)
