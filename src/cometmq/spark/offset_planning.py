"""Offset planning: pure functions over dictionaries `{"broker:queueId": next offset}`.

Owns: how far a batch goes, which ranges that makes, and how they are packed into partitions.
Refuses to know: sockets, Spark, clocks, options as text.
Invariant: a plan is a function of its arguments alone, because Spark replays it from its log;
an offset never goes below where the last batch ended, and no queue is ever dropped.
A queue that appears later enters with its own beginning and is read from the batch after that:
so the log says where it began, and a replay needs to ask nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cometmq.errors import QueueShrank

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Offsets = dict[str, int]


class Range(NamedTuple):
    """Messages `lo <= queue_offset < hi` of one queue."""

    broker: str
    queue_id: int
    lo: int
    hi: int


def key_of(broker: str, queue_id: int) -> str:
    """The name of a queue inside an offset dictionary."""
    return f"{broker}:{queue_id}"


def queue_of(key: str) -> tuple[str, int]:
    """Broker name and queue id of a key; raises ValueError when it is no `broker:queueId`."""
    broker, colon, queue_id = key.rpartition(":")
    if not (broker and colon and queue_id.isdecimal()):
        raise ValueError(f"{key!r} is no queue: write it as broker:queueId, for example broker-a:0")
    return broker, int(queue_id)


def ordered(offsets: Mapping[str, int]) -> Offsets:
    """The same offsets with their keys sorted: Spark compares offsets as JSON text."""
    return dict(sorted(offsets.items()))


def require_no_loss(topic: str, start: Mapping[str, int], heads: Mapping[str, int]) -> None:
    """Raise QueueShrank when a queue now ends before the place that was read already."""
    for key, head in heads.items():
        if head < start.get(key, 0):
            raise QueueShrank(
                f"queue {key} of topic {topic} ends at {head}, but was read up to {start[key]}: "
                "the topic was made anew or its broker lost messages; start with a new checkpoint, "
                "or set failOnDataLoss=false to wait there until the queue has grown again"
            )


def plan_end(
    start: Mapping[str, int],
    heads: Mapping[str, int],
    begins: Mapping[str, int],
    max_rows: int | None = None,
) -> Offsets:
    """Where a batch that starts at `start` ends, at most `max_rows` messages further in all.

    `heads` are the ends of the queues known now; a queue that isn't among them (its broker is
    away) keeps its place. A limit is shared fairly. A queue new to `start` enters at its place in
    `begins`.
    """
    end = dict(start)
    end.update({key: begins[key] for key in heads if key not in start})
    waiting = {key: heads[key] - at for key, at in start.items() if heads.get(key, 0) > at}
    for key, share in fair_shares(waiting, max_rows).items():
        end[key] += share
    return ordered(end)


def fair_shares(waiting: Mapping[str, int], limit: int | None) -> Offsets:
    """How many of `limit` messages each queue gives: equal shares, small queues whole.

    What cannot be shared equally goes to the longest queues, so that none starves when the
    limit is smaller than the number of queues.
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


def plan_ranges(start: Mapping[str, int], end: Mapping[str, int]) -> list[Range]:
    """The ranges between two offset dictionaries, empty ones left out."""
    ranges = []
    for key, hi in end.items():
        lo = start.get(key, hi)
        if lo < hi:
            ranges.append(Range(*queue_of(key), lo, hi))
    return ranges


def pack(ranges: Iterable[Range], slots: int) -> list[list[Range]]:
    """Put ranges into at most `slots` partitions of about equal size, a queue never split.

    Largest first into the emptiest partition; inside a partition sorted by broker and queue.
    """
    largest_first = sorted(ranges, key=lambda r: (r.lo - r.hi, r))
    bins: list[tuple[int, list[Range]]] = [(0, []) for _ in range(min(slots, len(largest_first)))]
    for one in largest_first:
        at = min(range(len(bins)), key=lambda index: bins[index][0])
        count, members = bins[at]
        bins[at] = (count + one.hi - one.lo, [*members, one])
    return [sorted(members) for _, members in bins]
