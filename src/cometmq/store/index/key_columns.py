"""Hot. The entries of many records of the log at once, as far as their heads are usual.

Records of one size are not even looked at one by one; of others, those with equally long tails go
together (`tail_shape.py`). What has no shape is read alone, a bounded number in one call.
Measured for records with id, key and tag, with putting them in a file: 1.8 us each where all have
one size, 4.3 where sizes and lengths of keys vary, 9 one by one (`bench/index.py`).
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import TYPE_CHECKING

from cometmq import native
from cometmq.store.index.tail_shape import TailShape, shape_of
from cometmq.wire.records import log_record as stored
from cometmq.wire.records.index_hash_columns import COUNT_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.store.index.index_entries import IndexEntries
    from cometmq.store.index.key_hashes import KeyHashes

    Row = Sequence[int]

ALONE = 4
"""What a record that is read alone takes off the number of records of a call."""
ENTRIES_A_RECORD = 4
"""Entries of one record on average after which a call ends, however few records it found."""
_TAIL_MAX = 1024
"""The longest topic and properties that are read here, bytes: one call stays below 1 ms."""
_FEW = 12
"""Records for which a shape does not pay."""
_SHAPES_MAX = 256
_UNUSUAL = 0xC | 0x10 | 0x20
"""Flags of a record that is read elsewhere: of a transaction's end, or with a long address."""
_head = Struct(">iI28xi16xq20xi")
"""Size, magic, flags, store time and the body's size, where both addresses are short."""
_HEAD_BYTES = _head.size
_body_bytes = Struct(">i").unpack_from
_SAME = (*range(8), *range(36, 40), *range(84, 88))
"""The bytes of size, magic, flags and the body's size."""


