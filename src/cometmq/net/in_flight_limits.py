"""Hot. The limits on a server's unanswered requests and unread answers, and their counts.

One per server; every connection counts into it. At a limit `net/dispatcher` answers SYSTEM_BUSY,
and `net/connection` closes a connection whose peer does not read.
Java: NettyServerConfig.serverAsyncSemaphoreValue.
"""

from __future__ import annotations


class InFlightLimits:
    """Counts over all connections of one server, and their limits. Belongs to one loop."""

    __slots__ = (
        "bytes_max",
        "connection_max",
        "total",
        "total_max",
        "unread",
        "unread_max",
        "waiting_bytes",
    )

    def __init__(
        self, connection_max: int, total_max: int, unread_max: int, bytes_max: int
    ) -> None:
        self.connection_max = connection_max
        self.total_max = total_max
        self.unread_max = unread_max
        self.bytes_max = bytes_max
        self.total = 0
        self.waiting_bytes = 0
        """Bodies of requests whose handlers wait for something."""
        self.unread = 0
        """Bytes written to connections that do not read them."""
