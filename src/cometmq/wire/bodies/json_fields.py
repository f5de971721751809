"""Reads typed values from decoded JSON, as leniently as Java peers do.

Numbers and booleans may be texts, enum names may have any case or be ordinals, missing and null
mean the default, unknown fields are ignored. Any other value is a ProtocolError that names the
field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from cometmq.errors import ProtocolError
from cometmq.model.queue import MessageQueue
from cometmq.wire import fastjson

LENIENT_BYTES_MAX = 32 * 1024
"""Longest body of a request that may be anything but plain JSON: reading it takes 8 ms at most.

What Java's clients send is plain.
"""

Json = Mapping[str, Any]
_T = TypeVar("_T")
_E = TypeVar("_E", bound=StrEnum)


def object_of(value: object, what: str = "the body") -> Json:
    """Return the value if it is an object, an empty one for None."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ProtocolError(f"{what} is no JSON object")
    return value


def load_object(data: bytes) -> Json:
    """Read a body that is one object; an empty body is an empty object."""
    return object_of(fastjson.loads(data)) if data else {}


def load_request(data: bytes) -> Json:
    """Read the body of a request that a server's loop waits for: a long one must be plain JSON."""
    return object_of(fastjson.loads(data, lenient_bytes_max=LENIENT_BYTES_MAX)) if data else {}


def text(obj: Json, key: str, default: str = "") -> str:
    """Return a text field."""
    value = obj.get(key)
    return default if value is None else as_text(value, key)


def text_or_none(obj: Json, key: str) -> str | None:
    """Return a text field, or None where it is missing."""
    value = obj.get(key)
    return None if value is None else as_text(value, key)


def as_text(value: object, what: str) -> str:
    """Return the value as text; objects and lists are none."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise ProtocolError(f"{what} in the body is no text")


def number(obj: Json, key: str, default: int = 0) -> int:
    """Return a whole number of at most 64 bits."""
    value = obj.get(key)
    return default if value is None else as_number(value, key)


def as_number(value: object, what: str) -> int:
    """Return the value as a whole number of at most 64 bits."""
    try:
        if isinstance(value, str | int | float):
            found = int(value)
            if -0x8000000000000000 <= found <= 0x7FFFFFFFFFFFFFFF:
                return found
    except (ValueError, OverflowError):
        pass
    raise ProtocolError(f"{what} in the body is no whole number")


def real(obj: Json, key: str, default: float = 0.0) -> float:
    """Return a number that need not be whole."""
    value = obj.get(key)
    if value is None:
        return default
    try:
        if isinstance(value, str | int | float):
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise ProtocolError(f"{key} in the body is no number")


def flag(obj: Json, key: str, default: bool = False) -> bool:
    """Return a truth value."""
    value = obj.get(key)
    if value is None:
        return default
    if isinstance(value, str):
        return value.lower() == "true"
    return bool(value)


def member(obj: Json, key: str, default: _E) -> _E:
    """Return a member of the enum that `default` belongs to."""
    value, kind = obj.get(key), type(default)
    if value is None:
        return default
    if isinstance(value, str) and value.upper() in kind.__members__:
        return kind[value.upper()]
    members = list(kind)
    if isinstance(value, int) and 0 <= value < len(members):
        return members[value]
    raise ProtocolError(f"{key} in the body is {str(value)[:60]!r}, which is no {kind.__name__}")


def items(obj: Json, key: str, read: Callable[[Any], _T]) -> list[_T]:
    """Return a list field, each entry read by `read`; missing means empty."""
    value = obj.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise ProtocolError(f"{key} in the body is no list")
    return [read(item) for item in value]


def texts(obj: Json, key: str) -> list[str]:
    """Return a list of texts."""
    return items(obj, key, lambda value: as_text(value, key))


def table(obj: Json, key: str, read: Callable[[Any], _T]) -> dict[str, _T]:
    """Return a table field with text keys; missing means empty."""
    return {name: read(value) for name, value in object_of(obj.get(key), key).items()}


def text_table(obj: Json, key: str) -> dict[str, str]:
    """Return a table of texts."""
    return table(obj, key, lambda value: as_text(value, key))


def number_table(value: object) -> dict[int, int]:
    """Return a table of whole numbers, by whole numbers."""
    entries = object_of(value, "a table of numbers").items()
    return {as_number(key, key): as_number(each, key) for key, each in entries}


def text_lists(obj: Json, key: str) -> dict[str, list[str]]:
    """Return a table of lists of texts."""
    entries = object_of(obj.get(key), key)
    return {name: texts(entries, name) for name in entries}


def queue_table(obj: Json, key: str, read: Callable[[Any], _T]) -> dict[MessageQueue, _T]:
    """Return a table whose keys are queues, as raw objects or as texts that hold one."""
    entries = object_of(obj.get(key), key).items()
    return {queue_of(fastjson.loads(name.encode())): read(value) for name, value in entries}


def queue_of(value: object) -> MessageQueue:
    """Read a queue."""
    obj = object_of(value, "a queue")
    return MessageQueue(text(obj, "topic"), text(obj, "brokerName"), number(obj, "queueId"))


def queue_fields(queue: MessageQueue) -> dict[str, object]:
    """Return a queue as it is written."""
    topic, broker_name, queue_id = queue
    return {"brokerName": broker_name, "queueId": queue_id, "topic": topic}


def queue_entry(queue: MessageQueue, value: object) -> bytes:
    """Write one entry of a table whose keys are queues."""
    return fastjson.dump_entry(fastjson.object_key(queue_fields(queue)), value)


def queue_keys(entries: Mapping[MessageQueue, object]) -> dict[fastjson.JsonObjectKey, object]:
    """Return a table with its queues as raw object keys, the way Java writes it."""
    return {fastjson.object_key(queue_fields(queue)): entries[queue] for queue in sorted(entries)}
