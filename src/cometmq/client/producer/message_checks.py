"""Checks messages by RocketMQ's rules before they are sent.

Owns the checks and their error texts; refuses to change the message. Invariant: no RocketMQ broker
refuses the form of a message that passes here.
Java: Validators.checkMessage, Message.putUserProperty, MessageBatch.generateFromList
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cometmq.errors import ClientError, InvalidMessage
from cometmq.model.message import RESERVED_PROPERTIES, Message
from cometmq.model.topic import RETRY_PREFIX, SEND_FORBIDDEN_TOPICS
from cometmq.rules.filters.tag_expressions import is_unnameable
from cometmq.rules.name_validation import topic_name_problem

if TYPE_CHECKING:
    from collections.abc import Sequence

PROPERTIES_BYTES_MAX = 32_767


def check_topic(topic: str) -> None:
    """Raise InvalidMessage unless a message may be sent to the topic."""
    problem = (
        topic_name_problem(topic) if isinstance(topic, str) else f"the topic {topic!r} is no text"
    )
    if problem is None and topic in SEND_FORBIDDEN_TOPICS:
        problem = f"the topic {topic} belongs to RocketMQ itself; nothing may be sent to it"
    if problem:
        raise InvalidMessage(problem)


def check_kind(message: object) -> None:
    """Raise InvalidMessage unless it is a message for a topic, whatever else is in it."""
    if not isinstance(message, Message):
        raise InvalidMessage(
            f"what is sent must be a Message, as in Message('topic', b'body'), not {message!r:.80}"
        )
    if not isinstance(message.topic, str):
        raise InvalidMessage(f"the topic {message.topic!r} is no text")


def message_list(messages: Iterable[Message]) -> list[Message]:
    """Several messages as a list; raises InvalidMessage when they are something else."""
    if isinstance(messages, Message) or not isinstance(messages, Iterable):
        raise InvalidMessage(f"messages must be a list of Message, not {messages!r:.80}")
    found = list(messages)
    for message in found:
        check_kind(message)
    return found


def check_message(message: Message, body_bytes_max: int) -> None:
    """Raise InvalidMessage unless the message may be sent; its topic is checked elsewhere."""
    body = message.body
    if not isinstance(body, bytes):
        raise InvalidMessage(
            f"the body of a message for {message.topic} is {type(body).__name__}; it must be "
            "bytes, as text.encode() gives"
        )
    if not body:
        raise InvalidMessage(f"the body of a message for {message.topic} is empty")
    if len(body) > body_bytes_max:
        raise InvalidMessage(
            f"the body of a message for {message.topic} has {len(body)} bytes; "
            f"the limit is {body_bytes_max}"
        )
    if message.properties:
        if not isinstance(message.properties, Mapping):
            raise InvalidMessage(f"properties must be a dict, not {message.properties!r:.80}")
        for name, value in message.properties.items():
            _check_property(name, value)
    _check_number("flag", message.flag, -2_147_483_648, 2_147_483_647)
    _check_number("delay_level", message.delay_level, 0, 1_000_000)
    _check_due(message.due, message.delay_level)
    _check_flag("wait_store_ok", message.wait_store_ok)
    _check_names(message)


def _check_names(message: Message) -> None:
    """Check the tag and the keys, by which messages are found."""
    for name, text in (("tags", message.tags), ("sharding_key", message.sharding_key)):
        if text is not None:
            _check_text(name, text)
    if message.tags is not None:
        check_tag(message.tags)
    if message.keys:
        _check_text("keys", message.keys)


def check_tag(tag: str) -> None:
    """Raise InvalidMessage for a tag that no expression of any client can name."""
    if is_unnameable(tag):
        raise InvalidMessage(
            f"the tag {tag!r} is one that nobody can subscribe to: in expressions '||' parts tags, "
            "blanks around them are dropped, and '*' means all"
        )


def check_timeout(timeout_s: object) -> None:
    """Raise ClientError unless it is a time to wait."""
    if type(timeout_s) not in (int, float) or not timeout_s > 0:  # type: ignore[operator]
        if isinstance(timeout_s, bytes):
            raise ClientError(
                "what is sent must be one Message, as in send(Message('topic', b'body')); a topic "
                "and a body by themselves are none"
            )
        raise ClientError(
            f"timeout_s is {timeout_s!r}; it must be a number of seconds, more than 0"
        )


def check_batch(messages: Sequence[Message]) -> None:
    """Raise InvalidMessage unless the messages may travel in batch frames of one topic."""
    for message in messages:
        if message.topic != messages[0].topic:
            raise InvalidMessage("send_batch takes messages of one topic; send_many takes any")
        if message.delay_level:
            raise InvalidMessage("a message with a delay level cannot be sent in a batch")
        if message.due is not None:
            raise InvalidMessage("a message at a time of its own cannot be sent in a batch")
        if message.topic.startswith(RETRY_PREFIX):
            raise InvalidMessage("messages for a retry topic cannot be sent in a batch")


def check_properties_size(properties: bytes) -> None:
    """Raise InvalidMessage when the encoded properties are longer than the record can hold."""
    if len(properties) > PROPERTIES_BYTES_MAX:
        raise InvalidMessage(
            f"the properties take {len(properties)} bytes; the limit is {PROPERTIES_BYTES_MAX}"
        )


def _check_property(name: str, value: str) -> None:
    if name in RESERVED_PROPERTIES:
        raise InvalidMessage(
            f"the property name {name} is reserved: RocketMQ or CometMQ sets it itself"
        )
    _check_text("a property's name", name)
    _check_text(f"the property {name}", value)


def _check_due(due: datetime | timedelta | None, delay_level: int) -> None:
    if due is None:
        return
    if delay_level:
        raise InvalidMessage("a message has a delay level or a time of its own, not both")
    if isinstance(due, datetime):
        if due.tzinfo is None:
            raise InvalidMessage(
                f"deliver_at is {due}, which says no time zone; give one, as in "
                "datetime.now(UTC) + timedelta(minutes=5)"
            )
    elif not isinstance(due, timedelta):
        raise InvalidMessage(
            f"a message comes deliver_at a datetime or deliver_after a timedelta, not {due!r:.80}"
        )
    elif due < timedelta():
        raise InvalidMessage(f"deliver_after is {due}, less than nothing")


def _check_number(what: str, number: object, least: int, most: int) -> None:
    if type(number) is not int or not least <= number <= most:
        raise InvalidMessage(f"{what} is {number!r}; it must be a whole number, {least} to {most}")


def _check_flag(what: str, flag: object) -> None:
    if type(flag) is not bool:
        raise InvalidMessage(f"{what} is {flag!r}; it must be True or False")


def _check_text(what: str, text: str) -> None:
    if not isinstance(text, str) or not text.strip():
        raise InvalidMessage(f"{what} must be a text that is not blank, not {text!r}")
    if "\x01" in text or "\x02" in text:
        raise InvalidMessage(f"{what} holds the character 1 or 2, which separate properties")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidMessage(f"{what} cannot be written in UTF-8: {error}") from None
