"""Hot. From records of the log to entries of the key index, a bounded number at a time.

Reads only what the index needs: head, topic, properties. Knows which records count (all but
rollbacks) and what of them is indexed, in RocketMQ's order: UNIQ_KEY, each word of KEYS, TAGS.
Hashes of what repeats (topics, tags, the first 20 digits of ids of one client) are kept.
Java: CommitLogDispatcherBuildIndex, IndexService.buildIndex.
"""

from __future__ import annotations

import logging
from struct import Struct, error
from typing import NamedTuple, Protocol, TypeVar

from cometmq.store.log.log_reader import PLACE_BYTES, record_places
from cometmq.wire.java_hash import hash_from, java_hash
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import properties
from cometmq.wire.records.index_file_layout import stored_hash

log = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 16
KEYS_MAX = 1024
"""Keys of one message that are indexed, so that one message costs no more than about 1 ms."""
_HASHES_A_RECORD = 8
"""Keys of one record on average after which a read ends, however few records it found."""
_HEAD_BYTES = 128
_TAIL_BYTES = 40_000
"""More than topic and properties of one record can take."""
_MEMO_MAX = 4096
_ID_HEAD = 20
_ID_TIMED = 28
"""Digits of an id that tell its client, and those with the time: all of a batch share these."""
_ROLLBACK, _BORN_V6 = 0xC, 0x10
_MAGICS = (stored.MAGIC_V1, stored.MAGIC_V2)
_MASK = 0xFFFFFFFF
_prefix = Struct(">iI").unpack_from
_flag_of = Struct(">i").unpack_from
_time_of = Struct(">q").unpack_from
_short_of = Struct(">h").unpack_from
_find = properties.find
_run = hash_from
_K = TypeVar("_K")


class KeyedRecord(NamedTuple):
    """A record as the index sees it. `hashes` in the order in which they are put."""

    phy_offset: int
    size: int
    store_ms: int
    hashes: list[int]


class KeyHashes:
    """Hashes of messages' keys; remembers those of what repeats."""

    def __init__(self) -> None:
        self._topics: dict[bytes, int] = {}
        self._tags: dict[tuple[bytes, bytes], int] = {}
        self._clients: dict[tuple[bytes, bytes], int] = {}
        self._ids: dict[tuple[bytes, bytes], int] = {}
        self._has_cut = False

    def of(self, topic: bytes, raw: bytes) -> list[int]:
        """The hashes a message is filed under."""
        seed = self._topics.get(topic)
        if seed is None:
            seed = _remember(self._topics, topic, java_hash(topic.decode() + "#") & _MASK)
        found = []
        if unique := _find(raw, b"UNIQ_KEY"):
            found.append(self._unique(topic, seed, unique))
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

    def _unique(self, topic: bytes, seed: int, unique: bytes) -> int:
        if not unique.isascii():
            return _hash(seed, unique)
        start = topic, unique[:_ID_TIMED]
        value = self._ids.get(start)
        if value is None:
            value = self._hash_of_timed(topic, seed, start[1])
            _remember(self._ids, start, value)
        return stored_hash(_run(value, unique[_ID_TIMED:]))

    def _hash_of_timed(self, topic: bytes, seed: int, digits: bytes) -> int:
        start = topic, digits[:_ID_HEAD]
        value = self._clients.get(start)
        if value is None:
            value = _remember(self._clients, start, _run(seed, start[1]))
        return _run(value, digits[_ID_HEAD:])


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
        self._hashes = KeyHashes().of

    def read(
        self, at: int, end: int, count: int, cached_only: bool = False
    ) -> tuple[list[KeyedRecord], int]:
        """Up to `count` records of [at, end) and where to go on.

        After damage it goes on where the next record of the file may begin. With `cached_only` it
        may raise NotInMemory.
        """
        at = max(at, self._log.first)
        found: list[KeyedRecord] = []
        if at >= end:
            return found, at
        room = self._file_bytes - at % self._file_bytes
        chunk = self._log.read(at, min(CHUNK_BYTES, room, end - at), cached_only)
        index = hashes = 0
        hashes_max = count * _HASHES_A_RECORD
        while len(found) < count and hashes < hashes_max and len(chunk) - index >= 8:
            size, magic = _prefix(chunk, index)
            if magic not in _MAGICS or not stored.FIXED_BYTES <= size <= room - index - 8:
                if magic == stored.MAGIC_BLANK and size == room - index:
                    return found, at + room
                return found, at + (index or _behind_damage(chunk, at))
            if index + size > len(chunk):
                if not index:
                    found.append(self._large(at, size, cached_only))
                    index = size
                break
            found.append(self._keyed(at + index, size, chunk[index : index + size], 0))
            hashes += len(found[-1].hashes)
            index += size
        assert index <= len(chunk) or len(found) == 1
        return found, at + index

    def _large(self, at: int, size: int, cached_only: bool) -> KeyedRecord:
        """A record longer than a chunk: its head and its end are read, not its body."""
        head = self._log.read(at, min(_HEAD_BYTES, size), cached_only)
        skipped = max(0, size - _HEAD_BYTES - _TAIL_BYTES)
        rest = self._log.read(at + len(head) + skipped, size - len(head) - skipped, cached_only)
        return self._keyed(at, size, head + rest, skipped)

    def _keyed(self, at: int, size: int, raw: bytes, skipped: int) -> KeyedRecord:
        """What of a record is indexed; `skipped` bytes of its body are not in `raw`."""
        try:
            (flag,) = _flag_of(raw, 36)
            (store_ms,) = _time_of(raw, 68 if flag & _BORN_V6 else 56)
            if flag & _ROLLBACK == _ROLLBACK:
                return KeyedRecord(at, size, store_ms, [])
            body_at = stored.head_of(flag).size
            topic_at = body_at + _flag_of(raw, body_at - 4)[0] - skipped
            start = topic_at + 1
            topic_end = start + raw[topic_at]
            if _prefix(raw)[1] == stored.MAGIC_V2:
                start = topic_at + 2
                topic_end = start + _short_of(raw, topic_at)[0]
            hashes = self._hashes(raw[start:topic_end], raw[topic_end + 2 :])
        except (error, IndexError, UnicodeDecodeError):
            return KeyedRecord(at, size, 0, [])  # damaged: readers will not get it either
        return KeyedRecord(at, size, store_ms, hashes)


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
