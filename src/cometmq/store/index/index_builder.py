"""Hot. From records of the log to entries of the key index, a bounded number at a time.

Reads only what the index needs: head, topic, properties. Knows which records count (all but
rollbacks) and goes on behind damage. Usual records are read many at once (`key_columns.py`), here
are all others.
Java: CommitLogDispatcherBuildIndex, IndexService.buildIndex.
"""

from __future__ import annotations

from struct import Struct, error
from typing import TYPE_CHECKING, Protocol

from cometmq.store.index.index_entries import no_entries
from cometmq.store.index.key_columns import ALONE, ENTRIES_A_RECORD, KeyColumns
from cometmq.store.index.key_hashes import KeyHashes
from cometmq.store.log.log_reader import PLACE_BYTES, record_places
from cometmq.wire.records import log_record as stored

if TYPE_CHECKING:
    from cometmq.store.index.index_entries import IndexEntries

CHUNK_BYTES = 1 << 16
_HASHED_BYTES_A_RECORD = 64
"""Bytes of properties hashed one by one, of one record on average, after which a read ends."""
_HEAD_BYTES = 128
_TAIL_BYTES = 40_000
"""More than topic and properties of one record can take."""
_ROLLBACK, _BORN_V6 = 0xC, 0x10
_MAGICS = (stored.MAGIC_V1, stored.MAGIC_V2)
_prefix = Struct(">iI").unpack_from
_flag_of = Struct(">i").unpack_from
_time_of = Struct(">q").unpack_from
_short_of = Struct(">h").unpack_from


class LogByteReader(Protocol):
    """The bytes of a log: a `CommitLog`, or the files of a stopped one."""

    @property
    def first(self) -> int:
        """The offset of the oldest byte still there."""

    def read(self, at: int, length: int, cached_only: bool = False) -> bytes:
        """Copy bytes of one file out."""


class KeyedRecordReader:
    """Reads records and their keys from an offset of the log on. Belongs to the store's loop."""

    def __init__(self, log: LogByteReader, file_bytes: int) -> None:
        self._log = log
        self._file_bytes = file_bytes
        self._hashes = KeyHashes()
        self._columns = KeyColumns(self._hashes)

    def read(
        self, at: int, end: int, count: int, cached_only: bool = False
    ) -> tuple[IndexEntries, int]:
        """The entries of up to `count` records of [at, end), and where to go on.

        After damage it goes on where the next record of the file may begin. With `cached_only` it
        may raise NotInMemory.
        """
        found = no_entries()
        at = max(at, self._log.first)
        if at >= end:
            return found, at
        room = self._file_bytes - at % self._file_bytes
        chunk = self._log.read(at, min(CHUNK_BYTES, room, end - at), cached_only)
        index, limit = 0, min(len(chunk), room - 8)
        entries_max = count * ENTRIES_A_RECORD
        hashed_max = self._hashes.hashed_bytes + count * _HASHED_BYTES_A_RECORD
        while count > 0 and found.count < entries_max and len(chunk) - index >= 8:
            if self._hashes.hashed_bytes >= hashed_max:
                break
            before = index
            index, count = self._columns.read(chunk, at, index, limit, count, found)
            if index > before:
                continue
            size, magic = _prefix(chunk, index)
            if magic not in _MAGICS or not stored.FIXED_BYTES <= size <= room - index - 8:
                if magic == stored.MAGIC_BLANK and size == room - index:
                    return found, at + room
                return found, at + (index or _behind_damage(chunk, at))
            if index + size > len(chunk):
                if not index:
                    self._read_large(at, size, cached_only, found)
                    return found, at + size
                break
            self._read_one(at + index, chunk[index : index + size], 0, found)
            index += size
            count -= ALONE
        assert index <= len(chunk)
        return found, at + index

    def _read_large(self, at: int, size: int, cached_only: bool, found: IndexEntries) -> None:
        """A record longer than a chunk: its head and its end are read, not its body."""
        head = self._log.read(at, min(_HEAD_BYTES, size), cached_only)
        skipped = max(0, size - _HEAD_BYTES - _TAIL_BYTES)
        rest = self._log.read(at + len(head) + skipped, size - len(head) - skipped, cached_only)
        self._read_one(at, head + rest, skipped, found)

    def _read_one(self, at: int, raw: bytes, skipped: int, found: IndexEntries) -> None:
        """Add the entries of a record; `skipped` bytes of its body are not in `raw`."""
        try:
            (flag,) = _flag_of(raw, 36)
            (store_ms,) = _time_of(raw, 68 if flag & _BORN_V6 else 56)
            if flag & _ROLLBACK == _ROLLBACK:
                return
            body_at = stored.head_of(flag).size
            topic_at = body_at + _flag_of(raw, body_at - 4)[0] - skipped
            start = topic_at + 1
            topic_end = start + raw[topic_at]
            if _prefix(raw)[1] == stored.MAGIC_V2:
                start = topic_at + 2
                topic_end = start + _short_of(raw, topic_at)[0]
            hashes = self._hashes.of(raw[start:topic_end], raw[topic_end + 2 :])
        except (error, IndexError, UnicodeDecodeError):
            return  # damaged: readers will not get it either
        found.add(hashes, at, store_ms)


def _behind_damage(chunk: bytes, at: int) -> int:
    """How far it is from the begin of a chunk, read at `at`, to where the next record may be."""
    places = sorted(record_places(chunk[1:], at + 1))
    if places:
        return places[0] - at
    is_last = len(chunk) < CHUNK_BYTES  # else a record may begin in its last bytes
    return len(chunk) if is_last else len(chunk) - PLACE_BYTES
