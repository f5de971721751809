"""The checkpoint: how far the log and the queues are known to be durable.

Layout, 4096 bytes, big-endian: i64 each at 0 store time of the newest flushed record, 8 of the
newest flushed queue entry, 16 of the newest full index file, 24 master's flushed offset, 32 confirm
offset; Java uses no more. At 64 ours: i64 offset below which every record has a durable queue
entry, i64 where the newest of them begins, i64 the sum of the queues' ends then, u32 CRC of bytes
0-40 and 64-88. At 96: i64 name of the newest index file, i64 the number of its next entry, i64 the
offset below which every record is indexed, u32 CRC of bytes 0-40 and 96-120. At 128: i64 offset
from which on every record below that at 64 has a checksum of its own, u32 CRC of bytes 0-40 and
128-136. Each of ours counts only while Java has not written since.
All of it is within one sector, so it is written whole or not at all.
Java: StoreCheckpoint.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files, OpenFile

FILE_BYTES = 4096
_SECTOR = 512
_JAVA = Struct(">qqqqq")
_OURS = Struct(">qqqI")
_OURS_AT = 64
_INDEX_AT = 96
_CHECKSUMS_AT = 128
_CHECKSUMS = Struct(">qI")
_END = _CHECKSUMS_AT + _CHECKSUMS.size
_BACK_MS = 3_000


class Checkpoint:
    """How far log, queues and index are durable; `save` makes this durable too."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path
        self.log_ms = 0
        self.queues_ms = 0
        self.index_ms = 0
        self.dispatched = -1
        """Every record below this offset has a durable queue entry; -1: not known."""
        self.saved_end = -1
        """What `dispatched` was at the last `save` of this process; -1: there was none."""
        self.newest = -1
        """Where the newest of those records begins; -1: there is none."""
        self.entries = 0
        """The sum of the max offsets of all queues at that time: none may be missing."""
        self.index_mark: tuple[int, int, int] | None = None
        """(name, next entry, offset) of the key index; None: not known."""
        self.checksums_from = -1
        """Every record from here up to `dispatched` has a checksum of its own; -1: not known."""
        self._others = (0, 0)
        self._file: OpenFile | None = None
        self._saved = b""

    def load(self) -> None:
        """Read what was saved; all zero when there is no file."""
        raw = self._files.read(self._path) or b""
        raw = raw.ljust(_END, b"\0")
        self.log_ms, self.queues_ms, self.index_ms, *others = _JAVA.unpack_from(raw)
        self._others = (others[0], others[1])
        *ours, crc = _OURS.unpack_from(raw, _OURS_AT)
        is_ours = crc == crc32(raw[_OURS_AT : _OURS_AT + 24], crc32(raw[: _JAVA.size]))
        if is_ours and _is_possible(*ours):
            self.dispatched, self.newest, self.entries = ours
        name, count, position, crc = _OURS.unpack_from(raw, _INDEX_AT)
        is_ours = crc == crc32(raw[_INDEX_AT : _INDEX_AT + 24], crc32(raw[: _JAVA.size]))
        if is_ours and min(name, count, position) >= 0:
            self.index_mark = name, count, position
        checksums_from, crc = _CHECKSUMS.unpack_from(raw, _CHECKSUMS_AT)
        signed = raw[_CHECKSUMS_AT : _CHECKSUMS_AT + 8]
        if crc == crc32(signed, crc32(raw[: _JAVA.size])) and checksums_from >= 0:
            self.checksums_from = checksums_from

    @property
    def is_known(self) -> bool:
        """Whether it names a record up to which log and queues are durable."""
        return self.newest >= 0

    @property
    def with_checksum(self) -> range:
        """Where in the log every record was written with a checksum of its own."""
        is_known = self.checksums_from >= 0
        return range(self.checksums_from if is_known else self.dispatched, self.dispatched)

    @property
    def safe_ms(self) -> int:
        """Records stored before this time are durable and have durable queue entries."""
        return max(0, min(self.log_ms, self.queues_ms) - _BACK_MS)

    def encode(self) -> bytes:
        """The bytes up to the end of our part."""
        assert _is_possible(self.dispatched, self.newest, self.entries)
        assert self.index_mark is None or min(self.index_mark) >= 0
        java = _JAVA.pack(self.log_ms, self.queues_ms, self.index_ms, *self._others)
        ours = _signed(java, self.dispatched, self.newest, self.entries)
        data = java.ljust(_OURS_AT, b"\0") + ours
        if self.index_mark is not None:
            data = data.ljust(_INDEX_AT, b"\0") + _signed(java, *self.index_mark)
        if self.checksums_from >= 0:
            signed = self.checksums_from.to_bytes(8)
            crc = crc32(signed, crc32(java)).to_bytes(4)
            data = data.ljust(_CHECKSUMS_AT, b"\0") + signed + crc
        return data.ljust(_END, b"\0")

    def save(self) -> None:
        """Write and make durable what changed since the last save."""
        data, end = self.encode(), self.dispatched
        if data == self._saved:
            return
        if self._file is None:
            self._file = self._files.open(self._path, FILE_BYTES)
            self._files.sync_dir(self._path.parent)
        assert len(data) <= _SECTOR, "a checkpoint is written whole or not at all"
        self._file.write(0, data)
        self._file.sync()
        self._saved = data
        self.saved_end = end

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _is_possible(dispatched: int, newest: int, entries: int) -> bool:
    """Checked before a checkpoint is written and after it is read."""
    is_in_order = -1 <= newest < dispatched or dispatched == -1
    return is_in_order and entries >= 0


def _signed(java: bytes, *values: int) -> bytes:
    ours = _OURS.pack(*values, 0)[:24]
    return ours + crc32(ours, crc32(java)).to_bytes(4)
