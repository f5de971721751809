"""Locks of queues as client and broker speak of them: what ends one, who holds one."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class EarlyUnlockCause(StrEnum):
    """What ends a lock before its time, beside its client's unlock."""

    LEAVING = "LEAVING"
    """The client leaves the group: what every client of RocketMQ means."""
    CONNECTION = "CONNECTION"
    """The connection ends, too: the client begins nothing after that."""
    TIME = "TIME"
    """Nothing: the client goes, but one of its handlers is still at work."""


class LockHolder(NamedTuple):
    """Who holds a lock."""

    client_id: str
    held_ms: int
    """How long they have had it."""
    left_ms: int
    """How long they keep it without asking again."""
