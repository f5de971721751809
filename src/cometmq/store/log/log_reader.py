"""Reading the log record by record with every check, for recovery and for the tools.

Reads in big pieces through the file row; refuses to know queues and to change anything.
Java: CommitLog.checkMessageAndReturnSize.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import ProtocolError
from cometmq.wire.records import log_record as stored

if TYPE_CHECKING:
    from cometmq.store.log.mapped_file_queue import MappedFileQueue
    from cometmq.wire.records.log_record import StoredRecord

_CHUNK = 1 << 20


class LogReader:
    """Verified records by their offsets; quick when the offsets go up."""

    def __init__(self, mapped_files: MappedFileQueue, *, check_crc: bool) -> None:
        self._mapped_files = mapped_files
        self._check_crc = check_crc
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
            if not stored.is_whole(record, chunk, index):
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
