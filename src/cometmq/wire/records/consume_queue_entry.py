"""One entry of a consume queue: the place of a record, its size, and its tag code.

Layout, big-endian, 20 bytes: phy_offset i64, size i32, tags_code i64. Entry number i of a queue
begins at byte i * 20. Fillers before a queue's first message have size 2,147,483,647.
Java: ConsumeQueue.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRY = Struct(">qiq")
SIZE = ENTRY.size
FILLER_SIZE = 0x7FFFFFFF
FILLER = ENTRY.pack(0, FILLER_SIZE, 0)
"""Fills the entries before the first message of a queue that does not start at 0."""


def encode(phy_offset: int, size: int, tags_code: int) -> bytes:
    """The 20 bytes of one entry."""
    return ENTRY.pack(phy_offset, size, tags_code)


def iterate(buffer: bytes) -> Iterator[tuple[int, int, int]]:
    """Each whole entry of the buffer as (phy_offset, size, tags_code)."""
    return ENTRY.iter_unpack(buffer[: len(buffer) - len(buffer) % SIZE])
