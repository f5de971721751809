"""Offsets as Spark keeps them: the JSON in a checkpoint, in progress, and in `startingOffsets`.

Owns the versions of that JSON. Version 2 is what is written,
    {"version": 2, "lastStoreTime": 1700000000000, "topics": {"T": {"broker-a:0": 17}}}
where lastStoreTime is the store time (ms) of the newest message that the topics held when the
offsets were planned: a queue all of whose messages are newer was made anew. Version 1, which named
neither topic nor time, `{"broker-a:0": 17}`, is read on by a query over one topic.
Invariant: equal offsets give equal text, because Spark compares them so; keys are sorted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cometmq.spark.source.topic_selection import numbers_by_queue, queue_key

if TYPE_CHECKING:
    from cometmq.model.queue import MessageQueue

VERSION = 2

QueueOffsets = dict["MessageQueue", int]
"""The next offset of each queue."""


@dataclass(frozen=True, slots=True)
class PlannedOffsets:
    """How far a query is: the next offset of every queue that it knows."""

    queues: QueueOffsets = field(default_factory=dict)
    last_store_ms: int = 0
    """When the newest message known then was stored; 0 where that wasn't written down."""


def has_version(value: Any) -> bool:
    """Whether this is JSON of version 2 or later, not a plain map of offsets."""
    return isinstance(value, dict) and type(value.get("version")) is int


def encode(planned: PlannedOffsets) -> dict[str, Any]:
    """The offsets as JSON values for Spark."""
    topics: dict[str, dict[str, int]] = {}
    for queue in sorted(planned.queues):
        topics.setdefault(queue.topic, {})[queue_key(queue)] = planned.queues[queue]
    return {"version": VERSION, "lastStoreTime": planned.last_store_ms, "topics": topics}


def decode(value: Any, only_topic: str) -> PlannedOffsets:
    """The offsets that JSON of any version means; raises ValueError with one sentence.

    `only_topic` is the topic of the query if it reads one: version 1 is about that.
    """
    if not has_version(value):
        try:
            return PlannedOffsets(dict(numbers_by_queue(value, only_topic)))
        except ValueError as fault:
            raise ValueError(
                f"these offsets are of an earlier version, for a read of one topic: {fault}"
            ) from None
    if value["version"] != VERSION:
        raise ValueError(
            f"the offsets are of version {value['version']}, written by another release: "
            f"this one knows versions 1 and {VERSION}"
        )
    last_store_ms = value.get("lastStoreTime", 0)
    if type(last_store_ms) is not int or "topics" not in value:
        raise ValueError("offsets of version 2 need topics, and a number as lastStoreTime")
    return PlannedOffsets(dict(numbers_by_queue(value["topics"], "")), last_store_ms)
