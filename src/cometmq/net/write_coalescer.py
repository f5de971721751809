"""Hot. Joins what is sent to a connection within one iteration of the loop into one write.

Refuses to know what the bytes mean. Invariant: bytes leave in the order in which they were given.
Java: none; Netty flushes each answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from cometmq.net.connection import Connection


CONNECTIONS_MAX = 64
"""So many connections wait at most: what they hold is bounded then, as each one's is."""


class WriteCoalescer:
    """The connections of one server that have something to write at the end of this iteration."""

    __slots__ = ("_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[Connection] = []

    def schedule(self, connection: Connection) -> None:
        """Have the connection flushed before the loop waits again; once an iteration."""
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting.append(connection)
        if len(self._waiting) >= CONNECTIONS_MAX:
            self.flush()

    def flush(self) -> None:
        """Write now what all scheduled connections hold."""
        waiting, self._waiting = self._waiting, []
        for connection in waiting:
            connection.flush()
