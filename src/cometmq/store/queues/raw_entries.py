"""Entries as the files of a consume queue have them, for whoever reads files without their queue.

Where a file was cut within an entry, zeros stand for what is missing, as a start fills it up.
Refuses to know where a queue ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.wire.records.consume_queue_entry import ENTRY, SIZE

if TYPE_CHECKING:
    from cometmq.store.log.mapped_file_queue import MappedFileQueue


def raw_entry(files: MappedFileQueue, number: int) -> tuple[int, int, int]:
    """(phy_offset, size, tags_code) of an entry; zeros where there is none."""
    raw = files.read(number * SIZE, SIZE) if number >= 0 else b""
    found: tuple[int, int, int] = ENTRY.unpack(raw.ljust(SIZE, b"\0"))
    return found


def without_empty_end(raw: bytes) -> bytes:
    """Whole entries up to the last byte that is not zero."""
    length = -(-len(raw.rstrip(b"\0")) // SIZE) * SIZE
    return raw[:length].ljust(length, b"\0")
