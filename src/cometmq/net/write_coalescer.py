"""Hot. Coalesces what is sent on a connection within one loop iteration into one write.

Invariant: bytes leave in the order in which they were given. Java: none; Netty flushes each answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio


CONNECTIONS_MAX = 64
"""Most connections that wait for a flush: this bounds the bytes that they hold together."""


class BufferedWriter(Protocol):
    """A connection, as far as it matters here."""

    def flush(self) -> None:
        """Write what waits."""
        ...


class WriteCoalescer:
    """The connections of one server to be flushed at the end of this loop iteration."""

    __slots__ = ("_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[BufferedWriter] = []

    def schedule(self, connection: BufferedWriter) -> None:
        """Have the connection flushed before the loop waits again; once an iteration."""
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting.append(connection)
        if len(self._waiting) >= CONNECTIONS_MAX:
            self.flush()

    def flush(self) -> None:
        """Flush all scheduled connections now."""
        waiting, self._waiting = self._waiting, []
        for connection in waiting:
            connection.flush()
