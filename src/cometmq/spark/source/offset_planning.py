"""Offset planning: pure functions over dictionaries `{"broker:queueId": next offset}`.

Decides how far a batch goes, which ranges that makes, and how they are packed into partitions.
Invariant: a plan depends on its arguments alone, because Spark replays it from its log; an offset
never falls below the end of the last batch, and no queue is ever dropped.
A queue that appears later enters the plan at its earliest offset and is read from the next batch
on: so Spark's log says where it began, and a replay asks no broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cometmq.errors import QueueShrank

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Offsets = dict[str, int]


class OffsetRange(NamedTuple):
    """Messages `begin <= queue_offset < end` of one queue."""

    broker: str
    queue_id: int
    begin: int
    end: int


def offset_key(broker: str, queue_id: int) -> str:
    """The key of a queue in an offset dictionary."""
    return f"{broker}:{queue_id}"


def parse_offset_key(key: str) -> tuple[str, int]:
    """Broker name and queue id of a key; raises ValueError when it is no `broker:queueId`."""
    broker, colon, queue_id = key.rpartition(":")
    if not (broker and colon and queue_id.isdecimal()):
        raise ValueError(f"{key!r} is no queue: write it as broker:queueId, for example broker-a:0")
    return broker, int(queue_id)


def sorted_by_key(offsets: Mapping[str, int]) -> Offsets:
    """The same offsets with their keys sorted: Spark compares offsets as JSON text."""
    return dict(sorted(offsets.items()))


def require_no_loss(
    topic: str, start: Mapping[str, int], latest_offsets: Mapping[str, int]
) -> None:
    """Raise QueueShrank when a queue now ends before the offset up to which it was read."""
    for key, latest in latest_offsets.items():
        if latest < start.get(key, 0):
            raise QueueShrank(
                f"queue {key} of topic {topic} ends at {latest}, but was read up to {start[key]}: "
                "the topic was recreated or its broker lost messages; start with a new checkpoint, "
                "or set failOnDataLoss=false to wait there until the queue has grown again"
            )


def plan_end(
    start: Mapping[str, int],
    latest_offsets: Mapping[str, int],
    earliest_offsets: Mapping[str, int],
    max_rows: int | None = None,
) -> Offsets:
    """Where a batch that starts at `start` ends, at most `max_rows` messages further in all.

    A queue that is not in `latest_offsets` (its broker is down) keeps its offset. The limit is
    shared fairly. A queue new to `start` enters at its offset in `earliest_offsets`.
    """
    end = dict(start)
    end.update({key: earliest_offsets[key] for key in latest_offsets if key not in start})
    waiting = {
        key: latest_offsets[key] - at
        for key, at in start.items()
        if latest_offsets.get(key, 0) > at
    }
    for key, share in fair_shares(waiting, max_rows).items():
        end[key] += share
    return sorted_by_key(end)


def fair_shares(waiting: Mapping[str, int], limit: int | None) -> Offsets:
    """How many of `limit` messages each queue gets: equal shares, short queues in full.

    The remainder goes to the longest queues, so that none starves when the limit is smaller than
    the number of queues.
    """
    if limit is None or sum(waiting.values()) <= limit:
        return dict(waiting)
    shares: Offsets = {}
    left = limit
    by_length = sorted(waiting, key=lambda key: (waiting[key], key))
    for index, key in enumerate(by_length):
        queues_left = len(by_length) - index
        shares[key] = min(waiting[key], left // queues_left)
        left -= shares[key]
    return shares


def plan_ranges(start: Mapping[str, int], end: Mapping[str, int]) -> list[OffsetRange]:
    """The ranges between two offset dictionaries, empty ones left out."""
    ranges = []
    for key, stop in end.items():
        begin = start.get(key, stop)
        if begin < stop:
            ranges.append(OffsetRange(*parse_offset_key(key), begin, stop))
    return ranges


def pack_partitions(ranges: Iterable[OffsetRange], slots: int) -> list[list[OffsetRange]]:
    """Pack ranges into at most `slots` partitions of similar size; no range is split.

    The largest range goes first, into the emptiest partition; a partition is sorted by broker and
    queue.
    """
    largest_first = sorted(ranges, key=lambda r: (r.begin - r.end, r))
    bins: list[tuple[int, list[OffsetRange]]] = [
        (0, []) for _ in range(min(slots, len(largest_first)))
    ]
    for one in largest_first:
        at = min(range(len(bins)), key=lambda index: bins[index][0])
        count, members = bins[at]
        bins[at] = (count + one.end - one.begin, [*members, one])
    return [sorted(members) for _, members in bins]
