"""Hot. The size of one read from a socket.

asyncio allocates 256 KiB for each read. The C library maps and unmaps so large a block every time:
three system calls and a page fault a read. 64 KiB come from its heap.
Java: none; Netty sizes its receive buffer by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

CHUNK_BYTES = 64 * 1024
"""Enough for hundreds of sends; larger chunks were measured to be no faster."""


def bound_reads(transport: asyncio.BaseTransport) -> None:
    """Limit a transport's reads to `CHUNK_BYTES`; uvloop uses one buffer of its own."""
    if hasattr(transport, "max_size"):
        transport.max_size = CHUNK_BYTES
