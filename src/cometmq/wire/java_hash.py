"""Java's `String.hashCode`: tag codes, index keys, fingerprints and hash selectors use it.

Runs over UTF-16 units, h = 31 h + unit in 32 bits, signed. Vectors: TagA 2598919, "*" 42. Clients
choose how long the text is, so what it takes must not grow faster than the text.
"""

from __future__ import annotations

from operator import mul
from struct import unpack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_MASK = 0xFFFFFFFF
SPAN = 64
"""Units after which a number is cut to 32 bits; to cut it after each takes a third longer."""
_FACTOR = pow(31, SPAN, 1 << 32)
_FACTORS = [pow(31, SPAN - 1 - at, 1 << 32) for at in range(SPAN)]


def java_hash(text: str) -> int:
    """Return the hash, between -2**31 and 2**31 - 1."""
    if text.isascii():
        value = hash_from(0, text.encode("ascii"))
    else:
        raw = text.encode("utf-16-be", "surrogatepass")
        value = hash_from(0, unpack(f">{len(raw) // 2}H", raw))
    return value - 0x100000000 if value >= 0x80000000 else value


def hash_from(value: int, units: Sequence[int]) -> int:
    """Java's hash taken on from `value` over UTF-16 units, as 32 bits without a sign."""
    if len(units) > SPAN:
        whole = len(units) // SPAN * SPAN
        for at in range(0, whole, SPAN):
            value = value * _FACTOR + sum(map(mul, units[at : at + SPAN], _FACTORS)) & _MASK
        units = units[whole:]
    for unit in units:
        value = value * 31 + unit
    return value & _MASK
