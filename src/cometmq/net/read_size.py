"""Hot. How much one read from a socket may bring.

asyncio asks for 256 KiB at a time, which the C library takes from the system and gives back for
every single read: three system calls and a page fault each time. 64 KiB come from its own heap.
Refuses to know frames. Java: none; Netty sizes its receive buffer by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

CHUNK_BYTES = 64 * 1024
"""Enough for hundreds of sends; larger chunks were measured to be no faster."""


def bound_reads(transport: asyncio.BaseTransport) -> None:
    """Have a transport read at most `CHUNK_BYTES` at a time, where its loop lets us say so.

    uvloop reads into one buffer of its own and is left alone.
    """
    if hasattr(transport, "max_size"):
        transport.max_size = CHUNK_BYTES
