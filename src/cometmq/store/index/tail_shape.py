"""Hot. What the tails of like records share, to hash the keys of many of them at once.

A tail is what follows a record's body: topic and properties. Tails of one shape are equally long
and have the same topic and names; only some values differ. One `Struct` cuts all of them, what must
be equal is counted, what may differ must hold no separator, and each key is hashed as a column.
Java: none.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from cometmq.store.index.key_hashes import hash_of_key
from cometmq.wire.java_hash import hash_from
from cometmq.wire.records import properties
from cometmq.wire.records.index_file_layout import tag_key
from cometmq.wire.records.index_hash_columns import LENGTH_MAX, stored_hashes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_INDEXED = (
    (properties.UNIQ_KEY_KEY, b""),
    (properties.KEYS_KEY, b""),
    (properties.TAGS_KEY, tag_key("").encode()),
)
"""In RocketMQ's order, with what their texts are preceded by."""
_CLIENT_DIGITS = 20
"""Of an id: those that all ids of one client share."""
_SHORT = 4
"""Bytes up to which each is compared alone in all tails: 5 ns each, where cutting takes 60."""


class _Key(NamedTuple):
    """A key that differs from tail to tail: where, and the hash of what comes before it."""

    start: int
    end: int
    seed: int
    is_one_word: bool
    """Whether a space would part it."""


class TailShape:
    """The shape of some tails, and how their keys are hashed."""

    def __init__(
        self, tail: bytes, keys: list[_Key | int], differing: list[tuple[int, int]]
    ) -> None:
        """`keys`: each key, or its hash; `differing`: begin and end of all that may differ."""
        self._keys = keys
        self._parts: list[bytes | _Key] = []
        """What is cut out, in the order of the tail: what is equal in all, or a key."""
        self._equal_bytes: list[tuple[int, int]] = []
        """Other bytes that are equal in all: where, and which."""
        self._free_bytes: list[int] = []
        """Where there may be anything but a separator."""
        layout, at = "", 0
        by_place = {(key.start, key.end): key for key in keys if isinstance(key, _Key)}
        for start, end in [*differing, (len(tail), len(tail))]:
            if start - at > _SHORT:
                self._parts.append(tail[at:start])
                layout += f"{start - at}s"
            else:
                self._equal_bytes += enumerate(tail[at:start], at)
                layout += f"{start - at}x"
            if key := by_place.get((start, end)):
                self._parts.append(key)
                layout += f"{end - start}s"
            else:
                self._free_bytes += range(start, end)
                layout += f"{end - start}x"
            at = end
        self._layout = layout

    def hashes(
        self, rows: bytes, count: int, lead: str = ">"
    ) -> tuple[list[tuple[int, ...]], list[Sequence[int]]] | None:
        """What `lead`, the layout of what is before each tail, cuts out; and the hashes, by keys.

        None: not all of these `count` rows are tails of this shape.
        """
        cut = Struct(lead + self._layout)
        assert len(rows) == count * cut.size
        before = Struct(lead).size
        for at, byte in self._equal_bytes:
            if rows[before + at :: cut.size].count(byte) != count:
                return None
        for at in self._free_bytes:
            column = rows[before + at :: cut.size]
            if 1 in column or 2 in column:
                return None
        columns = list(zip(*cut.iter_unpack(rows), strict=True))
        found: dict[int, Sequence[int]] = {}
        first = len(columns) - len(self._parts)
        for part, cells in zip(self._parts, columns[first:], strict=True):
            if not isinstance(part, _Key):
                if cells.count(part) != count:
                    return None
                continue
            text = b"".join(cells)
            if 1 in text or 2 in text or not text.isascii() or (part.is_one_word and 32 in text):
                return None
            found[part.start] = stored_hashes(part.seed, cells, part.end - part.start)
        return columns[:first], [
            found[key.start] if isinstance(key, _Key) else [key] * count for key in self._keys
        ]


def shape_of(tail: bytes, other: bytes) -> TailShape | None:
    """The shape of a tail: values that differ from those of another one may differ in all.

    With `other` empty, every value may. None: keys of this kind are read one by one.
    """
    topic_end = 1 + tail[0]
    if topic_end + 2 > len(tail) or not tail[1:topic_end].isascii():
        return None
    values = dict(_values(tail, topic_end + 2))
    topic = hash_from(0, tail[1:topic_end] + b"#")
    keys: list[_Key | int] = []
    differing = []
    for name, prefix in _INDEXED:
        if name not in values:
            continue
        start, end = values.pop(name)
        value, same = tail[start:end], 0
        if name == _INDEXED[0][0]:  # an id: they differ behind what tells the client
            is_one_client = value[:_CLIENT_DIGITS] == other[start : start + _CLIENT_DIGITS]
            same = _CLIENT_DIGITS if is_one_client and len(value) > _CLIENT_DIGITS else 0
        elif value == other[start:end]:
            words = value.split(b" ") if not prefix else [prefix + value]
            keys += [hash_of_key(topic, word) for word in words if word]
            continue
        if len(value) - same > LENGTH_MAX or not value[:same].isascii():
            return None
        seed = hash_from(topic, prefix + value[:same])
        keys.append(_Key(start + same, end, seed, name == properties.KEYS_KEY))
        differing.append((start + same, end))
    differing += [(a, b) for a, b in values.values() if tail[a:b] != other[a:b]]
    return TailShape(tail, keys, sorted(differing))


def _values(tail: bytes, at: int) -> Iterator[tuple[bytes, tuple[int, int]]]:
    """The name of each property that has a value, and where that begins and ends."""
    for pair in tail[at:].split(b"\x02"):
        mark = pair.find(b"\x01")
        if 0 < mark < len(pair) - 1:
            yield pair[:mark], (at + mark + 1, at + len(pair))
        at += len(pair) + 1
