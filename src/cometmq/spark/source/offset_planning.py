"""Offset planning: pure functions over the next offset of each queue.

Decides how far a batch goes, which ranges that makes, and which queues cannot be the ones that were
read before.
Invariant: a plan depends on its arguments alone, because Spark replays it from its log; an offset
never falls below the end of the last batch, and no queue is ever dropped.
A queue that appears later enters the plan at its earliest offset and is read from the next batch
on: so Spark's log says where it began, and a replay asks no broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from cometmq.spark.source.planned_offsets import PlannedOffsets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cometmq.model.admin_stats import TopicOffset
    from cometmq.model.queue import MessageQueue
    from cometmq.spark.source.planned_offsets import QueueOffsets


BEGIN_ANEW = "begin anew (a stream with a new checkpoint, a table in another directory)"
"""What to do about a topic that is not the one that was read; part of errors."""


class OffsetRange(NamedTuple):
    """Messages `begin <= queue_offset < end` of one queue."""

    queue: MessageQueue
    begin: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """How large a batch may be; None is no limit."""

    rows: int | None = None
    bytes: int | None = None


def shrunk_queues(
    start: QueueOffsets, positions: Mapping[MessageQueue, TopicOffset]
) -> dict[MessageQueue, str]:
    """Queues that now end before the offset up to which they were read, each with a sentence."""
    found = {}
    for queue, offset in start.items():
        end = positions[queue].max_offset if queue in positions else 0
        if end < offset:
            has = f"ends at {end}" if queue in positions else "is no longer there"
            found[queue] = (
                f"queue {queue} {has}, but was read up to {offset}: "
                f"the topic was recreated or its broker lost messages; {BEGIN_ANEW}, or set "
                "failOnDataLoss=false to wait there until the queue has grown again"
            )
    return found


def plan_end(
    start: PlannedOffsets,
    positions: Mapping[MessageQueue, TopicOffset],
    limits: BatchLimits | None = None,
    message_bytes: Mapping[MessageQueue, int] | None = None,
) -> PlannedOffsets:
    """Where a batch that starts at `start` ends; `start` itself when there is nothing to read.

    The limits hold for all queues together and are shared fairly; `message_bytes` says how large
    a message of each queue is about, for the limit on bytes, which a message of each queue may
    exceed. A queue without position keeps its offset. A queue new to `start` enters at its
    earliest offset.
    """
    limits = limits or BatchLimits()
    end = dict(start.queues)
    end.update({queue: at.min_offset for queue, at in positions.items() if queue not in end})
    waiting = waiting_messages(start.queues, positions)
    if limits.bytes is not None:
        waiting = _within_bytes(waiting, limits.bytes, message_bytes or {})
    for queue, share in fair_shares(waiting, limits.rows).items():
        end[queue] += share
    if end == start.queues:
        return start
    return PlannedOffsets(end, newest_store_ms(positions, start.last_store_ms))


def newest_store_ms(positions: Mapping[MessageQueue, TopicOffset], least: int = 0) -> int:
    """When the newest message of all queues was stored; at least `least`."""
    return max([least, *(at.last_update_timestamp for at in positions.values())])


def waiting_messages(
    start: QueueOffsets, positions: Mapping[MessageQueue, TopicOffset]
) -> QueueOffsets:
    """How many messages each queue has beyond `start`; queues without any are left out."""
    return {
        queue: position.max_offset - start[queue]
        for queue, position in positions.items()
        if queue in start and position.max_offset > start[queue]
    }


def fair_shares(waiting: QueueOffsets, limit: int | None) -> QueueOffsets:
    """How many of `limit` messages each queue gets: equal shares, short queues in full.

    The remainder goes to the longest queues, so that none starves when the limit is smaller than
    the number of queues.
    """
    if limit is None or sum(waiting.values()) <= limit:
        return dict(waiting)
    shares: QueueOffsets = {}
    left = limit
    by_length = sorted(waiting, key=lambda queue: (waiting[queue], queue))
    for index, queue in enumerate(by_length):
        queues_left = len(by_length) - index
        shares[queue] = min(waiting[queue], left // queues_left)
        left -= shares[queue]
    return shares


def _within_bytes(
    waiting: QueueOffsets, limit: int, message_bytes: Mapping[MessageQueue, int]
) -> QueueOffsets:
    """How many messages of each queue fit into its share of the limit, the last one in part."""
    sizes = {queue: max(message_bytes.get(queue, 1), 1) for queue in waiting}
    shares = fair_shares({queue: count * sizes[queue] for queue, count in waiting.items()}, limit)
    return {queue: -(-share // sizes[queue]) for queue, share in shares.items()}


def plan_ranges(start: QueueOffsets, end: QueueOffsets) -> list[OffsetRange]:
    """The ranges between the offsets, empty ones left out."""
    ranges = []
    for queue, stop in end.items():
        begin = start.get(queue, stop)
        if begin < stop:
            ranges.append(OffsetRange(queue, begin, stop))
    return ranges
