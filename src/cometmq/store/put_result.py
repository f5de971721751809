"""What a put returns: a status and the assigned offsets.

Statuses have RocketMQ's names, because they travel as remarks. Java: PutMessageStatus,
PutMessageResult.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class PutStatus(Enum):
    """What became of a message. PUT_OK, FLUSH_ and SLAVE_ statuses mean that it is stored."""

    PUT_OK = 0
    FLUSH_DISK_TIMEOUT = 1
    SERVICE_NOT_AVAILABLE = 2
    MESSAGE_ILLEGAL = 3
    PROPERTIES_SIZE_EXCEEDED = 4
    OS_PAGE_CACHE_BUSY = 5
    FLUSH_SLAVE_TIMEOUT = 6
    SLAVE_NOT_AVAILABLE = 7


class PutResult(NamedTuple):
    """Where a message went. Offsets are -1 when `status` says that it was refused."""

    status: PutStatus
    phy_offset: int
    size: int
    queue_offset: int
    store_ms: int
