"""Hot. One file of the key index: entries chained by hash, the newest first.

New entries and slots stay in memory until `begin_write` hands them out as an `IndexWrite`. First
the entries are written and flushed, then the slots and the head that refer to them. So whatever a
crash cuts short, a slot leads to a whole entry. Knows nothing of messages and keys.
Invariants: entries below `written` and their slots are in the file or being written; `_pages` and
`_writing` hold each page of slots that is newer than in the file.
Layout: `wire/records/index_file_layout.py`. Java: IndexFile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cometmq.store.log.mapped_file_queue import is_number
from cometmq.wire.records import index_file_layout
from cometmq.wire.records.index_file_layout import (
    ENTRY,
    ENTRY_BYTES,
    HEADER,
    HEADER_BYTES,
    SECONDS_MAX,
    SLOT,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.runtime.clock_and_file_protocols import OpenFile
    from cometmq.store.log.mapped_file_queue import Segment
    from cometmq.wire.records.index_file_layout import IndexFileHeader

IndexEntry = tuple[int, int, int]
"""Hash, phy_offset and store time (ms) of what is put."""

NAME_DIGITS = 17
_PAGE = 4096
_REPAIR_BYTES = 1 << 18
_pack, _unpack = ENTRY.pack, ENTRY.unpack_from
_slot, _slot_at = SLOT.pack_into, SLOT.unpack_from


def is_index_file(name: str) -> bool:
    """Whether a file of the index directory is named like one of the index: by a local time."""
    return is_number(name, NAME_DIGITS)


class IndexFileLayout(NamedTuple):
    """How many slots and entries each file of an index has."""

    slots: int
    entries: int

    @property
    def entries_at(self) -> int:
        """Where the entries begin."""
        return HEADER_BYTES + self.slots * index_file_layout.SLOT_BYTES

    @property
    def file_bytes(self) -> int:
        """How long a file is."""
        return self.entries_at + self.entries * ENTRY_BYTES

    def has_sound(self, head: IndexFileHeader, *, is_last: bool) -> bool:
        """Whether a file's head can be true: only the newest file may have room left."""
        is_sound = 1 <= head.number <= self.entries and head.begin_phy <= head.end_phy
        is_timed = head.number <= 1 or head.begin_ms > 0
        return is_sound and is_timed and (is_last or head.number == self.entries)


class IndexWrite(NamedTuple):
    """What is to be written to one file, and what the file then holds."""

    entries_at: int
    entries: bytes
    pages: dict[int, bytearray]
    number: int

    def write_entries(self, file: OpenFile) -> None:
        """Write the entries and make them durable."""
        file.write(self.entries_at, self.entries)
        file.sync()

    def write_slots(self, file: OpenFile) -> None:
        """Write the head and the slots, neighbours as one piece, and make them durable."""
        run: list[bytearray] = []
        start = 0
        for number in sorted(self.pages):
            if run and number != start + len(run):
                file.write(start * _PAGE, b"".join(run))
                run = []
            if not run:
                start = number
            run.append(self.pages[number])
        file.write(start * _PAGE, b"".join(run))
        file.sync()


