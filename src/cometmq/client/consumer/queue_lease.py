"""A broker's answer to a request for a queue's lock: until when it is ours, over which connection.

Invariant: a lock ends with the connection over which it was asked for, since the broker may give it
to another member from then on.
Java: ProcessQueue.isLocked, isLockExpired
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cometmq.net.channel import Channel


class QueueLease(NamedTuple):
    """A lock as its holder sees it. Any thread may ask whether it is valid."""

    until: float
    """Until when (loop time) the lock is certainly ours; 0 when another member has it."""
    channel: Channel | None = None
    """The connection that must stay open meanwhile."""

    def is_valid(self, now: float) -> bool:
        """Whether the lock is certainly ours at `now` (loop time)."""
        return now < self.until and (self.channel is None or not self.channel.is_closed)


REFUSED = QueueLease(0.0)
"""Another member has the lock."""
FOR_EVER = QueueLease(inf)
"""The lock of a queue that is not shared out."""
