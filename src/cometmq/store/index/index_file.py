"""Hot. One file of the key index: entries chained by hash, the newest first.

New entries and slots stay in memory until `begin_write` hands them out as an `IndexWrite`. First
the entries are written and flushed, then the slots and the head that refer to them. So whatever a
crash cuts short, a slot leads to a whole entry. Knows nothing of messages and keys.
Invariants: entries below `written` are in the file, and slots that lead to them, too; which slots
are newer in memory follows from the other entries.
Layout: `wire/records/index_file_layout.py`. Java: IndexFile.
"""

from __future__ import annotations

from sys import byteorder
from typing import TYPE_CHECKING, NamedTuple

from cometmq import native
from cometmq.store.index.slot_table import PIECE_BYTES, SlotTable
from cometmq.store.log.mapped_file_queue import is_number
from cometmq.wire.records import index_file_layout
from cometmq.wire.records.index_file_layout import (
    ENTRY,
    ENTRY_BYTES,
    HEADER_BYTES,
    SECONDS_MAX,
    SLOT,
    SLOT_BYTES,
    IndexFileHeader,
)

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable

    from cometmq.runtime.clock_and_file_protocols import OpenFile
    from cometmq.store.index.index_entries import IndexEntries
    from cometmq.store.log.mapped_file_queue import Segment

NAME_DIGITS = 17
_PAGE = 4096
_COPY_BYTES = 1 << 20
"""What is copied at once for a write: 0.2 ms."""
_unpack, _slot_at = ENTRY.unpack_from, SLOT.unpack_from


def _in_file(numbers: array[int]) -> memoryview:
    """Numbers as they lie in a file, by words of 4 bytes."""
    turned = numbers[:]
    if byteorder == "little":
        turned.byteswap()
    return memoryview(turned).cast("B").cast("I")


