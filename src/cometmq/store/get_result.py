"""What reads return: the records and status of a get, and the records of a lookup by key.

Statuses have RocketMQ's names, because they travel as remarks. Java: GetMessageStatus,
GetMessageResult, QueryMessageResult.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class GetStatus(Enum):
    """What a pull found."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MESSAGE_IN_QUEUE = 7


class GetResult(NamedTuple):
    """What one pull gets: `body` holds `count` stored records, one after the other."""

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    body: bytes
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls here


class QueryResult(NamedTuple):
    """The records that a lookup by key found; store time and offset of the newest indexed one."""

    records: list[bytes]
    index_ms: int
    index_phy: int
    is_complete: bool
    """Whether no record was passed over because too many have the key."""
