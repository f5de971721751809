"""Messages of the parking topic: how a parked message is written, read and restored.

Owns which properties it keeps and gets; knows nothing of when a key is parked and who reads.
Invariant: a message that is restored has the id, keys, tag and place that it had in its queue; a
copy has an id of its own, made of its old one, the same whenever it is made again.
Java: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.client.producer.message_checks import PROPERTIES_BYTES_MAX
from cometmq.client.producer.prepared_message import PreparedMessage, prepare_retry
from cometmq.model.message import MessageExt, Property, UnreadableMessage
from cometmq.model.parking import COPY_PROPERTY, RECORD_PROPERTY, ParkedMessage
from cometmq.rules.failures.dead_letter_properties import fit_property_pairs
from cometmq.rules.failures.parked_keys import StoredFacts
from cometmq.wire.bodies.parking import (
    decode_parking_record,
    encode_copy_mark,
    encode_parking_record,
)
from cometmq.wire.records import properties, sysflag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cometmq.client.producer.producer_options import ProducerOptions
    from cometmq.model.parking import ParkingRecord, Selection
    from cometmq.wire.bodies.parking import CopyMark

FOLLOWS = "it follows a message of its key that is parked"
_BROKERS_BYTES = 512
"""What brokers write beside a message's own properties."""
_OF_DELIVERY = {
    Property.TRAN_MSG,
    Property.DELAY,
    Property.WAIT,
    Property.REAL_TOPIC,
    Property.REAL_QID,
    Property.RECONSUME_TIME,
    Property.MAX_RECONSUME_TIMES,
    Property.DLQ_DIVERTED,
    RECORD_PROPERTY,
}
"""Properties of how a message came, which mean nothing where it goes."""
_OF_FAILURE = {
    Property.DLQ_REASON,
    Property.DLQ_ATTEMPTS,
    Property.DLQ_ORIGIN_TOPIC,
    Property.DLQ_ORIGIN_QUEUE_ID,
    Property.DLQ_ORIGIN_OFFSET,
    Property.DLQ_ORIGIN_MESSAGE_ID,
    Property.DLQ_FAILED_AT,
}
_OF_RETRY = {Property.RETRY_TOPIC, Property.ORIGIN_MESSAGE_ID, Property.UNIQ_KEY, COPY_PROPERTY}


def parked_form(
    topic: str,
    message: MessageExt,
    record: ParkingRecord,
    reason: str,
    now_ms: int,
    options: ProducerOptions,
) -> PreparedMessage:
    """A message as it goes to the parking topic, with where it comes from and why it is there."""
    pairs = _own_pairs(message, _OF_DELIVERY | _OF_FAILURE)
    pairs[RECORD_PROPERTY] = encode_parking_record(record)
    pairs[Property.DLQ_REASON] = reason
    pairs[Property.DLQ_ATTEMPTS] = str(max(message.reconsume_times, 0) + record.has_failed)
    pairs[Property.DLQ_ORIGIN_TOPIC] = message.topic
    pairs[Property.DLQ_ORIGIN_QUEUE_ID] = str(record.queue_id)
    pairs[Property.DLQ_ORIGIN_OFFSET] = str(record.offset)
    pairs[Property.DLQ_ORIGIN_MESSAGE_ID] = message.msg_id
    pairs[Property.DLQ_FAILED_AT] = str(now_ms)
    fitting, _ = fit_property_pairs(pairs, PROPERTIES_BYTES_MAX - _BROKERS_BYTES)
    return prepare_retry(topic, message, fitting, options, now_ms)


def control_form(
    topic: str, record: ParkingRecord, now_ms: int, body: bytes = b""
) -> PreparedMessage:
    """A record that is no message; its body is that of a repair, else the name of its step."""
    raw = properties.encode({RECORD_PROPERTY: encode_parking_record(record)}).decode()
    return PreparedMessage(topic, body or record.step.value.encode(), 0, 0, raw, "", now_ms, 0)