def _seconds(entries: IndexEntries, begin_ms: int) -> bytes:
    """Seconds since `begin_ms`, as they lie in a file; mostly all are the same."""
    of_time = {
        store_ms: SLOT.pack(min(max((store_ms - begin_ms) // 1000, 0), SECONDS_MAX))
        for store_ms in entries.moments
    }
    if len(set(of_time.values())) == 1:
        return next(iter(of_time.values())) * entries.count
    return b"".join([of_time[store_ms] for store_ms in entries.store_times])


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


class IndexWrite:
    """What is to be written to one file, and what the file then holds."""

    __slots__ = ("entries", "entries_at", "entries_bytes", "number", "pages", "slots")

    def __init__(self, entries_at: int, entries_bytes: int, number: int, pages: list[int]) -> None:
        self.entries_at = entries_at
        self.entries_bytes = entries_bytes
        self.number = number
        self.pages = pages
        """Pages of the slots that are to be copied yet, the last one first."""
        self.entries: list[bytes] = []
        """What was copied of the entries."""
        self.slots: list[tuple[int, bytes]] = []
        """What was copied of the slots: place and bytes."""

    def write_entries(self, file: OpenFile) -> None:
        """Write the entries and make them durable."""
        at = self.entries_at
        for piece in self.entries:
            file.write(at, piece)
            at += len(piece)
        assert at == self.entries_at + self.entries_bytes, "the entries are not copied yet"
        file.sync()

    def write_slots(self, file: OpenFile) -> None:
        """Write the head and the slots and make them durable."""
        assert not self.pages, "the slots are not copied yet"
        for at, raw in self.slots:
            file.write(at, raw)
        file.sync()


class IndexFile:
    """One file. Belongs to the store's loop, but for `read_slot` and `read_entry`."""

    __slots__ = (
        "_entries",
        "_file_layout",
        "_is_writing",
        "_mended",
        "_table",
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
        self._table: SlotTable | None = None
        self._mended: set[int] = set()
        """Pages of the slots that `repair` changed."""
        self._is_writing = False

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

    def put(self, entries: IndexEntries) -> int:
        """Add the first of the entries, as many as there is room for; how many.

        OSError: the slots could not be read, and nothing was added.
        """
        table = self._table or self._load(self.segment.open().read)
        if self.count > 1:
            entries = entries.part(0, self._file_layout.entries - self.count)
            self._append(table, entries, self.begin_ms)
            return entries.count
        begin_phy, begin_ms = entries.phy_offsets[0], entries.store_times[0]
        first = entries.part(0, 1)
        self._append(table, first, self.begin_ms if self.begin_ms > 0 else begin_ms)
        self.begin_phy, self.begin_ms = begin_phy, begin_ms
        return 1

    def _append(self, table: SlotTable, entries: IndexEntries, begin_ms: int) -> None:
        count = entries.count
        assert self.count + count <= self._file_layout.entries, "the file is full"
        rows, fresh = self._rows(table, entries, begin_ms)
        self._entries += rows
        self.count += count
        self.used += fresh
        self.end_phy, self.end_ms = entries.phy_offsets[-1], entries.store_times[-1]

    def _rows(
        self, table: SlotTable, entries: IndexEntries, begin_ms: int
    ) -> tuple[bytes | memoryview, int]:
        """The entries as they lie in the file, chained; how many slots were empty.

        Measured for 600: 0.2 us each, where one at a time takes 1.0, and 0.01 in C.
        The fields are laid between each other as columns of words.
        """
        if native.c is not None:
            columns = entries.hashes, entries.phy_offsets, entries.store_times
            return native.c.chain_keys(table.words, *columns, begin_ms, self.count)
        befores = table.chain(entries.hashes, self.count)
        count = entries.count
        rows = memoryview(bytearray(count * ENTRY_BYTES))
        words, places = rows.cast("I"), _in_file(entries.phy_offsets)
        words[0::5] = _in_file(entries.hashes)
        words[1::5], words[2::5] = places[0::2], places[1::2]
        words[3::5] = memoryview(_seconds(entries, begin_ms)).cast("I")
        words[4::5] = memoryview(befores)
        return rows, befores.count(0)

    def new_table(self) -> SlotTable:
        """Slots for this file, of which none leads anywhere yet."""
        return SlotTable(self._file_layout.slots)

    def adopt(self, table: SlotTable, count: int) -> None:
        """Use these slots, which were read when there were `count` entries, if nothing changed."""
        if self._table is None and self.count == count:
            self._table = table

    def _load(self, read: Callable[[int, int], bytes]) -> SlotTable:
        table = self.new_table()
        if self.written > 1:  # else it was just begun
            table.load(read, self.count)
        self._table = table
        return table

    def head_of(self, hashed: int) -> int:
        """The newest entry of a hash's slot; -1 when only the file knows."""
        return -1 if self._table is None else self._checked(self._table.newest(hashed))

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

        `copy_more` must follow until all is copied, with nothing put meanwhile; then
        `commit_write` or `cancel_write`.
        """
        if not self._entries and not self._mended:
            return None
        assert not self._is_writing, "one write at a time"
        assert 1 <= self.written <= self.count
        assert len(self._entries) == self.waiting * ENTRY_BYTES
        self._is_writing = True
        at = self._file_layout.entries_at + self.written * ENTRY_BYTES
        return IndexWrite(at, len(self._entries), self.count, self._changed_pages())

    def _changed_pages(self) -> list[int]:
        """The pages of the slots that are newer in memory, the last one first; of many: all."""
        pages = (self._file_layout.entries_at - 1) // _PAGE + 1
        if self.waiting >= pages:
            return list(range(pages))[::-1]
        table = self._table or self._load(self.segment.open().read)
        hashes = [hashed for hashed, _, _, _ in ENTRY.iter_unpack(self._entries)]
        changed = {table.place_of(hashed) // _PAGE for hashed in hashes}
        return sorted(changed | self._mended | {0}, reverse=True)

    def copy_more(self, write: IndexWrite) -> bool:
        """Copy a piece of entries, or neighbouring pages of slots; whether there is more."""
        copied = len(write.entries) * _COPY_BYTES
        if copied < write.entries_bytes:
            write.entries.append(bytes(self._entries[copied : copied + _COPY_BYTES]))
            return True
        pages, table = write.pages, self._table
        assert table is not None
        begin = end = pages.pop()
        while pages and pages[-1] == end + 1 and end - begin < _COPY_BYTES // _PAGE:
            end = pages.pop()
        head = self.begin_ms, self.end_ms, self.begin_phy, self.end_phy, self.used, self.count
        last = min((end + 1) * _PAGE, self._file_layout.entries_at)
        raw = table.copy(IndexFileHeader(*head), begin * _PAGE, last)
        write.slots.append((begin * _PAGE, raw))
        return bool(pages)

    def commit_write(self, write: IndexWrite) -> None:
        """The write is in the file, durably."""
        assert write.entries_bytes == (write.number - self.written) * ENTRY_BYTES
        assert write.number <= self.count
        self._is_writing = False
        self._mended.clear()
        self.is_known = True
        self.written = write.number
        del self._entries[: write.entries_bytes]
        assert len(self._entries) == self.waiting * ENTRY_BYTES
        if self.is_full and not self.waiting:
            self._table = None

    def cancel_write(self) -> None:
        """The write failed: its entries and slots stay pending."""
        self._is_writing = False

    def repair(self, count: int) -> None:
        """Make the file end at entry `count`, whatever a crash left beyond; reads all slots."""
        assert 1 <= count <= self._file_layout.entries
        assert not self._entries, "only a file that was just opened is repaired"
        file = self.segment.open()
        self.count = self.written = count
        self.used = 0
        table = self._load(file.read)
        at, end = HEADER_BYTES, self._file_layout.entries_at
        while at < end:
            raw = file.read(at, min(PIECE_BYTES, end - at))
            if raw.count(0) != len(raw):
                self._repair_slots(table, file, at, raw)
            at += len(raw)
        self._take_end(file)
        self._mended.add(0)  # the head must be rewritten

    def _repair_slots(self, table: SlotTable, file: OpenFile, at: int, raw: bytes) -> None:
        count = self.count
        for index, (number,) in enumerate(SLOT.iter_unpack(raw)):
            if number <= 0:
                continue
            if number >= count:
                mended = self._before(file, number)
                place = at + index * SLOT_BYTES
                table.lead((place - HEADER_BYTES) // SLOT_BYTES, mended)
                self._mended.add(place // _PAGE)
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
