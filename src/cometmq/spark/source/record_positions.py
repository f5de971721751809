"""Where records begin in the bytes that pulls brought, found for all of them at once.

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
_HEAD = np.dtype([("size", ">i4"), ("mark", ">u4")])
_size_at = Struct(">i").unpack_from


def record_starts(data: bytes) -> Ints:
    """Where each record of some pulls' bodies begins; raises ProtocolError for wrong sizes."""
    if len(data) < FIXED_BYTES:
        return _by_sizes(data)
    (size,) = _size_at(data)
    starts: Ints | None = None
    if size >= FIXED_BYTES and not len(data) % size:
        starts = _if_chained(data, np.arange(0, len(data), size))
    if starts is None and size <= _SMALL_BYTES:
        found = np.flatnonzero(np.frombuffer(data, np.uint8) == _MARK_BYTE) - 4
        starts = _if_chained(data, found[(found >= 0) & (found <= len(data) - FIXED_BYTES)])
    return _by_sizes(data) if starts is None else starts


def _if_chained(data: bytes, starts: Ints) -> Ints | None:
    """Those of these places that have a mark; None where they are not all records of `data`."""
    heads = read_at(data, starts, _HEAD)
    is_marked = _are_marked(heads)
    if not is_marked.all():
        starts, heads = starts[is_marked], heads[is_marked]
    sizes = heads["size"].astype(np.int64)
    ends = starts + sizes
    is_chain = len(starts) and starts[0] == 0 and ends[-1] == len(data)
    if is_chain and (sizes >= FIXED_BYTES).all() and (ends[:-1] == starts[1:]).all():
        return starts
    return None


def _by_sizes(data: bytes) -> Ints:
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
    if not _are_marked(read_at(data, found, _HEAD)).all():
        raise ProtocolError("a pull's body holds bytes without the mark of a message")
    return found


def _are_marked(heads: NDArray[Any]) -> NDArray[np.bool_]:
    marks = heads["mark"]
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


def require(fits: NDArray[np.bool_]) -> None:
    """Raise ProtocolError unless all of it is true."""
    if not fits.all():
        raise ProtocolError("a pull's body holds a record whose lengths contradict each other")
