"""Hot. From records of the log to entries of the key index, a bounded number at a time.

Reads only what the index needs: head, topic, properties. Knows which records count (all but
rollbacks) and what of them is indexed, in RocketMQ's order: UNIQ_KEY, each word of KEYS, TAGS.
Hashes of what repeats (topics, tags, the first 20 digits of ids of one client) are kept.
Java: CommitLogDispatcherBuildIndex, IndexService.buildIndex.
"""

from __future__ import annotations

import logging
from struct import Struct, error
from typing import TYPE_CHECKING, Protocol, TypeVar

from cometmq.store.log.log_reader import PLACE_BYTES, record_places
from cometmq.wire.java_hash import hash_from, java_hash
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import properties
from cometmq.wire.records.index_file_layout import stored_hash

if TYPE_CHECKING:
    from cometmq.store.index.index_file import IndexEntry

log = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 16
KEYS_MAX = 1024
"""Keys of one message that are indexed, so that one message costs no more than about 1 ms."""
_ENTRIES_A_RECORD = 8
"""Entries of one record on average after which a read ends, however few records it found."""
_HASHED_BYTES_A_RECORD = 256
"""Bytes of properties of one record on average after which a read ends: long keys take longest."""
_HEAD_BYTES = 128
_TAIL_BYTES = 40_000
"""More than topic and properties of one record can take."""
_MEMO_MAX = 4096
_ID_HEAD = 20
_ID_TIMED = 28
"""Digits of an id that tell its client, and those with the time: all of a batch share these."""
_LAST = 4
"""Digits that an id of a client with a short address has behind those."""
_ROLLBACK, _BORN_V6, _STORE_V6 = 0xC, 0x10, 0x20
_UNUSUAL = _ROLLBACK | _BORN_V6 | _STORE_V6
_MAGICS = (stored.MAGIC_V1, stored.MAGIC_V2)
_MASK = 0xFFFFFFFF
_UNIQ_KEY = properties.UNIQ_KEY_KEY + b"\x01"
_usual_head = Struct(">iI28xi16xq20xi")
"""Size, magic, flags, store time and the body's size, where both addresses are short."""
_prefix = Struct(">iI").unpack_from
_flag_of = Struct(">i").unpack_from
_time_of = Struct(">q").unpack_from
_short_of = Struct(">h").unpack_from
_find = properties.find
_run = hash_from
_K = TypeVar("_K")


