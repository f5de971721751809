"""Decodes the body of a pull into messages for handlers.

Inflates bodies and hides the broker's checksum property; knows nothing of queues and offsets.
Invariant: decoding stops at the first record that cannot be read and keeps those before it; a body
whose checksum is wrong, that cannot be inflated, or would be too large, is left as stored, and its
message is unreadable.
Java: MessageDecoder.decodesBatch
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from cometmq.errors import InvalidMessage, ProtocolError, SettingsError
from cometmq.model.message import MessageExt, Property, UnreadableMessage
from cometmq.wire.compression import BYTES_MAX, inflate
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import log_record_batch_decoder as stored_run
from cometmq.wire.records import properties as props
from cometmq.wire.records import sysflag

if TYPE_CHECKING:
    from collections.abc import Collection

    from cometmq.wire.records.log_record import StoredRecord

_TAGS = Property.TAGS.encode()
_RETRY_TOPIC = Property.RETRY_TOPIC.encode()


_INFLATED_TOGETHER = 4
"""How many bodies of the largest size one pull may inflate; the others come with the next pull."""


class DecodedMessages(NamedTuple):
    """What a pull's body held: its messages, in order."""

    messages: list[MessageExt]
    is_whole: bool
    """Whether all of it was decoded; the rest must be pulled again."""
    has_unreadable: bool = False
    """Whether an `UnreadableMessage` is among them."""


def decode_messages(
    body: bytes | memoryview, broker_name: str, inflated_bytes_max: int = BYTES_MAX
) -> DecodedMessages:
    """Decode a pull's body; no message of it becomes larger than `inflated_bytes_max`.

    All that are inflated together become no larger than four times that.
    """
    found: list[MessageExt] = []
    room, has_unreadable = _INFLATED_TOGETHER * inflated_bytes_max, False
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
                return DecodedMessages(found, is_whole=False, has_unreadable=has_unreadable)
            is_compressed = record.sys_flag & sysflag.COMPRESSED
            if is_compressed and room < inflated_bytes_max:
                assert found, "the first body of a pull always has room"
                return DecodedMessages(found, is_whole=False, has_unreadable=has_unreadable)
            message = decode_message(record, broker_name, inflated_bytes_max)
            if is_compressed:
                room -= inflated_bytes_max if message.unreadable else len(message.body)
            has_unreadable = has_unreadable or bool(message.unreadable)
            found.append(message)
            read += record.size
    return DecodedMessages(found, is_whole=True, has_unreadable=has_unreadable)


def decode_message(
    record: StoredRecord, broker_name: str, inflated_bytes_max: int = BYTES_MAX
) -> MessageExt:
    """Convert a record into a message, with its body inflated.

    An `UnreadableMessage` where that cannot be done, or makes more than `inflated_bytes_max`, or
    where the body is not what its checksum says.
    """
    body, flags, unreadable = record.body, record.sys_flag, ""
    is_damaged = crc32(body) & stored.CRC_MASK != record.body_crc
    if is_damaged:
        unreadable = "the checksum of its body is wrong: it was damaged at its broker or on its way"
    elif flags & sysflag.COMPRESSED:
        try:
            body = inflate(body, flags, inflated_bytes_max)
            flags &= ~sysflag.COMPRESSED
        except (InvalidMessage, SettingsError) as error:
            unreadable = str(error)
    fields = (
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
    if not unreadable:
        return MessageExt(*fields)
    message = UnreadableMessage(*fields)
    message.unreadable = unreadable
    message.is_damaged = is_damaged
    return message


def with_tags(messages: list[MessageExt], tags: Collection[bytes]) -> list[MessageExt]:
    """The messages whose tag is one of `tags`: the broker has compared hash codes only."""
    return [message for message in messages if props.find(message.raw_properties, _TAGS) in tags]


def restore_topics(messages: list[MessageExt]) -> None:
    """Give messages of a retry topic the topic they were first sent to."""
    for message in messages:
        topic = props.find(message.raw_properties, _RETRY_TOPIC)
        if topic:
            message.topic = topic.decode("utf-8", "replace")
