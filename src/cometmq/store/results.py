"""What goes into the store and what comes out: drafts, places, statuses, what reads found.

Nouns only. Statuses carry RocketMQ's names, because they travel as remarks.
Java: MessageExtBrokerInner, PutMessageStatus, GetMessageStatus, GetMessageResult.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.wire.records.log_record import StoredRecord


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


class PropertyFilter(NamedTuple):
    """Says by a message's raw properties whether a reader wants it.

    `scan_max` bounds how many messages one read asks about. With `may_stop` a read ends before the
    first message that is not in memory, if it has asked about one at least.
    """

    accepts: Callable[[bytes], bool]
    scan_max: int
    may_stop: bool = False


class MessageDraft:
    """A message on its way into the log: all its fields but those the store gives it.

    `born_host` is the packed IP and its port as i32, 8 or 20 bytes. `properties` are raw. The IPv6
    bits of `sys_flag` are set by the store. `was_stored`: it was taken once, in another queue, and
    is taken again whatever the limit for bodies is by now.
    """

    __slots__ = (
        "body",
        "born_host",
        "born_ms",
        "flag",
        "prepared_offset",
        "properties",
        "queue_id",
        "reconsume_times",
        "sys_flag",
        "topic",
        "was_stored",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes = b"",
        *,
        flag: int = 0,
        sys_flag: int = 0,
        born_ms: int = 0,
        born_host: bytes = bytes(8),
        reconsume_times: int = 0,
        prepared_offset: int = 0,
        was_stored: bool = False,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.flag = flag
        self.sys_flag = sys_flag
        self.born_ms = born_ms
        self.born_host = born_host
        self.reconsume_times = reconsume_times
        self.prepared_offset = prepared_offset
        self.body = body
        self.properties = properties
        self.was_stored = was_stored

    @classmethod
    def again(
        cls, record: StoredRecord, topic: str, queue_id: int, properties: bytes
    ) -> MessageDraft:
        """A stored message on its way into another queue, with other properties."""
        return cls(
            topic,
            queue_id,
            record.body,
            properties,
            flag=record.flag,
            sys_flag=record.sys_flag,
            born_ms=record.born_ms,
            born_host=record.born_host,
            reconsume_times=record.reconsume_times,
            was_stored=True,
        )


class PutResult(NamedTuple):
    """Where a message went. Offsets are -1 when `status` says that it was refused."""

    status: PutStatus
    phy_offset: int
    size: int
    queue_offset: int
    store_ms: int


class GetResult(NamedTuple):
    """One pull's worth: `body` holds `count` stored records, one after the other."""

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    body: bytes
    count: int  # type: ignore[assignment]  # the field's word; nobody counts in this tuple


class QueryResult(NamedTuple):
    """What a lookup by key found: records, and store time and place the index reaches to."""

    records: list[bytes]
    index_ms: int
    index_phy: int


def is_topic(topic: str) -> bool:
    """Whether a record can hold the name; only retry and dead-letter topics may be long."""
    if len(topic) <= 127:
        return bool(topic)
    return len(topic) <= 255 and topic.startswith(("%RETRY%", "%DLQ%"))
