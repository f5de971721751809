"""Shortens the properties of a dead letter to the bytes that a record has for them.

Decides what is dropped first: the text of the reason, then the other facts about the failure, at
last properties of the message itself, the longest first.
Invariant: the message's id and its origin are never dropped. Java: none; RocketMQ cannot store such
a message as a dead letter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.model.message import Property
from cometmq.model.parking import RECORD_PROPERTY
from cometmq.rules.failures.retry_policy import REASON_CHARS_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

_FACTS = (
    Property.DLQ_ATTEMPTS,
    Property.DLQ_FAILED_AT,
    Property.DLQ_ORIGIN_QUEUE_ID,
    Property.DLQ_ORIGIN_OFFSET,
)
_KEPT = {
    Property.UNIQ_KEY,
    Property.RETRY_TOPIC,
    Property.ORIGIN_MESSAGE_ID,
    Property.RECONSUME_TIME,
    Property.MAX_RECONSUME_TIMES,
    Property.DLQ_ORIGIN_TOPIC,
    Property.DLQ_ORIGIN_MESSAGE_ID,
    Property.DLQ_DIVERTED,
    RECORD_PROPERTY,
}
_BROKERS = {
    Property.REAL_TOPIC,
    Property.REAL_QID,
    Property.MSG_REGION,
    Property.TRACE_ON,
    Property.CLUSTER,
    Property.WAIT,
}
"""What a broker writes again, or wrote for a delay that is over: dropping it loses nothing."""


def fit_property_pairs(
    pairs: Mapping[str, str], bytes_max: int
) -> tuple[dict[str, str], list[str]]:
    """The pairs that fit into `bytes_max` as stored, and the message's own that were dropped.

    If any were dropped, the reason begins with their names.
    """
    assert bytes_max > 0, "a record has room for properties"
    optional = {*_FACTS, Property.DLQ_REASON}
    found = {name: text for name, text in pairs.items() if name not in optional}
    room = bytes_max - sum(_size(name, text) for name, text in found.items())
    left_out = []
    for name in sorted(found.keys() - _KEPT, key=lambda name: _worth(name, found[name])):
        if room >= 0:
            break
        room += _size(name, found.pop(name))
        if name not in _BROKERS:
            left_out.append(name)
    for name in _FACTS:
        if name in pairs and (size := _size(name, pairs[name])) <= room:
            found[name] = pairs[name]
            room -= size
    reason = pairs.get(Property.DLQ_REASON, "")
    if left_out:
        reason = f"[without {', '.join(left_out)}] {reason}"[:REASON_CHARS_MAX]
    reason = _cut(reason, room - _size(Property.DLQ_REASON, ""))
    if reason:
        found[Property.DLQ_REASON] = reason
    stored_bytes = sum(_size(name, text) for name, text in found.items())
    kept = found.keys() <= _KEPT
    assert kept or stored_bytes <= bytes_max, (
        "a property that could go takes room that is not there"
    )
    assert not set(left_out) & found.keys(), "a property was left out and kept"
    return found, left_out


def _worth(name: str, text: str) -> tuple[bool, int, str]:
    return name not in _BROKERS, -_size(name, text), name


def _size(name: str, text: str) -> int:
    return len(name.encode()) + len(text.encode()) + 2


def _cut(text: str, bytes_max: int) -> str:
    return text.encode()[: max(0, bytes_max)].decode("utf-8", "ignore").strip()
