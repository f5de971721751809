"""Which offsets of a queue a table holds: ranges in order, and how many rows came of them.

Pure values. Invariant: ranges are not empty, ascend, and neither overlap nor touch; so a queue that
was read without a hole has one range.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cometmq.spark.source.topic_selection import numbers_by_queue, queue_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cometmq.model.queue import MessageQueue


@dataclass(frozen=True, slots=True)
class ArchivedRanges:
    """The offsets of one queue that are in a table."""

    ranges: tuple[tuple[int, int], ...]
    """First offset and the one after the last, of each range."""
    rows: int = 0
    """Messages in these ranges, misfits included; less than offsets where a broker had damage."""
    misfits: int = 0

    @property
    def begin(self) -> int:
        """The first offset that was archived."""
        return self.ranges[0][0]

    @property
    def end(self) -> int:
        """Where the next run goes on."""
        return self.ranges[-1][1]

    @property
    def offsets(self) -> int:
        """How many offsets the ranges have."""
        return sum(end - begin for begin, end in self.ranges)

    @property
    def holes(self) -> tuple[tuple[int, int], ...]:
        """What lies between the ranges: messages that were gone before they could be archived."""
        ends = [end for _, end in self.ranges[:-1]]
        return tuple(zip(ends, [begin for begin, _ in self.ranges[1:]], strict=True))

    def extended(self, begin: int, end: int, rows: int, misfits: int) -> ArchivedRanges:
        """These ranges and another one behind them."""
        assert self.end <= begin < end, (self, begin, end)
        ranges = list(self.ranges)
        if ranges[-1][1] == begin:
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((begin, end))
        return ArchivedRanges(tuple(ranges), self.rows + rows, self.misfits + misfits)


@dataclass(frozen=True, slots=True)
class ArchivedQueues:
    """What a table holds of all its queues."""

    queues: dict[MessageQueue, ArchivedRanges] = field(default_factory=dict)
    last_store_ms: int = 0
    """When the newest message known at the last commit was stored; shows a topic made anew."""

    def extended(
        self, more: Mapping[MessageQueue, ArchivedRanges], last_store_ms: int
    ) -> ArchivedQueues:
        """These queues, and one more range for some of them."""
        queues = dict(self.queues)
        for queue, one in more.items():
            before = queues.get(queue)
            queues[queue] = (
                before.extended(one.begin, one.end, one.rows, one.misfits) if before else one
            )
        return ArchivedQueues(queues, max(last_store_ms, self.last_store_ms))

    def as_json(self) -> dict[str, Any]:
        """Plain values; `from_json` reads them."""
        topics: dict[str, dict[str, Any]] = {}
        for queue, one in sorted(self.queues.items()):
            topics.setdefault(queue.topic, {})[queue_key(queue)] = [
                [list(each) for each in one.ranges],
                one.rows,
                one.misfits,
            ]
        return {"lastStoreTime": self.last_store_ms, "topics": topics}

    @classmethod
    def from_json(cls, value: Any) -> ArchivedQueues:
        """What `as_json` wrote; raises ValueError, TypeError or KeyError for anything else."""
        queues = {
            queue: ArchivedRanges(
                tuple((int(begin), int(end)) for begin, end in ranges), int(rows), int(misfits)
            )
            for queue, (ranges, rows, misfits) in numbers_by_queue(value["topics"], "")
        }
        return cls(queues, int(value["lastStoreTime"]))
