"""The layout of an index file: its header, slots and entries, and the hash of a key.

Big-endian. Header, 40 bytes: begin_ms i64, end_ms i64, begin_phy i64, end_phy i64, slots used i32,
next entry i32. Then the slots, i32 each: the number of the newest entry in the slot, 0 for none.
Then the entries, 20 bytes each, number 0 is never used: hash i32, phy_offset i64, seconds since
begin_ms i32, number of the previous entry in the same slot i32.
Hashed are `topic#UNIQ_KEY`, `topic#key` for each word of KEYS, `topic#T#tag` (since 5.5).
Java: IndexHeader, IndexFile, IndexService.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from cometmq.wire.java_hash import java_hash

HEADER = Struct(">qqqqii")
SLOT = Struct(">i")
ENTRY = Struct(">iqii")
HEADER_BYTES, SLOT_BYTES, ENTRY_BYTES = HEADER.size, SLOT.size, ENTRY.size
SECONDS_MAX = 0x7FFFFFFF


class IndexFileHeader(NamedTuple):
    """The header of an index file. `number` is that of the next entry; the first is 1."""

    begin_ms: int
    end_ms: int
    begin_phy: int
    end_phy: int
    used: int
    number: int


def decode_header(raw: bytes) -> IndexFileHeader:
    """The header in the first 40 bytes; a number that was never written reads as 1."""
    head = IndexFileHeader(*HEADER.unpack_from(raw))
    return head if head.number > 0 else head._replace(number=1)


def stored_hash(unsigned: int) -> int:
    """The hash as the index stores it (never negative), from Java's 32 bits read as unsigned."""
    if unsigned < 0x80000000:
        return unsigned
    return -unsigned & 0x7FFFFFFF


def key_hash(topic: str, key: str) -> int:
    """The hash of a key in the index, 0 to 2^31 - 1."""
    return stored_hash(java_hash(f"{topic}#{key}") & 0xFFFFFFFF)


def tag_key(tag: str) -> str:
    """The key that a tag is indexed by."""
    return f"T#{tag}"
