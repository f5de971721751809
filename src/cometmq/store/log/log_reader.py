"""Reading the log record by record with every check, for recovery and for the tools.

Reads in big pieces; refuses to know queues and to change anything.
Java: CommitLog.checkMessageAndReturnSize.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import ProtocolError
from cometmq.wire.records import log_record as stored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cometmq.store.log.mapped_file_queue import MappedFileQueue
    from cometmq.wire.records.log_record import StoredRecord

_CHUNK = 1 << 20
SEARCH_BYTES = 16 << 20
"""How far behind damage a start looks for the next whole record, before later files."""
NOWHERE = range(0)
_MAGICS = (stored.MAGIC_V1.to_bytes(4), stored.MAGIC_V2.to_bytes(4))
_MAGIC_AT, _PLACE_AT = 4, 28
PLACE_BYTES = _PLACE_AT + 8
"""How much of a record says where it lies."""


class LogReader:
    """Verified records by their offsets; quick when the offsets go up."""

    def __init__(
        self, mapped_files: MappedFileQueue, *, check_crc: bool, with_checksum: range = NOWHERE
    ) -> None:
        """`with_checksum`: where each record was written with a checksum of its own."""
        self._mapped_files = mapped_files
        self._check_crc = check_crc
        self._with_checksum = with_checksum
        self._chunk = b""
        self._chunk_at = 0

    def at(self, phy_offset: int) -> StoredRecord | None:
        """The record that begins there; None when none does or it is not whole."""
        index = phy_offset - self._chunk_at
        chunk = self._chunk
        if not 0 <= index <= len(chunk) - 4:
            chunk, index = self._load(phy_offset, _CHUNK), 0
        size = int.from_bytes(chunk[index : index + 4], "big", signed=True)
        if size > len(chunk) - index:
            # The record goes on beyond the piece read, or its size is nonsense: one file bounds it.
            chunk, index = self._load(phy_offset, max(size, _CHUNK)), 0
        try:
            record = stored.decode(chunk, index)
        except ProtocolError:
            return None
        if record.phy_offset != phy_offset:
            return None
        if self._check_crc:
            must = phy_offset in self._with_checksum
            if not stored.is_whole(record, chunk, index, must_have_checksum=must):
                return None
            if stored.is_torn(record, chunk, index) and not self._is_followed(record):
                return None
        return record

    def next_file(self, phy_offset: int) -> int:
        """Where the next file begins when a blank stands at this offset; else -1."""
        raw = self._mapped_files.read(phy_offset, stored.BLANK_SIZE)
        room = self._mapped_files.file_bytes - phy_offset % self._mapped_files.file_bytes
        if raw == stored.BLANK.pack(room, stored.MAGIC_BLANK):
            return phy_offset + room
        return -1

    def behind(self, phy_offset: int, search_bytes: int = SEARCH_BYTES) -> StoredRecord | None:
        """The first whole record behind damage: of the same file, else of a later one's begin.

        In the same file it looks through `search_bytes`.
        """
        base = self._mapped_files.base_of(phy_offset)
        end = min(base + self._mapped_files.file_bytes, phy_offset + search_bytes)
        for at in range(phy_offset + 1, end, _CHUNK):
            raw = self._mapped_files.read(at, min(_CHUNK + PLACE_BYTES, end - at))
            for place in sorted(record_places(raw, at)):
                if (record := self.at(place)) is not None:
                    return record
        for later in self._mapped_files.bases:
            if later > base and (record := self.at(later)) is not None:
                return record
        return None

    def _is_followed(self, record: StoredRecord) -> bool:
        """Whether another record, or the file's end, stands behind this one: no write ended in it.

        Only then may NULs at the end of its properties be a user's.
        """
        raw = self._mapped_files.read(record.phy_offset + record.size, stored.BLANK_SIZE)
        magic = stored.BLANK.unpack(raw)[1] if len(raw) == stored.BLANK_SIZE else 0
        return magic in (stored.MAGIC_V1, stored.MAGIC_V2, stored.MAGIC_BLANK)

    def _load(self, phy_offset: int, length: int) -> bytes:
        self._chunk = self._mapped_files.read(phy_offset, length)
        self._chunk_at = phy_offset
        return self._chunk


def record_places(raw: bytes, at: int) -> Iterator[int]:
    """Where records may begin in bytes read at `at`: a magic number, and their own place."""
    for magic in _MAGICS:
        found = raw.find(magic)
        while found >= 0:
            start = found - _MAGIC_AT
            place = raw[start + _PLACE_AT : start + _PLACE_AT + 8] if start >= 0 else b""
            if place == (at + start).to_bytes(8):
                yield at + start
            found = raw.find(magic, found + 1)
