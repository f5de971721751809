"""How values are shown to people: times, versions, bodies; and messages as lines and as JSON."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cometmq.model.message import MessageExt

_BODY_SHOWN = 60
_FIRST_KNOWN = 213
"""RocketMQ's number of release 4.0.0; from there on they follow a rule."""
_RELEASES = 588


def shown_time(at_ms: int) -> str:
    """A time in UTC, to the second; "-" for none."""
    if at_ms <= 0:
        return "-"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def shown_number(value: int | None) -> str:
    """A number, "-" for none."""
    return "-" if value is None else str(value)


def counted(count: int, noun: str) -> str:
    """A number of things: "1 topic", "2,000 topics"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def shown_version(number: int) -> str:
    """A client's version by RocketMQ's number: 479 is 5.3.3."""
    place, is_release = divmod(number + _RELEASES, 2)
    if number < _FIRST_KNOWN:
        return str(number)
    digits = f"{place // 100}.{place // 10 % 10}.{place % 10}"
    return digits if is_release else f"{digits}-SNAPSHOT"


def shown_body(body: bytes) -> str:
    """The beginning of a body, on one line."""
    return repr(body[:_BODY_SHOWN].decode("utf-8", "backslashreplace"))


def message_line(message: MessageExt) -> str:
    """A message on one line: time, queue, offset, id, tag, keys, size and the body's beginning."""
    time = datetime.fromtimestamp(message.store_ms / 1000, UTC).isoformat(" ", "milliseconds")
    place = f"{message.broker_name}:{message.queue_id}:{message.queue_offset}"
    return (
        f"{time[:23]} {place} {message.msg_id} {message.tags or '-'} "
        f"{','.join(message.keys) or '-'} {len(message.body)} {shown_body(message.body)}"
    )


def message_json(message: MessageExt) -> dict[str, object]:
    """A message as JSON has it; a body that is no UTF-8 is in `body_base64`."""
    facts: dict[str, object] = {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue_id": message.queue_id,
        "offset": message.queue_offset,
        "msg_id": message.msg_id,
        "offset_msg_id": message.offset_msg_id,
        "tags": message.tags,
        "keys": message.keys,
        "sharding_key": message.sharding_key,
        "born_ms": message.born_ms,
        "stored_ms": message.store_ms,
        "reconsume_times": message.reconsume_times,
        "properties": message.properties,
        "unreadable": message.unreadable or None,
    }
    try:
        return {**facts, "body": message.body.decode()}
    except UnicodeDecodeError:
        return {**facts, "body": None, "body_base64": base64.b64encode(message.body).decode()}
