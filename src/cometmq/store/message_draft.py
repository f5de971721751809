"""The message that the store is given: a draft, before offsets and store time are assigned.

Java: MessageExtBrokerInner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cometmq.wire.records.log_record import StoredRecord


class MessageDraft:
    """A message before it is stored: all fields but those that the store assigns.

    `born_host` is the packed IP and its port as i32, 8 or 20 bytes. `properties` are raw. The store
    sets the IPv6 bits of `sys_flag`. `was_stored`: this is a copy of a stored message, and the
    limit for bodies does not apply.
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
    def copy_of(
        cls, record: StoredRecord, topic: str, queue_id: int, properties: bytes
    ) -> MessageDraft:
        """A draft of a stored message for another queue, with other properties."""
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


def is_topic(topic: str) -> bool:
    """Whether a record can hold the name; only retry and dead-letter topics may be long."""
    if len(topic) <= 127:
        return bool(topic)
    return len(topic) <= 255 and topic.startswith(("%RETRY%", "%DLQ%"))
