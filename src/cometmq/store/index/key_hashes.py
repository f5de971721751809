"""Hot. The hashes under which the key index files one message: UNIQ_KEY, each word of KEYS, TAGS.

In RocketMQ's order. Hashes of what repeats (topics, tags, the first 20 digits of ids of one client)
are kept. Like messages in a row are hashed together instead: `tail_shape.py`.
Java: CommitLogDispatcherBuildIndex, IndexService.buildIndex.
"""

from __future__ import annotations

import logging
from typing import TypeVar

from cometmq.wire.java_hash import hash_from, java_hash
from cometmq.wire.records import properties
from cometmq.wire.records.index_file_layout import stored_hash

log = logging.getLogger(__name__)

KEYS_MAX = 1024
"""Keys of one message that are indexed, so that one message costs no more than about 1 ms."""
_MEMO_MAX = 4096
_ID_HEAD = 20
_ID_TIMED = 28
"""Digits of an id that tell its client, and those with the time: all of a batch share these."""
_MASK = 0xFFFFFFFF
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
            found.append(
                self._unique(topic, unique) if unique.isascii() else hash_of_key(seed, unique)
            )
        # Measured: where there is none, to look so first takes half the time; `in` takes more.
        if raw.rfind(b"KEYS\x01") >= 0 and (keys := _find(raw, b"KEYS")):
            words = keys.split(b" ", KEYS_MAX)
            if len(words) > KEYS_MAX:
                self._note_cut(topic)
            found += [hash_of_key(seed, key) for key in words[:KEYS_MAX] if key]
        if raw.rfind(b"TAGS\x01") >= 0 and (tag := _find(raw, b"TAGS")):
            hashed = self._tags.get((topic, tag))
            if hashed is None:
                hashed = _remember(self._tags, (topic, tag), hash_of_key(seed, b"T#" + tag))
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
        return stored_hash(_run(self._of_timed(topic, unique[:_ID_TIMED]), unique[_ID_TIMED:]))

    def _of_timed(self, topic: bytes, digits: bytes) -> int:
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


def hash_of_key(seed: int, key: bytes) -> int:
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
