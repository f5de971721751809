"""Hot. Joins what is sent to a peer within one tick of the loop into one write.

Refuses to know what the bytes mean. Invariant: bytes leave in the order in which they were given.
Java: none; Netty flushes each answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from cometmq.net.peer import Peer


PEERS_MAX = 64
"""So many peers wait at most: what they hold is bounded then, as each one's is."""


class Outbox:
    """The peers of one server that have something to write at the end of this tick."""

    __slots__ = ("_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[Peer] = []

    def mark(self, peer: Peer) -> None:
        """Have the peer flushed before the loop waits again. A peer marks itself once a tick."""
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting.append(peer)
        if len(self._waiting) >= PEERS_MAX:
            self.flush()

    def flush(self) -> None:
        """Write now what all marked peers hold."""
        waiting, self._waiting = self._waiting, []
        for peer in waiting:
            peer.flush()
