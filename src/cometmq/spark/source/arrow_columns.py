"""Arrow arrays made of numpy's and of slices of bytes, without an object for each value.

Only what the columns of a batch are made of. Measured: `pa.array` of a numpy array takes 6 us a
call, `from_buffers` 2; there are a dozen calls a batch.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_BLOCK = 4096
"""What is kept from batch to batch has a multiple of so many values."""


def column(kind: pa.DataType, values: NDArray[Any]) -> pa.Array:
    """Numbers without nulls, in the machine's own byte order and as wide as `kind`."""
    assert values.itemsize * 8 == kind.bit_width, "as wide as Arrow's type"
    assert values.flags.c_contiguous, "one number after the other"
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def byte_slices(
    kind: pa.DataType, data: bytes | NDArray[np.uint8], starts: Ints, ends: Ints
) -> pa.Array:
    """The slices `data[start:end]`, which must be in order and apart, as one Arrow array."""
    count = len(starts)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0] = 0
    offsets[1::2] = starts
    offsets[2::2] = ends
    # Every second piece is a slice, the others are what lies between.
    pieces = pa.Array.from_buffers(
        kind, 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    return pc.take(pieces, _odd_numbers(_blocks(count)).slice(0, count), boundscheck=False)


def repeated(text: str, count: int) -> pa.Array:
    """A text so many times."""
    return _repetition(text, _blocks(count)).slice(0, count)


def _blocks(count: int) -> int:
    return -(-count // _BLOCK)


@lru_cache(maxsize=64)
def _repetition(text: str, blocks: int) -> pa.Array:
    return pa.repeat(text, blocks * _BLOCK)


@lru_cache(maxsize=64)
def _odd_numbers(blocks: int) -> pa.Array:
    return pa.array(np.arange(1, 2 * blocks * _BLOCK, 2, dtype=np.int32))
