"""Packs offset ranges into the partitions that Spark's tasks read.

By default a queue is in one partition, so its messages come in order; `minPartitions` and
`maxRecordsPerPartition` split it, and then only the parts are in order.
Invariant: every message is in one partition; the result depends on the arguments alone, because
Spark plans a batch again when it replays it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cometmq.spark.source.offset_planning import OffsetRange
    from cometmq.spark.source.source_options import SourceOptions


def partitions_of(ranges: Sequence[OffsetRange], options: SourceOptions) -> list[list[OffsetRange]]:
    """The partitions that the options `slots`, `minPartitions`, `maxRecordsPerPartition` ask for.

    Queues are split only when whole ones don't give enough partitions, or give one too large.
    """
    packed = pack(ranges, max(options.slots, options.min_partitions))
    rows = sum(_size(one) for one in ranges)
    most = options.max_records_per_partition or rows
    largest = max((sum(_size(one) for one in part) for part in packed), default=0)
    if len(packed) >= min(options.min_partitions, rows) and largest <= most:
        return packed
    return cut(ranges, max(options.min_partitions, len(packed), -(-rows // most)))


def pack(ranges: Iterable[OffsetRange], slots: int) -> list[list[OffsetRange]]:
    """Pack ranges into at most `slots` partitions of similar size; no range is split.

    The largest range goes first, into the emptiest partition; a partition is sorted by queue.
    """
    largest_first = sorted(ranges, key=lambda one: (-_size(one), one))
    bins: list[tuple[int, list[OffsetRange]]] = [
        (0, []) for _ in range(min(slots, len(largest_first)))
    ]
    for one in largest_first:
        at = min(range(len(bins)), key=lambda index: bins[index][0])
        count, members = bins[at]
        members.append(one)
        bins[at] = (count + _size(one), members)
    return [sorted(members) for _, members in bins]


def cut(ranges: Iterable[OffsetRange], parts: int) -> list[list[OffsetRange]]:
    """Cut ranges, laid end to end, into partitions of equal size, at most one message apart."""
    rest = sorted(ranges, reverse=True)
    rows = sum(_size(one) for one in rest)
    parts = min(parts, rows)
    packed: list[list[OffsetRange]] = []
    for part in range(parts):
        room = rows * (part + 1) // parts - rows * part // parts
        members: list[OffsetRange] = []
        while room:
            one = rest.pop()
            taken = min(room, _size(one))
            members.append(one._replace(end=one.begin + taken))
            if taken < _size(one):
                rest.append(one._replace(begin=one.begin + taken))
            room -= taken
        packed.append(members)
    return packed


def _size(one: OffsetRange) -> int:
    return one.end - one.begin
