"""The key index as bytes: the head of a file, its slots, its entries, and the hash of a key.

Layout, big-endian. Head, 40 bytes: begin_ms i64, end_ms i64, begin_phy i64, end_phy i64, slots used
i32, next entry i32. Then the slots, i32 each: the newest entry whose hash falls there, 0 for none.
Then the entries, 20 bytes each, number 0 never used: hash i32, phy_offset i64, seconds since
begin_ms i32, the entry before it in the same slot i32.
What is hashed: `topic#UNIQ_KEY`, `topic#key` for each word of KEYS, `topic#T#tag` (since 5.5).
Java: IndexHeader, IndexFile, IndexService.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from cometmq.wire.java_hash import java_hash

HEAD = Struct(">qqqqii")
SLOT = Struct(">i")
ENTRY = Struct(">iqii")
HEAD_BYTES, SLOT_BYTES, ENTRY_BYTES = HEAD.size, SLOT.size, ENTRY.size
SECONDS_MAX = 0x7FFFFFFF


class Head(NamedTuple):
    """The head of an index file. `number` is that of the next entry; the first is 1."""

    begin_ms: int
    end_ms: int
    begin_phy: int
    end_phy: int
    used: int
    number: int


def decode_head(raw: bytes) -> Head:
    """The head in the first 40 bytes; a number that was never written reads as 1."""
    head = Head(*HEAD.unpack_from(raw))
    return head if head.number > 0 else head._replace(number=1)


def fold(unsigned: int) -> int:
    """The hash as the index keeps it, from Java's 32 bits read as unsigned: never negative."""
    if unsigned < 0x80000000:
        return unsigned
    return -unsigned & 0x7FFFFFFF


def key_hash(topic: str, key: str) -> int:
    """What the index files a key under, 0 to 2^31 - 1."""
    return fold(java_hash(f"{topic}#{key}") & 0xFFFFFFFF)


def tag_key(tag: str) -> str:
    """A tag as the key it is indexed by."""
    return f"T#{tag}"
