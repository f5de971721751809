"""The budget of a server for frames that have begun to come and are not whole yet.

Owns which connections hold how many bytes of such frames, and which of them goes when all together
hold too many: of the address that holds most, the one whose frame began first. An honest frame is
whole soon, so who waits for more pays. Frames below `COUNTED_BYTES` are bounded by the connections.
Called once a chunk that ends within a large frame, never once a message.
Java: none; Netty's buffers are bounded by the process's memory alone.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from cometmq.net.rate_limited_log import RateLimitedLog

COUNTED_BYTES = 64 * 1024
"""What one read brings; a frame that holds less than that is not counted."""


class FrameOwner(Protocol):
    """A connection, as far as it matters here."""

    @property
    def address(self) -> str:
        """The host that it comes from."""
        ...

    def drop(self) -> None:
        """Close it at once; it is forgotten when it is gone."""
        ...


class UnfinishedFrames:
    """Counts over all connections of one server. Belongs to its loop."""

    def __init__(self, bytes_max: int, warnings: RateLimitedLog) -> None:
        self.total = 0
        self._bytes_max = bytes_max
        self._warnings = warnings
        self._sizes: dict[FrameOwner, int] = {}
        """In the order in which their frames began."""
        self._by_address: defaultdict[str, int] = defaultdict(int)

    def note(self, owner: FrameOwner, size: int) -> None:
        """Take note of how many bytes a frame holds; 0 when it is whole or its connection gone."""
        more = size - self._sizes.get(owner, 0)
        if not size:
            self._sizes.pop(owner, None)
        else:
            self._sizes[owner] = size
        self.total += more
        self._by_address[owner.address] += more
        if not self._by_address[owner.address]:
            del self._by_address[owner.address]
        assert self.total >= 0, "bytes were taken back twice"
        while self.total > self._bytes_max:
            self._drop_one()

    def _drop_one(self) -> None:
        address = max(self._by_address, key=self._by_address.__getitem__)
        oldest = next(owner for owner in self._sizes if owner.address == address)
        size, count = self._sizes[oldest], len(self._sizes)
        self._warnings.warning(
            "%d unfinished frames hold more than unfinishedFrameBytesMax, %d bytes: "
            "closing the oldest of %s, which holds %d of its %d",
            count,
            self._bytes_max,
            address,
            size,
            self._by_address[address],
        )
        self.note(oldest, 0)
        oldest.drop()