class KeyColumns:
    """Reads entries from chunks of the log; remembers the shapes it met."""

    def __init__(self, hashes: KeyHashes) -> None:
        self._hashes = hashes
        self._shapes: dict[tuple[int, bytes], TailShape] = {}

    def read(
        self, chunk: bytes, at: int, index: int, limit: int, count: int, found: IndexEntries
    ) -> tuple[int, int]:
        """Add the entries of up to `count` records from `index` of a chunk that begins at `at`.

        Where to go on, and what is left of `count`. Nothing was done where the first record is
        unusual, or cut off by `limit`.
        """
        count = min(count, COUNT_MAX)
        if native.c is not None:
            return _read_in_c(chunk, at, index, limit, count, found)
        size, alike = self._alike(chunk, index, limit, count)
        if alike >= _FEW and self._read_alike(chunk, at, index, size, alike, found):
            return index + alike * size, count - alike
        return self._read_each(chunk, at, index, limit, count, found)

    def _alike(self, chunk: bytes, index: int, limit: int, count: int) -> tuple[int, int]:
        """The size of the first record, and how many in a row are like it; 0 for an unusual one.

        Their heads and lengths are alike, by columns: 0.06 us each.
        """
        if index + _HEAD_BYTES > limit:
            return 0, 0
        size, magic, flag, _, body_bytes = _head.unpack_from(chunk, index)
        tail_bytes = size - _HEAD_BYTES - body_bytes
        if magic != stored.MAGIC_V1 or flag & _UNUSUAL or body_bytes < 0:
            return 0, 0
        if not 3 <= tail_bytes <= _TAIL_MAX:
            return 0, 0
        count = min(count, (limit - index) // size)
        for place in _SAME:
            column = chunk[index + place : index + count * size : size]
            if column.count(column[:1]) != count:
                count = len(column) - len(column.lstrip(column[:1]))
            if count < _FEW:
                break
        return size, count

    def _read_alike(
        self, chunk: bytes, at: int, index: int, size: int, count: int, found: IndexEntries
    ) -> bool:
        """Add the entries of records whose heads are alike; whether their tails are, too."""
        end = index + count * size
        (body_bytes,) = _body_bytes(chunk, index + _HEAD_BYTES - 4)
        before = _HEAD_BYTES + body_bytes
        tails = chunk[index + before : index + size], chunk[end - size + before : end]
        cut = self._cut(*tails, chunk[index:end], count, f">56xq{before - 64}x")
        if cut is None:
            return False
        (times,), columns = cut
        _add(found, columns, range(at + index, at + end, size), times)
        return True

    def _read_each(
        self, chunk: bytes, at: int, index: int, limit: int, count: int, found: IndexEntries
    ) -> tuple[int, int]:
        """Add the entries of records whose heads differ; what is returned is as with `read`."""
        unpack, last = _head.unpack_from, limit - _HEAD_BYTES
        groups: dict[tuple[int, bytes], list[int]] = {}
        tails: list[bytes] = []
        heads: list[tuple[int, int, int]] = []
        while index <= last and len(tails) < count:
            size, magic, flag, store_ms, body_bytes = unpack(chunk, index)
            tail_at, end = index + _HEAD_BYTES + body_bytes, index + size
            if magic != stored.MAGIC_V1 or flag & _UNUSUAL or body_bytes < 0:
                break
            if not 3 <= end - tail_at <= _TAIL_MAX or end > limit:
                break
            kind = end - tail_at, chunk[tail_at : tail_at + 1 + chunk[tail_at]]
            groups.setdefault(kind, []).append(len(tails))
            tails.append(chunk[tail_at:end])
            heads.append((at + index, store_ms, end))
            index = end
        if not tails:
            return index, count
        rows, left = self._rows(tails, list(groups.values()), count)
        places, times, ends = list(zip(*heads[: len(rows)], strict=True))
        if len(set(map(len, rows))) == 1:
            _add(found, list(zip(*rows, strict=True)), places, times)
        else:
            for row, place, store_ms in zip(rows, places, times, strict=True):
                found.add(row, place, store_ms)
        return ends[-1], left

    def _rows(
        self, tails: list[bytes], groups: list[list[int]], count: int
    ) -> tuple[list[Row], int]:
        """The hashes of each record, perhaps not of all of them, and what is left of `count`."""
        rows: list[Row] = [()] * len(tails)
        alone: list[int] = []
        for members in groups:
            own = [tails[number] for number in members]
            if len(own) < _FEW or not (cut := self._cut(own[0], own[-1], b"".join(own), len(own))):
                alone += members
                continue
            for number, row in zip(members, zip(*cut[1], strict=True), strict=bool(cut[1])):
                rows[number] = row
        records, entries = max(1, count // ALONE), count * ENTRIES_A_RECORD
        for number in sorted(alone):
            if records <= 0 or entries <= 0:
                del rows[number:]
                break
            rows[number] = self._row(tails[number])
            records, entries = records - 1, entries - len(rows[number])
            count -= ALONE - 1
        return rows, count - len(rows)

    def _row(self, tail: bytes) -> Row:
        """The hashes of one record."""
        topic_end = 1 + tail[0]
        try:
            return self._hashes.of(tail[1:topic_end], tail[topic_end + 2 :])
        except UnicodeDecodeError:
            return ()  # damaged: readers will not get it either

    def _cut(
        self, first: bytes, last: bytes, rows: bytes, count: int, lead: str = ">"
    ) -> tuple[list[tuple[int, ...]], list[Row]] | None:
        """What `TailShape.hashes` makes of rows with these tails, by a shape that fits them."""
        kind = len(first), first[: 1 + first[0]]
        known = self._shapes.get(kind)
        if known and (cut := known.hashes(rows, count, lead)):
            return cut
        for other in (last, b""):
            shape = shape_of(first, other)
            if shape is not None and (cut := shape.hashes(rows, count, lead)):
                if len(self._shapes) >= _SHAPES_MAX:
                    self._shapes.clear()
                self._shapes[kind] = shape
                return cut
        return None


def _read_in_c(
    chunk: bytes, at: int, index: int, limit: int, count: int, found: IndexEntries
) -> tuple[int, int]:
    """Do as `KeyColumns.read`; records that are not ASCII are unusual here."""
    assert native.c is not None
    entries_max = count * ENTRIES_A_RECORD
    index, count, *fields = native.c.read_keys(chunk, at, index, limit, count, entries_max)
    columns = found.hashes, found.phy_offsets, found.store_times
    for column, raw in zip(columns, fields, strict=True):
        column.frombytes(raw)
    return index, count


def _add(
    found: IndexEntries, columns: list[Row], places: Sequence[int], times: Sequence[int]
) -> None:
    """Add the entries of records that have as many keys each, a column for each key."""
    width = len(columns)
    flat = array("I", bytes(4 * width * len(places)))
    for number, column in enumerate(columns):
        flat[number::width] = array("I", column)
    found.hashes.extend(flat)
    for field, cells in ((found.phy_offsets, places), (found.store_times, times)):
        flat = array("q", bytes(8 * width * len(places)))
        column = array("q", cells)
        for number in range(width):
            flat[number::width] = column
        field.extend(flat)
    found.moments.update(times)
