"""How a dead letter is made to fit into the bytes a record has for properties.

Owns what gives way first: the text of the reason, then what else tells of the failure, and at last
properties of the message itself, the longest first. Refuses to know brokers and encodings.
Invariant: the body, the message's id and where it came from are never given up for other things.
Java: nothing alike; there such a message cannot become a dead letter
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.model.message import Property
from cometmq.rules.retry_policy import REASON_CHARS_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

_TOLD = (
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
}
_BROKERS = {
    Property.REAL_TOPIC,
    Property.REAL_QID,
    Property.MSG_REGION,
    Property.TRACE_ON,
    Property.CLUSTER,
    Property.WAIT,
}
"""What a broker writes anew, or wrote for a delay that is over: no loss."""


def fit_property_pairs(
    pairs: Mapping[str, str], bytes_max: int
) -> tuple[dict[str, str], list[str]]:
    """The pairs that fit into `bytes_max` as stored, and the message's own that were left out.

    Where any were, the reason begins with their names.
    """
    optional = {*_TOLD, Property.DLQ_REASON}
    found = {name: text for name, text in pairs.items() if name not in optional}
    room = bytes_max - sum(_size(name, text) for name, text in found.items())
    left_out = []
    for name in sorted(found.keys() - _KEPT, key=lambda name: _worth(name, found[name])):
        if room >= 0:
            break
        room += _size(name, found.pop(name))
        if name not in _BROKERS:
            left_out.append(name)
    for name in _TOLD:
        if name in pairs and (size := _size(name, pairs[name])) <= room:
            found[name] = pairs[name]
            room -= size
    reason = pairs.get(Property.DLQ_REASON, "")
    if left_out:
        reason = f"[without {', '.join(left_out)}] {reason}"[:REASON_CHARS_MAX]
    reason = _cut(reason, room - _size(Property.DLQ_REASON, ""))
    if reason:
        found[Property.DLQ_REASON] = reason
    return found, left_out


def _worth(name: str, text: str) -> tuple[bool, int, str]:
    return name not in _BROKERS, -_size(name, text), name


def _size(name: str, text: str) -> int:
    return len(name.encode()) + len(text.encode()) + 2


def _cut(text: str, bytes_max: int) -> str:
    return text.encode()[: max(0, bytes_max)].decode("utf-8", "ignore").strip()
