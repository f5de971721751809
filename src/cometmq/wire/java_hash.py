"""Java's `String.hashCode`: tag codes, index keys, fingerprints and hash selectors use it.

Runs over UTF-16 units, h = 31 h + unit in 32 bits, signed. Vectors: TagA 2598919, "*" 42.
"""

from __future__ import annotations


def java_hash(text: str) -> int:
    """Return the hash, between -2**31 and 2**31 - 1."""
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = value * 31 + unit
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for high, low in zip(units[::2], units[1::2], strict=True):
            value = value * 31 + (high << 8 | low)
    value &= 0xFFFFFFFF
    return value - 0x100000000 if value >= 0x80000000 else value
