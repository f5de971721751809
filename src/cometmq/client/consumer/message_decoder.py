"""Decodes the body of a pull into messages for handlers.

Inflates bodies and hides the broker's checksum property; knows nothing of queues and offsets.
Invariant: decoding stops at the first record that cannot be read and keeps those before it; a body
that cannot be inflated is left as stored, and its sys_flag still says so (compressed bit).
Java: MessageDecoder.decodesBatch
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import InvalidMessage, ProtocolError, SettingsError
from cometmq.model.message import MessageExt, Property
from cometmq.wire.compression import inflate
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import log_record_batch_decoder as stored_run
from cometmq.wire.records import properties as props
from cometmq.wire.records import sysflag

if TYPE_CHECKING:
    from collections.abc import Collection

    from cometmq.wire.records.log_record import StoredRecord

_TAGS = Property.TAGS.encode()
_RETRY_TOPIC = Property.RETRY_TOPIC.encode()


def decode_messages(body: bytes | memoryview, broker_name: str) -> tuple[list[MessageExt], bool]:
    """Decode a pull's body: its messages, in order, and whether all of it could be read."""
    found: list[MessageExt] = []
    read, size = 0, len(body)
    while read < size:
        plain, read = stored_run.messages(body, read, broker_name)
        if found:
            found += plain
        else:
            found = plain
        if read < size:  # one that is not plain, or none at all
            body = bytes(body)
            try:
                record = stored.decode(body, read)
            except ProtocolError:
                return found, False
            found.append(decode_message(record, broker_name))
            read += record.size
    return found, True


def decode_message(record: StoredRecord, broker_name: str) -> MessageExt:
    """Convert a record into a message, with its body inflated."""
    body, flags = record.body, record.sys_flag
    if flags & sysflag.COMPRESSED:
        body, flags = _inflated(body, flags)
    return MessageExt(
        record.topic,
        record.queue_id,
        record.queue_offset,
        body,
        stored.shown_properties(record.properties),
        record.reconsume_times,
        record.flag,
        flags,
        record.phy_offset,
        record.born_ms,
        record.born_host,
        record.store_ms,
        record.store_host,
        record.prepared_offset,
        broker_name,
    )


def with_tags(messages: list[MessageExt], tags: Collection[bytes]) -> list[MessageExt]:
    """The messages whose tag is one of `tags`: the broker has compared hash codes only."""
    return [message for message in messages if props.find(message.raw_properties, _TAGS) in tags]


def restore_topics(messages: list[MessageExt]) -> None:
    """Give messages of a retry topic the topic they were first sent to."""
    for message in messages:
        topic = props.find(message.raw_properties, _RETRY_TOPIC)
        if topic:
            message.topic = topic.decode("utf-8", "replace")


def _inflated(body: bytes, flags: int) -> tuple[bytes, int]:
    try:
        return inflate(body, flags), flags & ~sysflag.COMPRESSED
    except (InvalidMessage, SettingsError):
        return body, flags
