"""The bytes of many rows at once: columns of Arrow that are put together piece by piece.

Owns how values become properties, and rows the items of a batch; knows neither rules nor brokers.
Imports Arrow, so only tasks import it. Measured: a row of 128 B takes 0.4 us, the checksum half of
it, where an object for each piece of each row took 1.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

_NOTHING = pa.scalar(b"", pa.binary())
_UNIQ_KEY = np.frombuffer(b"UNIQ_KEY\x01", np.uint8)
_PLAIN = r"^[^\x01\x02]*[!-~\pL\pN][^\x01\x02]*$"
"""A text with a character that is no space, and without those that end names and values."""


def binary(column: pa.Array) -> pa.Array:
    """Bytes, or texts in UTF-8; empty ones in place of nulls."""
    return pc.fill_null(column.cast(pa.binary()), _NOTHING)


def joined(*pieces: pa.Array | bytes) -> pa.Array:
    """The pieces of each row behind each other, bytes in all rows; null where one is null."""
    found = [pa.scalar(one, pa.binary()) if isinstance(one, bytes) else one for one in pieces]
    return pc.binary_join_element_wise(*found, b"")


def sizes(column: pa.Array) -> NDArray[np.int64]:
    """The bytes of each value."""
    found: NDArray[np.int64] = pc.binary_length(column).to_numpy().astype(np.int64)
    return found


def numbers(first: int, count: int) -> pa.Array:
    """Consecutive numbers in decimal digits."""
    return pa.array(np.arange(first, first + count)).cast(pa.string()).cast(pa.binary())


def checksums(bodies: pa.Array, texts: pa.Array | None) -> pa.Array:
    """`/`, the CRC-32 of body and text in eight hexadecimal digits, and the end of a value."""
    found = map(crc32, _values(bodies))
    if texts is not None:
        found = map(crc32, _values(texts), found)
    digits = np.fromiter(found, np.uint32, len(bodies)).astype(">u4").tobytes().hex().encode()
    pieces = np.empty((len(bodies), 10), np.uint8)
    pieces[:, 0], pieces[:, 9] = ord("/"), 2
    pieces[:, 1:9] = np.frombuffer(digits, np.uint8).reshape(-1, 8)
    return _of_one_size(pieces)


def named(name: str, column: pa.Array) -> pa.Array:
    """A property of each row; nothing for one without a value, which 0 is no value either."""
    if pa.types.is_integer(column.type):
        column = pc.if_else(pc.equal(column, 0), None, column).cast(pa.string())
    values = binary(column)
    found = joined(f"{name}\x01".encode(), values, b"\x02")
    return pc.if_else(pc.equal(pc.binary_length(values), 0), _NOTHING, found)


def path_of(name: str, columns: Sequence[pa.Array]) -> pa.Array:
    """A property of each row whose value is all columns with `/` between; nothing for a null."""
    texts = [one.cast(pa.string()).cast(pa.binary()) for one in columns]
    found = pc.binary_join_element_wise(*texts, b"/")
    return pc.fill_null(joined(f"{name}\x01".encode(), found, b"\x02"), _NOTHING)


def words(column: pa.Array) -> pa.Array:
    """Texts; of lists of texts the texts with blanks between, without nulls and empty ones."""
    if not pa.types.is_list(column.type):
        return column
    lists = column.to_pylist()
    texts = [" ".join([one for one in some if one]) or None if some else None for some in lists]
    return pa.array(texts, pa.string())


def places_outside(numbers: NDArray[np.int64], least: int, most: int) -> list[int]:
    """Where numbers are out of these bounds."""
    found: list[int] = np.flatnonzero((numbers < least) | (numbers > most)).tolist()
    return found


def places_below(column: pa.Array, least: int) -> list[int]:
    """Where a number is below a bound; a null is not."""
    return _places(pc.fill_null(pc.less(column, least), False))


def odd_places(column: pa.Array) -> list[int]:
    """Where texts may be blank or hold characters that properties cannot; a null does not."""
    return _places(_not_plain(column))


class MapTexts:
    """The properties that the maps of rows say; names in `left_out` are left out."""

    def __init__(self, maps: pa.MapArray, left_out: Collection[str]) -> None:
        self._ends = maps.offsets.to_numpy().astype(np.int64)
        first, count = int(self._ends[0]), int(self._ends[-1] - self._ends[0])
        self._names, self._values = maps.keys.slice(first, count), maps.items.slice(first, count)
        self._ends -= first
        out = pc.is_in(self._names, pa.array(sorted(left_out), pa.string()))
        if pc.any(out).as_py():
            kept = ~out.to_numpy(zero_copy_only=False)
            self._ends = np.concatenate(([0], np.cumsum(kept)))[self._ends]
            self._names = self._names.filter(pa.array(kept))
            self._values = self._values.filter(pa.array(kept))

    def texts(self) -> pa.Array:
        """The properties of each row behind each other."""
        entries = joined(binary(self._names), b"\x01", binary(self._values), b"\x02")
        if not len(entries):
            return pa.repeat(_NOTHING, len(self._ends) - 1)
        _, offsets, data = entries.buffers()
        places = np.frombuffer(offsets, np.int32)[self._ends]
        return pa.Array.from_buffers(
            pa.binary(), len(places) - 1, [None, pa.py_buffer(places), data]
        )

    def odd_rows(self, reserved: Collection[str]) -> list[int]:
        """Rows with a property that may break a rule, or whose name is reserved."""
        names, values = self._names, self._values
        odd = pc.or_(pc.is_null(values), pc.is_in(names, pa.array(sorted(reserved), pa.string())))
        odd = pc.or_(odd, pc.or_(_not_plain(names), _not_plain(values)))
        rows: list[int] = (np.searchsorted(self._ends, _places(odd), "right") - 1).tolist()
        return rows

    def pairs(self, row: int) -> dict[str, str]:
        """The properties of one row, a null among them as it is."""
        begin, end = self._ends[row : row + 2].tolist()
        names = self._names.slice(begin, end - begin).to_pylist()
        return dict(zip(names, self._values.slice(begin, end - begin).to_pylist(), strict=True))


class RowItems:
    """Rows as items of batches (`message_batch.encode_keyed`), end to end."""

    def __init__(
        self, keys: bytes, bodies: pa.BinaryArray, others: pa.BinaryArray, order: Sequence[int]
    ) -> None:
        """`keys` are UNIQ_KEYs of one length, end to end, of the rows at these places."""
        if not isinstance(order, range):
            places = pa.array(order, pa.int64())
            bodies, others = bodies.take(places), others.take(places)
        count, name_end = len(order), 2 + len(_UNIQ_KEY)
        property_sizes = sizes(others) + len(_UNIQ_KEY) + len(keys) // count + 1
        assert property_sizes.max() <= 0x7FFF, "the length of properties is a signed 16-bit number"
        heads = np.zeros((count, 5), ">i4")
        heads[:, 4] = sizes(bodies)
        heads[:, 0] = own = heads[:, 4] + property_sizes + 22
        starts = np.empty((count, name_end + len(keys) // count + 1), np.uint8)
        starts[:, :2] = property_sizes.astype(">i2").view(np.uint8).reshape(-1, 2)
        starts[:, 2:name_end], starts[:, -1] = _UNIQ_KEY, 2
        starts[:, name_end:-1] = np.frombuffer(keys, np.uint8).reshape(count, -1)
        pieces = _of_one_size(heads.view(np.uint8)), bodies, _of_one_size(starts), others
        self._data = memoryview(joined(*pieces).buffers()[2])
        self._begins: list[int] = [0, *np.cumsum(own, dtype=np.int64).tolist()]

    def between(self, begin: int, end: int) -> bytes:
        """The items of these rows."""
        return self._data[self._begins[begin] : self._begins[end]].tobytes()


def _not_plain(column: pa.Array) -> pa.Array:
    return pc.fill_null(pc.invert(pc.match_substring_regex(column, _PLAIN)), False)


def _places(found: pa.BooleanArray) -> list[int]:
    places: list[int] = np.flatnonzero(found.to_numpy(zero_copy_only=False)).tolist()
    return places


def _values(column: pa.Array) -> list[bytes]:
    """Measured: 0.03 us each with every version of pyarrow; `to_pylist` took 0.8 before 26."""
    values: list[bytes] = column.to_numpy(zero_copy_only=False).tolist()
    return values


def _of_one_size(pieces: NDArray[Any]) -> pa.Array:
    """A row of the matrix for each row."""
    count, size = pieces.shape
    offsets = np.arange(0, count * size + 1, size, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(pieces)]
    )
