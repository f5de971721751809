"""Hot. How many requests of one server are unanswered, and how many may be.

One per server; every connection counts into it. Refuses to know what is done when it is full:
`net/edge` answers SYSTEM_BUSY. Java: NettyServerConfig.serverAsyncSemaphoreValue.
"""

from __future__ import annotations


class InFlight:
    """A count over all connections of one server, and its two bounds. Belongs to one loop."""

    __slots__ = ("peer_max", "total", "total_max")

    def __init__(self, peer_max: int, total_max: int) -> None:
        self.peer_max, self.total_max = peer_max, total_max
        self.total = 0