class KeyHashes:
    """Hashes of messages' keys; remembers those of what repeats."""

    def __init__(self) -> None:
        self._topics: dict[bytes, int] = {}
        self._tags: dict[tuple[bytes, bytes], int] = {}
        self._clients: dict[tuple[bytes, bytes], int] = {}
        self._ids: dict[tuple[bytes, bytes], int] = {}
        self._has_cut = False
        self.hashed_bytes = 0
        """How many bytes of properties `of` got so far."""

    def of(self, topic: bytes, raw: bytes) -> list[int]:
        """The hashes a message is filed under."""
        self.hashed_bytes += len(raw)
        seed = self._topics.get(topic)
        if seed is None:
            seed = _remember(self._topics, topic, java_hash(topic.decode() + "#") & _MASK)
        found = []
        if unique := _find(raw, b"UNIQ_KEY"):
            found.append(self._unique(topic, unique) if unique.isascii() else _hash(seed, unique))
        # Measured: where there is none, to look so first takes half the time; `in` takes more.
        if raw.rfind(b"KEYS\x01") >= 0 and (keys := _find(raw, b"KEYS")):
            words = keys.split(b" ", KEYS_MAX)
            if len(words) > KEYS_MAX:
                self._note_cut(topic)
            found += [_hash(seed, key) for key in words[:KEYS_MAX] if key]
        if raw.rfind(b"TAGS\x01") >= 0 and (tag := _find(raw, b"TAGS")):
            hashed = self._tags.get((topic, tag))
            if hashed is None:
                hashed = _remember(self._tags, (topic, tag), _hash(seed, b"T#" + tag))
            found.append(hashed)
        return found

    def _note_cut(self, topic: bytes) -> None:
        if not self._has_cut:
            self._has_cut = True
            log.warning(
                "a message of %s has more than %d keys: the others are not indexed, nor are those "
                "of messages like it that come later",
                topic.decode("utf-8", "replace"),
                KEYS_MAX,
            )

    def _unique(self, topic: bytes, unique: bytes) -> int:
        return stored_hash(_run(self.of_timed(topic, unique[:_ID_TIMED]), unique[_ID_TIMED:]))

    def of_timed(self, topic: bytes, digits: bytes) -> int:
        """Java's hash of `topic#` and what ids of one moment begin with, in ASCII, as 32 bits."""
        start = topic, digits
        value = self._ids.get(start)
        if value is None:
            client = topic, digits[:_ID_HEAD]
            value = self._clients.get(client)
            if value is None:
                value = _run(java_hash(topic.decode() + "#") & _MASK, client[1])
                _remember(self._clients, client, value)
            value = _remember(self._ids, start, _run(value, digits[_ID_HEAD:]))
        return value


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

    def read(
        self, at: int, end: int, count: int, cached_only: bool = False
    ) -> tuple[list[IndexEntry], int]:
        """The entries of up to `count` records of [at, end), and where to go on.

        After damage it goes on where the next record of the file may begin. With `cached_only` it
        may raise NotInMemory.
        """
        at = max(at, self._log.first)
        if at >= end:
            return [], at
        room = self._file_bytes - at % self._file_bytes
        chunk = self._log.read(at, min(CHUNK_BYTES, room, end - at), cached_only)
        entries_max = count * _ENTRIES_A_RECORD
        hashed_max = self._hashes.hashed_bytes + count * _HASHED_BYTES_A_RECORD
        found, index, count = self._usual(chunk, at, min(len(chunk), room - 8), count)
        while count and len(found) < entries_max and len(chunk) - index >= 8:
            if self._hashes.hashed_bytes >= hashed_max:
                break
            size, magic = _prefix(chunk, index)
            if magic not in _MAGICS or not stored.FIXED_BYTES <= size <= room - index - 8:
                if magic == stored.MAGIC_BLANK and size == room - index:
                    return found, at + room
                return found, at + (index or _behind_damage(chunk, at))
            if index + size > len(chunk):
                if not index:
                    return self._large(at, size, cached_only), at + size
                break
            found += self._entries(at + index, chunk[index : index + size], 0)
            index += size
            count -= 1
        assert index <= len(chunk)
        return found, at + index

    def _usual(
        self, chunk: bytes, at: int, limit: int, count: int
    ) -> tuple[list[IndexEntry], int, int]:
        """The entries of a chunk's first records, up to one whose head is unusual.

        Also where that one begins, and how many are left of `count`. Measured for records with no
        key but an id: 1.7 us each, where `_entries` takes 3.1.
        """
        unpack, begins, rfind = _usual_head.unpack_from, chunk.startswith, chunk.rfind
        head_bytes, last_head = _usual_head.size, limit - _usual_head.size
        found: list[IndexEntry] = []
        topic_part = digits = b""
        index = start = 0
        entries_max = count * _ENTRIES_A_RECORD
        hashed_max = self._hashes.hashed_bytes + count * _HASHED_BYTES_A_RECORD
        while index <= last_head and count and len(found) < entries_max:
            size, magic, flag, store_ms, body_bytes = unpack(chunk, index)
            topic_at, end = index + head_bytes + body_bytes, index + size
            if magic != stored.MAGIC_V1 or flag & _UNUSUAL or body_bytes < 0:
                break
            if not topic_at < end <= limit:
                break
            if not topic_part or not begins(topic_part, topic_at):
                topic_part, digits = chunk[topic_at : topic_at + 1 + chunk[topic_at]], b""
            raw_at = topic_at + len(topic_part) + 2
            if raw_at > end or not topic_part.isascii():
                break
            key_at = rfind(b"Y\x01", raw_at, end) - 7  # measured: the whole name takes longer
            value_at, last_at = key_at + 9, key_at + 9 + _ID_TIMED
            if (
                (key_at == raw_at or (key_at > raw_at and chunk[key_at - 1] == 2))
                and begins(_UNIQ_KEY, key_at)
                and (unique := chunk[value_at : last_at + _LAST]).isalnum()  # in ASCII
                and last_at + _LAST < end
                and chunk[last_at + _LAST] == 2
                and rfind(b"S\x01", raw_at, end) < 0  # else there may be KEYS or TAGS
            ):
                if not digits or not begins(digits, value_at):
                    digits = unique[:_ID_TIMED]
                    start = self._hashes.of_timed(topic_part[1:], digits) * 31**_LAST
                a, b, c, d = unique[_ID_TIMED:]
                hashed = start + a * 29_791 + b * 961 + c * 31 + d & _MASK
                hashed = hashed if hashed < 0x80000000 else -hashed & 0x7FFFFFFF
                found.append((hashed, at + index, store_ms))
            else:
                keys = self._hashes.of(topic_part[1:], chunk[raw_at:end])
                found += [(hashed, at + index, store_ms) for hashed in keys]
                if self._hashes.hashed_bytes >= hashed_max:
                    return found, end, 0
            index = end
            count -= 1
        return found, index, count

    def _large(self, at: int, size: int, cached_only: bool) -> list[IndexEntry]:
        """A record longer than a chunk: its head and its end are read, not its body."""
        head = self._log.read(at, min(_HEAD_BYTES, size), cached_only)
        skipped = max(0, size - _HEAD_BYTES - _TAIL_BYTES)
        rest = self._log.read(at + len(head) + skipped, size - len(head) - skipped, cached_only)
        return self._entries(at, head + rest, skipped)

    def _entries(self, at: int, raw: bytes, skipped: int) -> list[IndexEntry]:
        """The entries of a record, in their order; `skipped` bytes of its body are not in `raw`."""
        try:
            (flag,) = _flag_of(raw, 36)
            (store_ms,) = _time_of(raw, 68 if flag & _BORN_V6 else 56)
            if flag & _ROLLBACK == _ROLLBACK:
                return []
            body_at = stored.head_of(flag).size
            topic_at = body_at + _flag_of(raw, body_at - 4)[0] - skipped
            start = topic_at + 1
            topic_end = start + raw[topic_at]
            if _prefix(raw)[1] == stored.MAGIC_V2:
                start = topic_at + 2
                topic_end = start + _short_of(raw, topic_at)[0]
            hashes = self._hashes.of(raw[start:topic_end], raw[topic_end + 2 :])
        except (error, IndexError, UnicodeDecodeError):
            return []  # damaged: readers will not get it either
        return [(hashed, at, store_ms) for hashed in hashes]


def _behind_damage(chunk: bytes, at: int) -> int:
    """How far it is from the begin of a chunk, read at `at`, to where the next record may be."""
    places = sorted(record_places(chunk[1:], at + 1))
    if places:
        return places[0] - at
    is_last = len(chunk) < CHUNK_BYTES  # else a record may begin in its last bytes
    return len(chunk) if is_last else len(chunk) - PLACE_BYTES


def _hash(seed: int, key: bytes) -> int:
    """The hash of a whole key; `seed` is that of `topic#`."""
    if key.isascii():
        return stored_hash(_run(seed, key))
    units = len(key.decode("utf-8", "replace").encode("utf-16-be")) // 2
    text = key.decode("utf-8", "replace")
    return stored_hash((seed * pow(31, units, 1 << 32) + java_hash(text)) & _MASK)


def _remember(memo: dict[_K, int], key: _K, value: int) -> int:
    if len(memo) >= _MEMO_MAX:
        memo.clear()
    memo[key] = value
    return value