class IndexFile:
    """One file. Belongs to the store's loop, but for `read_slot` and `read_entry`."""

    __slots__ = (
        "_entries",
        "_file_layout",
        "_pages",
        "_writing",
        "begin_ms",
        "begin_phy",
        "count",
        "end_ms",
        "end_phy",
        "is_known",
        "segment",
        "used",
        "written",
    )

    def __init__(
        self, segment: Segment, file_layout: IndexFileLayout, head: IndexFileHeader
    ) -> None:
        self.segment = segment
        self._file_layout = file_layout
        self.begin_ms, self.end_ms, self.begin_phy, self.end_phy, self.used, self.count = head
        assert 1 <= self.count <= file_layout.entries
        self.written = self.count
        """Entries below this number are in the file."""
        self.is_known = self.count > 1
        """Whether the file's name is durable."""
        self._entries = bytearray()
        self._pages: dict[int, bytearray] = {}
        self._writing: dict[int, bytearray] = {}

    @property
    def name(self) -> int:
        """The file's name: 17 digits, the local time at which it was made."""
        return self.segment.base

    @property
    def is_full(self) -> bool:
        """Whether no entry more goes in."""
        return self.count >= self._file_layout.entries

    @property
    def waiting(self) -> int:
        """Entries that are in memory only."""
        return self.count - self.written

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Whether messages of this time may be in the file."""
        return begin_ms <= self.end_ms and end_ms >= self.begin_ms

    def put(self, entries: Sequence[IndexEntry]) -> int:
        """Add as many of the entries as there is room for; how many."""
        count = min(len(entries), self._file_layout.entries - self.count)
        if self.count > 1 or not count:
            self._append(entries[:count], self.begin_ms)
            return count
        _, begin_phy, begin_ms = entries[0]
        self._append(entries[:1], self.begin_ms if self.begin_ms > 0 else begin_ms)
        self.begin_phy, self.begin_ms = begin_phy, begin_ms
        self._append(entries[1:count], begin_ms)
        return count

    def _append(self, entries: Sequence[IndexEntry], begin_ms: int) -> None:
        """Measured for 64: 0.5 us each, where one at a time takes 1.0."""
        slots, pages, packed = self._file_layout.slots, self._pages, self._entries
        number, used, of_ms, seconds = self.count, self.used, -1, 0
        assert number + len(entries) <= self._file_layout.entries, "the file is full"
        try:
            for hashed, phy_offset, store_ms in entries:
                at = HEADER_BYTES + hashed % slots * 4
                page = pages.get(at >> 12) or self._page(at >> 12)  # may raise OSError
                (before,) = _slot_at(page, at & 4095)
                if not 0 < before < number:
                    before = 0
                    used += 1
                if store_ms != of_ms:
                    of_ms = store_ms
                    seconds = min(max((store_ms - begin_ms) // 1000, 0), SECONDS_MAX)
                packed += _pack(hashed, phy_offset, seconds, before)
                _slot(page, at & 4095, number)
                number += 1
        finally:
            if done := number - self.count:
                _, self.end_phy, self.end_ms = entries[done - 1]
            self.count, self.used = number, used

    def _page(self, number: int) -> bytearray:
        """A part of the slots, from now on in memory until it is written."""
        page = bytearray(self._writing.get(number, b"")) or self._read_page(number)
        self._pages[number] = page
        return page

    def _read_page(self, number: int) -> bytearray:
        start = number * _PAGE
        length = min(_PAGE, self._file_layout.entries_at - start)
        raw = self.segment.open().read(start, length)
        return bytearray(raw.ljust(length, b"\0"))  # a full one is not copied by that

    def head_of(self, hashed: int) -> int:
        """The newest entry of a hash's slot; -1 when only the file knows."""
        at = HEADER_BYTES + hashed % self._file_layout.slots * 4
        page = self._pages.get(at >> 12) or self._writing.get(at >> 12)
        if page is None:
            return -1
        return self._checked(int(_slot_at(page, at & 4095)[0]))

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """(hash, phy_offset, seconds, entry before it) of an entry that waits in memory."""
        assert self.written <= number < self.count, "this entry is in the file"
        found: tuple[int, int, int, int] = _unpack(
            self._entries, (number - self.written) * ENTRY_BYTES
        )
        return found

    def read_slot(self, file: OpenFile, hashed: int) -> int:
        """The newest entry of a hash's slot as the file has it. In any thread."""
        raw = file.fetch(HEADER_BYTES + hashed % self._file_layout.slots * 4, 4)
        return self._checked(int(_slot_at(raw)[0])) if len(raw) == 4 else 0

    def read_entry(self, file: OpenFile, number: int) -> tuple[int, int, int, int]:
        """An entry as the file has it; all zero past its end. In any thread."""
        raw = file.fetch(self._file_layout.entries_at + number * ENTRY_BYTES, ENTRY_BYTES)
        found: tuple[int, int, int, int] = _unpack(raw.ljust(ENTRY_BYTES, b"\0"))
        return found

    def _checked(self, number: int) -> int:
        return number if 0 < number < self.count else 0

    # ---- writing

    def begin_write(self) -> IndexWrite | None:
        """What is newer in memory than in the file, None when nothing is.

        `commit_write` or `cancel_write` must follow.
        """
        if not self._entries and not self._pages:
            return None
        first = self._pages.get(0) or self._page(0)
        head = self.begin_ms, self.end_ms, self.begin_phy, self.end_phy, self.used, self.count
        HEADER.pack_into(first, 0, *head)
        assert not self._writing, "one write at a time"
        assert 1 <= self.written <= self.count
        assert len(self._entries) == self.waiting * ENTRY_BYTES
        self._writing, self._pages = self._pages, {}
        at = self._file_layout.entries_at + self.written * ENTRY_BYTES
        return IndexWrite(at, bytes(self._entries), self._writing, self.count)

    def commit_write(self, write: IndexWrite) -> None:
        """The write is in the file, durably."""
        assert len(write.entries) == (write.number - self.written) * ENTRY_BYTES
        assert write.number <= self.count
        self._writing = {}
        self.is_known = True
        self.written = write.number
        del self._entries[: len(write.entries)]
        assert len(self._entries) == self.waiting * ENTRY_BYTES

    def cancel_write(self) -> None:
        """The write failed: its entries and slots stay pending."""
        self._pages = self._writing | self._pages
        self._writing = {}

    def repair(self, count: int) -> None:
        """Make the file end at entry `count`, whatever a crash left beyond; reads all slots."""
        assert 1 <= count <= self._file_layout.entries
        assert not self._entries, "only a file that was just opened is repaired"
        file = self.segment.open()
        self.count = self.written = count
        self.used = 0
        at, end = HEADER_BYTES, self._file_layout.entries_at
        while at < end:
            raw = file.read(at, min(_REPAIR_BYTES, end - at))
            if raw.count(0) != len(raw):
                self._repair_slots(file, at, raw)
            at += len(raw)
        self._take_end(file)
        if 0 not in self._pages:
            self._page(0)  # the head must be rewritten

    def _repair_slots(self, file: OpenFile, at: int, raw: bytes) -> None:
        count = self.count
        for index, (number,) in enumerate(SLOT.iter_unpack(raw)):
            if number <= 0:
                continue
            if number >= count:
                mended = self._before(file, number)
                place = at + index * 4
                page = self._pages.get(place >> 12) or self._page(place >> 12)
                _slot(page, place & 4095, mended)
                if not mended:
                    continue
            self.used += 1

    def _before(self, file: OpenFile, number: int) -> int:
        """The first entry of a chain that is below the count."""
        while number >= self.count:
            before = self.read_entry(file, number)[3]
            if not 0 < before < number:
                return 0
            number = before
        return number

    def _take_end(self, file: OpenFile) -> None:
        """Where the file ends, as its last entry says."""
        if self.count > 1:
            _, self.end_phy, seconds, _ = self.read_entry(file, self.count - 1)
            self.end_ms = self.begin_ms + seconds * 1000
