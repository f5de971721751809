"""Looking through the index files of a stopped store: sizes, heads, slots, and every entry.

Entries lie in the order of the log, so they are compared with its records while these are read.
All that is found amiss is only a note: an index can be built anew from the log.
Java: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.store.index.index_builder import KeyHashes
from cometmq.store.index.index_file import IndexFileLayout
from cometmq.wire.records import sysflag
from cometmq.wire.records.index_file_layout import (
    ENTRY,
    ENTRY_BYTES,
    HEADER_BYTES,
    SLOT,
    decode_header,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files, OpenFile
    from cometmq.wire.records.log_record import StoredRecord

DEFAULT_INDEX_LAYOUT = IndexFileLayout(5_000_000, 20_000_000)
_SLOTS_BYTES = 1 << 20
_ENTRIES_AT_ONCE = 4096
_HOW = "the next start has it built anew from the log"


class IndexCheck:
    """The index of one stopped store. Opens its files one at a time and changes nothing."""

    def __init__(self, files: Files, directory: Path, file_layout: IndexFileLayout) -> None:
        self._files = files
        self._file_layout = file_layout
        names = [name for name in files.names(directory) if name.isdecimal()]
        self._paths = [directory / name for name in names]
        self.mended: list[str] = []
        """What the next start sees, and has built anew."""
        self.repairs: list[str] = []
        self._hashes = KeyHashes()
        self._entries = self._walk()
        self._next = next(self._entries, None)
        self._lacking = self._strange = 0
        self._seen = -1
        """Where the record begins that came last."""

    @property
    def is_there(self) -> bool:
        """Whether there is an index at all."""
        return bool(self._paths)

    def see(self, record: StoredRecord) -> None:
        """Compare the next record of the log with the entries that should speak of it."""
        at, found = record.phy_offset, []
        assert at > self._seen, "records come in the order of the log"
        self._seen = at
        while self._next is not None and self._next[0] <= at:
            if self._next[0] == at:
                found.append(self._next[1])
            self._next = next(self._entries, None)
        wanted = []
        if sysflag.transaction_of(record.sys_flag) != sysflag.TRANSACTION_ROLLBACK:
            wanted = self._hashes.of(record.topic.encode(), record.properties)
        if self._next is not None:  # else it is beyond what was indexed, which a start makes up for
            self._lacking += sum(1 for hashed in wanted if hashed not in found)
        self._strange += sum(1 for hashed in found if hashed not in wanted)

    def finish(self) -> tuple[list[str], list[str]]:
        """All that was found, in sentences: what the next start mends, and what it does not see."""
        if not self.mended:  # else the start drops the files behind the broken one, too
            if self._lacking:
                self.repairs.append(f"the key index lacks {self._lacking} entries")
            if self._strange:
                self.repairs.append(f"{self._strange} entries of the key index fit no message")
        return self.mended, self.repairs

    def _walk(self) -> Iterator[tuple[int, int]]:
        """(phy_offset, hash) of every entry of every file that can be read."""
        for path in self._paths:
            stat = self._files.stat(path)
            if stat is None or stat.size != self._file_layout.file_bytes:
                size = -1 if stat is None else stat.size
                layout = self._file_layout
                self.mended.append(
                    f"{path} has {size} bytes, not {layout.file_bytes} as with "
                    f"{layout.slots} slots and {layout.entries} entries; unless the "
                    f"broker's maxHashSlotNum and maxIndexNum are others, {_HOW}"
                )
                continue
            file = self._files.open(path, 0)
            try:
                yield from self._walk_file(path, file)
            finally:
                file.close()

    def _walk_file(self, path: Path, file: OpenFile) -> Iterator[tuple[int, int]]:
        head = decode_header(file.read(0, HEADER_BYTES))
        is_last = path == self._paths[-1]
        if not self._file_layout.has_sound(head, is_last=is_last):
            self.mended.append(f"{path} says it has {head.number} entries, which cannot be; {_HOW}")
            return
        if bad := self._bad_slots(file, head.number):
            self.repairs.append(f"{bad} slots of {path} lead nowhere")
        number = 1
        while number < head.number:
            count = min(_ENTRIES_AT_ONCE, head.number - number)
            at = self._file_layout.entries_at + number * ENTRY_BYTES
            for hashed, phy_offset, _, _ in ENTRY.iter_unpack(file.read(at, count * ENTRY_BYTES)):
                yield phy_offset, hashed
            number += count

    def _bad_slots(self, file: OpenFile, end: int) -> int:
        bad, at = 0, HEADER_BYTES
        while at < self._file_layout.entries_at:
            raw = file.read(at, min(_SLOTS_BYTES, self._file_layout.entries_at - at))
            if raw.count(0) != len(raw):
                bad += sum(1 for (number,) in SLOT.iter_unpack(raw) if not 0 <= number < end)
            at += len(raw)
        return bad