def read_record(message: MessageExt) -> tuple[ParkingRecord, StoredFacts] | None:
    """What a message of the parking topic says; None where it says nothing that we know."""
    said = message.properties
    record = decode_parking_record(said.get(RECORD_PROPERTY, ""))
    if record is None:
        return None
    attempts = said.get(Property.DLQ_ATTEMPTS, "")
    return record, StoredFacts(
        stored_ms=message.store_ms,
        msg_id=said.get(Property.DLQ_ORIGIN_MESSAGE_ID, message.msg_id),
        reason=said.get(Property.DLQ_REASON, ""),
        attempts=int(attempts) if attempts.isdecimal() else 0,
    )


def restore(stored: MessageExt, parked: ParkedMessage, repaired: bytes | None) -> MessageExt:
    """The message as its handler knows it, from the record that has it."""
    pairs = _own_pairs(stored, _OF_DELIVERY | _OF_FAILURE)
    message = type(stored)(
        stored.properties.get(Property.DLQ_ORIGIN_TOPIC, parked.topic),
        parked.queue_id,
        parked.offset,
        stored.body,
        properties.encode(pairs),
        parked.attempts,
        stored.flag,
        stored.sys_flag,
        stored.phy_offset,
        stored.born_ms,
        stored.born_host,
        stored.store_ms,
        stored.store_host,
        stored.prepared_offset,
        stored.broker_name,
    )
    if isinstance(message, UnreadableMessage):
        assert isinstance(stored, UnreadableMessage), "a message is of the kind it was made of"
        message.unreadable, message.is_damaged = stored.unreadable, stored.is_damaged
    return message if repaired is None else with_body(message, repaired)


def with_body(message: MessageExt, body: bytes) -> MessageExt:
    """The same message with another body, which is not compressed."""
    return MessageExt(
        message.topic,
        message.queue_id,
        message.queue_offset,
        body,
        message.raw_properties,
        message.reconsume_times,
        message.flag,
        message.sys_flag & ~sysflag.COMPRESSED,
        message.phy_offset,
        message.born_ms,
        message.born_host,
        message.store_ms,
        message.store_host,
        message.prepared_offset,
        message.broker_name,
    )


def copy_form(
    topic: str,
    message: MessageExt,
    new_id: str,
    mark: CopyMark | None,
    now_ms: int,
    options: ProducerOptions,
    more: Mapping[str, str] | None = None,
) -> PreparedMessage:
    """A message as it is sent to a topic again, with an id of its own and `more` properties."""
    pairs = _own_pairs(message, _OF_DELIVERY | _OF_FAILURE | _OF_RETRY)
    pairs |= {Property.UNIQ_KEY: new_id, **(more or {})}
    if mark is not None:
        pairs[COPY_PROPERTY] = encode_copy_mark(mark)
    return prepare_retry(topic, message, pairs, options, now_ms)


def letter_facts(letter: MessageExt) -> ParkedMessage:
    """A dead letter in the form in which parked messages are chosen and reported."""
    said = letter.properties
    attempts = said.get(Property.DLQ_ATTEMPTS, "")
    return ParkedMessage(
        topic=letter.topic,
        queue_id=letter.queue_id,
        offset=letter.queue_offset,
        order=letter.queue_offset,
        key=letter.sharding_key or "",
        position=letter.queue_offset,
        msg_id=said.get(Property.DLQ_ORIGIN_MESSAGE_ID, letter.msg_id),
        reason=said.get(Property.DLQ_REASON, ""),
        attempts=int(attempts) if attempts.isdecimal() else 0,
        parked_ms=letter.store_ms,
        has_failed=True,
        broker_name=letter.broker_name,
    )


def takes_letter(wanted: Selection, letter: MessageExt) -> bool:
    """Whether a dead letter is meant; its key is its sharding key, or one of its keys."""
    facts = letter_facts(letter)
    if wanted.takes(facts):
        return True
    return wanted.key in letter.keys and wanted._replace(key=None).takes(facts)


def _own_pairs(message: MessageExt, without: set[str]) -> dict[str, str]:
    return {
        name: text
        for name, text in message.properties.items()
        if name not in without and not name.startswith("TIMER_")
    }
