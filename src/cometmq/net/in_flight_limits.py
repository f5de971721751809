"""Hot. How many requests of one server are unanswered and how many answers unread, and the bounds.

One per server; every connection counts into it. Refuses to know what is done at a bound:
`net/dispatcher` answers SYSTEM_BUSY, `net/connection` cuts who does not read.
Java: NettyServerConfig.serverAsyncSemaphoreValue.
"""

from __future__ import annotations


class InFlight:
    """Counts over all connections of one server, and their bounds. Belongs to one loop."""

    __slots__ = ("connection_max", "total", "total_max", "unread", "unread_max")

    def __init__(self, connection_max: int, total_max: int, unread_max: int) -> None:
        self.connection_max, self.total_max, self.unread_max = connection_max, total_max, unread_max
        self.total = 0
        self.unread = 0
        """Bytes written to connections that do not read them."""
