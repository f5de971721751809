"""Where records begin in the bytes that pulls brought, and how, found for all of them at once.

A record has its mark four bytes after its beginning. Where all have one size, that tells; else all
marks are looked up in one pass. Then the size of each record must lead exactly to the next one.
Where it does not, because a body holds a mark as well, and where records are so large that the pass
costs more, the sizes are followed one after the other.
Invariant: all ways give the same places, or raise ProtocolError.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np

from cometmq.errors import ProtocolError
from cometmq.wire.records.log_record import FIXED_BYTES, MAGIC_V1, MAGIC_V2

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_MARK_BYTE = MAGIC_V1 >> 24
"""The first byte of both marks."""
_SMALL_BYTES = 640
"""Up to here one look at each byte is cheaper than one Python step a record."""
_PART_BYTES = 128 * 1024
HEAD = np.dtype(
    [
        ("size", ">i4"),
        ("mark", ">u4"),
        ("crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("phy_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_ms", ">i8"),
        ("born_host", "V8"),
        ("store_ms", ">i8"),
        ("store_host", "V8"),
        ("reconsume_times", ">i4"),
        ("prepared", ">i8"),
        ("body_size", ">i4"),
    ]
)
"""What begins a record whose addresses are short; up to `born_ms`, any record."""
assert HEAD.itemsize <= FIXED_BYTES
_size_at = Struct(">i").unpack_from


def record_starts(data: bytes) -> Ints:
    """Where each record of some pulls' bodies begins; raises ProtocolError for wrong sizes."""
    return record_heads(data)[0]


def record_heads(data: bytes) -> tuple[Ints, NDArray[Any]]:
    """Where each record of some pulls' bodies begins, and its `HEAD`.

    Raises ProtocolError for wrong sizes.
    """
    if len(data) < FIXED_BYTES:
        return _by_sizes(data)
    (size,) = _size_at(data)
    found: tuple[Ints, NDArray[Any]] | None = None
    if size >= FIXED_BYTES and not len(data) % size:
        found = _if_chained(data, np.arange(0, len(data), size))
    if found is None and size <= _SMALL_BYTES:
        found = _if_chained(data, _marks(data) - 4)
    return _by_sizes(data) if found is None else found


def _marks(data: bytes) -> Ints:
    """Where a record's mark may be, in bytes that can hold the record.

    Looked for in parts that the processor's cache holds: measured, half the
    time.
    """
    octets = np.frombuffer(data, np.uint8)[4 : len(data) - FIXED_BYTES + 5]
    parts = [
        np.flatnonzero(octets[at : at + _PART_BYTES] == _MARK_BYTE) + (at + 4)
        for at in range(0, len(octets), _PART_BYTES)
    ]
    return np.concatenate(parts)


def _if_chained(data: bytes, starts: Ints) -> tuple[Ints, NDArray[Any]] | None:
    """Those of these places that have a mark; None where they are not all records of `data`."""
    heads = read_at(data, starts, HEAD)
    is_marked = _are_marked(heads)
    if not is_marked.all():
        starts, heads = starts[is_marked], chosen(heads, is_marked)
    sizes = heads["size"].astype(np.int64)
    ends = starts + sizes
    is_chain = len(starts) and starts[0] == 0 and ends[-1] == len(data)
    if is_chain and (sizes >= FIXED_BYTES).all() and (ends[:-1] == starts[1:]).all():
        return starts, heads
    return None


def _by_sizes(data: bytes) -> tuple[Ints, NDArray[Any]]:
    starts: list[int] = []
    at, end = 0, len(data)
    while at < end:
        if end - at < FIXED_BYTES:
            raise ProtocolError(f"a pull's body ends with {end - at} bytes that are not a record")
        starts.append(at)
        (size,) = _size_at(data, at)
        if size < FIXED_BYTES:
            raise ProtocolError(f"a pull's body holds a record of {size} bytes at {at}")
        at += size
    if at != end:
        raise ProtocolError(f"the last record of a pull's body lacks {at - end} bytes")
    found = np.array(starts, np.int64)
    heads = read_at(data, found, HEAD)
    if not _are_marked(heads).all():
        raise ProtocolError("a pull's body holds bytes without the mark of a message")
    return found, heads


def _are_marked(heads: NDArray[Any]) -> NDArray[np.bool_]:
    marks = heads["mark"].astype(np.uint32)
    marked: NDArray[np.bool_] = (marks == MAGIC_V1) | (marks == MAGIC_V2)
    return marked


def read_at(data: bytes | NDArray[np.uint8], at: Ints, kind: np.dtype[Any]) -> NDArray[Any]:
    """The bytes at each of these places, read as `kind`: one copy, no loop."""
    require(at + kind.itemsize <= len(data))
    if not len(at):
        return np.zeros(0, kind)
    every = np.ndarray(
        (len(data) - kind.itemsize + 1,), f"V{kind.itemsize}", buffer=data, strides=(1,)
    )
    return every[at].view(kind)


def chosen(heads: NDArray[Any], which: NDArray[np.bool_]) -> NDArray[Any]:
    """Those of the heads; measured: numpy takes ten times as long field by field."""
    return heads.view(f"V{heads.itemsize}")[which].view(heads.dtype)


def require(fits: NDArray[np.bool_]) -> None:
    """Raise ProtocolError unless all of it is true."""
    if not fits.all():
        raise ProtocolError("a pull's body holds a record whose lengths contradict each other")
