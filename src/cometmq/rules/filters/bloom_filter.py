"""The bit positions of a Bloom filter that RocketMQ stores with each SQL92 subscription.

Its broker drops all of config/consumerFilter.json when they are missing or have another shape, so
they are written as it would write them. Nothing here filters by them. The hash is MurmurHash3
(x64, 128 bits), of which the lower 64 bits are used.
Java: BloomFilter, BloomFilterData.
"""

from __future__ import annotations

from math import ceil, e, log, log2
from struct import unpack_from

_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def shape(error_percent: int = 20, expected: int = 32) -> tuple[int, int]:
    """(bits, positions per entry) for a rate of false positives and a number of entries."""
    assert 0 < error_percent < 100, f"a rate of {error_percent} % is not between 0 and 100"
    assert expected > 0, "a filter has room for at least one entry"
    rate = error_percent / 100
    places = ceil(log(rate) / log(0.5))
    bits = ceil(expected * log2(1 / rate) * log2(e))
    return -(-bits // 8) * 8, places


def bit_positions(text: str, bits: int, places: int) -> list[int]:
    """The bit positions of a text."""
    assert bits > 0, "a filter without bits has no positions"
    hashed = murmur3(text.encode())
    first, second = hashed & 0xFFFFFFFF, hashed >> 32
    found = []
    for index in range(1, places + 1):
        combined = (first + index * second) & 0xFFFFFFFF
        if combined >= 1 << 31:  # negative as a Java int: BloomFilter.calcBitPositions inverts it
            combined ^= 0xFFFFFFFF
        found.append(combined % bits)
    return found


def murmur3(data: bytes) -> int:
    """The lower 64 bits of the hash, with seed 0."""
    h1 = h2 = 0
    whole = len(data) - len(data) % 16
    for at in range(0, whole, 16):
        k1, k2 = unpack_from("<QQ", data, at)
        h1 ^= _first(k1)
        h1 = (_rotated(h1, 27) + h2) * 5 + 0x52DCE729 & _MASK
        h2 ^= _second(k2)
        h2 = (_rotated(h2, 31) + h1) * 5 + 0x38495AB5 & _MASK
    rest = data[whole:]
    h2 ^= _second(int.from_bytes(rest[8:], "little"))
    h1 ^= _first(int.from_bytes(rest[:8], "little"))
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    return _mixed(h1) + _mixed(h2) & _MASK


def _first(part: int) -> int:
    return _rotated(part * _C1 & _MASK, 31) * _C2 & _MASK


def _second(part: int) -> int:
    return _rotated(part * _C2 & _MASK, 33) * _C1 & _MASK


def _rotated(number: int, by: int) -> int:
    return (number << by | number >> 64 - by) & _MASK


def _mixed(number: int) -> int:
    number = (number ^ number >> 33) * 0xFF51AFD7ED558CCD & _MASK
    number = (number ^ number >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return number ^ number >> 33
