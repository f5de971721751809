"""The text of a record of the parking topic: what its property `PARK_RECORD` and `PARK_COPY` say.

Owns both forms; invariant: a text of ours reads back as the record it was made of, and any other is
None. Java: none.
"""

from __future__ import annotations

import json
import re
from dataclasses import fields
from typing import Any, NamedTuple

from cometmq.model.parking import ParkingRecord, ParkingStep

_TYPES: dict[str, type] = {
    "topic": str,
    "queue_id": int,
    "key": str,
    "offset": int,
    "order": int,
    "epoch": int,
    "owner": str,
    "from_offset": int,
    "has_failed": bool,
    "gate": int,
    "command": int,
    "to": str,
    "rate": float,
    "reason": str,
}
_DEFAULTS = {one.name: one.default for one in fields(ParkingRecord)}
_COPY = re.compile(r"([^/]+)/([^/]+)/(\d{1,10})/(\d{1,19})/(\d{1,19})")


class CopyMark(NamedTuple):
    """What a message that was sent to its topic again says of the one it was made of."""

    group: str
    topic: str
    queue_id: int
    order: int
    offset: int


def encode_parking_record(record: ParkingRecord) -> str:
    """The record as a text without control characters; what is at its default is left out."""
    said: dict[str, Any] = {"step": record.step.value}
    for name in _TYPES:
        value = getattr(record, name)
        if value != _DEFAULTS[name]:
            said[name] = value
    return json.dumps(said, separators=(",", ":"))


def decode_parking_record(text: str) -> ParkingRecord | None:
    """Read a record; None for a text that is none."""
    try:
        said = json.loads(text)
        step = ParkingStep(said.pop("step"))
        if not all(_is_a(value, _TYPES[name]) for name, value in said.items()):
            return None
        if said["queue_id"] < 0 or said.get("rate", 0) < 0:
            return None
        return ParkingRecord(step=step, **said)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def encode_copy_mark(mark: CopyMark) -> str:
    """The mark of a copy as a text."""
    return f"{mark.group}/{mark.topic}/{mark.queue_id}/{mark.order}/{mark.offset}"


def decode_copy_mark(text: str) -> CopyMark | None:
    """Read the mark of a copy; None for a text that is none."""
    found = _COPY.fullmatch(text)
    if found is None:
        return None
    return CopyMark(found[1], found[2], int(found[3]), int(found[4]), int(found[5]))


def _is_a(value: Any, kind: type) -> bool:
    if kind is float:
        return type(value) in (int, float) and value == value
    return type(value) is kind
