"""Looking through the index files of a stopped store: heads, slots, chains, and every entry.

Entries lie in the order of the log, so they are compared with its records while these are read. A
chain is whole when each entry names the one before it in its slot, and the slot names the last. All
that is found amiss is without loss: an index can be built anew from the log. What a start has built
anew of itself (`trusted_index_files.py`) is kept apart from what only a repair does.
Java: none.
"""

from __future__ import annotations

from array import array
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from cometmq.store.index.index_builder import KeyedRecordReader
from cometmq.store.index.index_file import IndexFileLayout, is_index_file
from cometmq.store.index.key_hashes import KeyHashes
from cometmq.store.index.trusted_index_files import view_index_files
from cometmq.wire.records import properties, sysflag
from cometmq.wire.records.index_file_layout import (
    ENTRY,
    ENTRY_BYTES,
    HEADER_BYTES,
    SECONDS_MAX,
    SLOT,
    SLOT_BYTES,
    decode_header,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files, OpenFile
    from cometmq.store.log.mapped_file_queue import MappedFileQueue
    from cometmq.store.recovery.checkpoint import Checkpoint
    from cometmq.wire.records.index_file_layout import IndexFileHeader
    from cometmq.wire.records.log_record import StoredRecord

DEFAULT_INDEX_LAYOUT = IndexFileLayout(5_000_000, 20_000_000)
_SLOTS_AT_ONCE = 1 << 18
_ENTRIES_AT_ONCE = 4096
_HOW = "the next start has it built anew from the log"
_LACKING, _STRANGE = "{} entries are lacking", "{} entries fit no message"
_LINKS, _SLOTS = "{} entries lead to a wrong one", "{} slots lead to a wrong entry"
_TIMES = "{} times or places are wrong"


class _IndexFileRead(NamedTuple):
    """A file whose entries are read: its name, its head, and the number of its next entry."""

    name: int
    head: IndexFileHeader
    number: int


class _IndexEntryRead(NamedTuple):
    """An entry: where its record lies, its hash and its seconds, its file and its number there."""

    phy_offset: int
    hashed: int
    seconds: int
    file: _IndexFileRead
    number: int


class IndexCheck:
    """The index of one stopped store. Opens its files one at a time and changes nothing."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        file_layout: IndexFileLayout,
        checkpoint: Checkpoint,
        log_files: MappedFileQueue,
    ) -> None:
        self._files = files
        self._file_layout = file_layout
        self._checkpoint = checkpoint
        self._log_files = log_files
        names = filter(is_index_file, files.names(directory))
        self._paths = {int(name): directory / name for name in names}
        self._hashes = KeyHashes()
        self._amiss: dict[int, Counter[str]] = {name: Counter() for name in self._paths}
        """What is wrong with each file, and how often."""
        self._read_files = list(self._find_files())
        self._behind_last = 0
        """Entries that are lacking behind the last file, of what the checkpoint calls indexed."""
        self._owner = 0
        """The first file read that ends at the record seen, or behind it."""
        self._entries = self._walk()
        self._next = next(self._entries, None)
        self._seen = -1
        """Where the record begins that came last."""

    def see(self, record: StoredRecord) -> None:
        """Compare the next record of the log with the entries that should speak of it."""
        at, found = record.phy_offset, list[_IndexEntryRead]()
        assert at > self._seen, "records come in the order of the log"
        self._seen = at
        while self._next is not None and self._next.phy_offset <= at:
            if self._next.phy_offset == at:
                found.append(self._next)
                self._check_times(self._next, record.store_ms)
            self._next = next(self._entries, None)
        wanted: list[int] = []
        if sysflag.transaction_of(record.sys_flag) != sysflag.TRANSACTION_ROLLBACK:
            wanted = self._hashes.of(record.topic.encode(), record.properties)
        known = {each.hashed for each in found}
        lacking = [number for number, hashed in enumerate(wanted) if hashed not in known]
        if found and lacking == [len(wanted) - 1] and properties.find(record.properties, b"TAGS"):
            lacking = []  # RocketMQ before 5.5 files no tags, which are the last of `wanted`
        for number in lacking:
            if (name := self._name_for(at, number, found)) is not None:
                self._amiss[name][_LACKING] += 1
        for each in found:
            if each.hashed not in wanted:
                self._amiss[each.file.name][_STRANGE] += 1

    def _name_for(self, at: int, number: int, found: list[_IndexEntryRead]) -> int | None:
        """The file that should hold this entry of a record; None: it lies behind the last."""
        files = self._read_files
        while self._owner < len(files) and files[self._owner].head.end_phy < at:
            self._owner += 1
        owner = self._owner
        if owner < len(files) and files[owner].head.end_phy == at:
            own = sum(1 for each in found if each.file is files[owner])
            owner += number >= own  # its later entries are in the next file, or not indexed yet
        if owner < len(files):
            return files[owner].name
        mark = self._checkpoint.index_mark
        if files and mark is not None and at < mark[2]:
            self._behind_last += 1
        return None

    def _check_times(self, entry: _IndexEntryRead, store_ms: int) -> None:
        """Compare what the head of a file and its entries say of times and places."""
        head, number = entry.file.head, entry.number
        is_wrong = False
        if number == 1:
            is_wrong = (head.begin_ms, head.begin_phy) != (store_ms, entry.phy_offset)
        else:
            expected = min(max((store_ms - head.begin_ms) // 1000, 0), SECONDS_MAX)
            is_wrong = entry.seconds != expected
        if number == head.number - 1 == entry.file.number - 1:
            is_wrong = is_wrong or (head.end_ms, head.end_phy) != (store_ms, entry.phy_offset)
        self._amiss[entry.file.name][_TIMES] += is_wrong

    def finish(self, log_end: int, *, was_stopped: bool) -> tuple[list[str], list[str]]:
        """All that was found, in sentences: what the next start mends, and what it does not see."""
        reader = KeyedRecordReader(self._log_files, self._log_files.file_bytes)
        view = view_index_files(
            self._files,
            self._paths,
            self._file_layout,
            self._checkpoint,
            reader,
            self._log_files.first,
            log_end,
            was_stopped=was_stopped,
        )
        if view.position >= 0 and view.kept:
            self._amiss[next(reversed(view.kept))][_LACKING] += self._behind_last
        mended, repairs = [], []
        if view.broken:
            more = f", and the {len(view.broken) - 1} after it" if len(view.broken) > 1 else ""
            mended.append(f"{self._paths[view.broken[0]]} {view.why}: {_HOW}{more}")
        for name in view.kept:
            if amiss := +self._amiss[name]:
                what = ", ".join(kind.format(count) for kind, count in sorted(amiss.items()))
                repairs.append(f"in the index file {self._paths[name]} {what}")
        return mended, repairs

    def _find_files(self) -> Iterator[_IndexFileRead]:
        """The files that have an index file's size and head."""
        mark = self._checkpoint.index_mark
        names = [name for name in self._paths if mark is None or name <= mark[0]]
        for name in names:
            stat = self._files.stat(self._paths[name])
            if stat is None or stat.size != self._file_layout.file_bytes:
                continue
            file = self._files.open(self._paths[name], 0)
            try:
                head = decode_header(file.read(0, HEADER_BYTES))
            finally:
                file.close()
            if self._file_layout.has_sound(head, is_last=name == names[-1]):
                is_marked = mark is not None and name == mark[0] and mark[1] <= head.number
                number = mark[1] if mark is not None and is_marked else head.number
                yield _IndexFileRead(name, head, number)

    def _walk(self) -> Iterator[_IndexEntryRead]:
        """Every entry of every file that is read, and what is wrong with its chains."""
        for read_file in self._read_files:
            file = self._files.open(self._paths[read_file.name], 0)
            try:
                yield from self._walk_file(read_file, file)
            finally:
                file.close()

    def _walk_file(self, read_file: _IndexFileRead, file: OpenFile) -> Iterator[_IndexEntryRead]:
        amiss, slots = self._amiss[read_file.name], self._file_layout.slots
        newest = array("i", bytes(slots * SLOT_BYTES))
        number, newest_place = 1, 0
        while number < read_file.number:
            count = min(_ENTRIES_AT_ONCE, read_file.number - number)
            at = self._file_layout.entries_at + number * ENTRY_BYTES
            for hashed, place, seconds, before in ENTRY.iter_unpack(
                file.read(at, count * ENTRY_BYTES)
            ):
                slot = hashed % slots
                amiss[_LINKS] += newest[slot] != (before if 0 < before < number else 0)
                newest[slot] = number
                if newest_place <= place <= read_file.head.end_phy:
                    newest_place = place
                    yield _IndexEntryRead(place, hashed, seconds, read_file, number)
                else:  # out of the log's order
                    amiss[_STRANGE] += 1
                number += 1
        amiss[_SLOTS] += self._bad_slots(file, read_file, newest)

    def _bad_slots(self, file: OpenFile, read_file: _IndexFileRead, newest: array[int]) -> int:
        """How many slots lead elsewhere than to the newest entry of their hashes."""
        bad = 0
        is_mended = read_file.number != read_file.head.number
        for first in range(0, len(newest), _SLOTS_AT_ONCE):
            count = min(_SLOTS_AT_ONCE, len(newest) - first)
            raw = file.read(HEADER_BYTES + first * SLOT_BYTES, count * SLOT_BYTES)
            for index, (number,) in enumerate(SLOT.iter_unpack(raw)):
                expected = newest[first + index]
                if number != expected and not (
                    is_mended and self._before(file, number, read_file.number) == expected
                ):
                    bad += 1
        return bad

    def _before(self, file: OpenFile, number: int, end: int) -> int:
        """The entry below `end` that a chain leads to, as a start mends a slot."""
        while number >= end:
            raw = file.read(self._file_layout.entries_at + number * ENTRY_BYTES, ENTRY_BYTES)
            before = ENTRY.unpack(raw.ljust(ENTRY_BYTES, b"\0"))[3]
            if not 0 < before < number:
                return 0
            number = before
        return max(number, 0)
