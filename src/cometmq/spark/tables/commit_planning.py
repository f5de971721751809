"""What the next commit of a table holds: an offset range for each queue, from what is archived.

Pure decisions over positions that brokers gave. Invariant: a queue goes on where its last range
ended; a hole is planned only when the caller allows to go on without lost messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cometmq.errors import DataLoss
from cometmq.spark.source.offset_planning import BatchLimits, plan_end, plan_ranges
from cometmq.spark.source.planned_offsets import PlannedOffsets

if TYPE_CHECKING:
    from cometmq.model.admin_stats import TopicOffset
    from cometmq.spark.source.offset_planning import OffsetRange
    from cometmq.spark.source.queue_positions import Positions
    from cometmq.spark.tables.archived_ranges import ArchivedQueues


@dataclass(frozen=True, slots=True)
class PlannedCommit:
    """The ranges of one commit, with the times by which the source knows a queue made anew."""

    ranges: tuple[OffsetRange, ...]
    started_ms: int
    """Newest store time known when what came before was committed; 0 for the first commit."""
    ended_ms: int
    """Newest store time known now."""

    @property
    def messages(self) -> int:
        """How many offsets the ranges have."""
        return sum(one.end - one.begin for one in self.ranges)


def plan_commit(
    archived: ArchivedQueues, target: Positions, max_rows: int, *, fail_on_data_loss: bool
) -> PlannedCommit:
    """At most `max_rows` messages between what is archived and `target`, shared fairly by queues.

    Raises DataLoss for messages that are gone and for a queue that ends before what is archived of
    it, which is always an error.
    """
    start = {queue: at.min_offset for queue, at in target.items()}
    for queue, one in archived.queues.items():
        if queue not in target:
            continue
        _check_not_shorter(str(queue), one.end, target[queue])
        if fail_on_data_loss:
            _check_nothing_lost(str(queue), one.end, target[queue])
        start[queue] = max(one.end, target[queue].min_offset)
    before = PlannedOffsets(start, archived.last_store_ms)
    end = plan_end(before, target, BatchLimits(rows=max_rows))
    return PlannedCommit(
        tuple(plan_ranges(start, end.queues)), archived.last_store_ms, end.last_store_ms
    )


def waiting(archived: ArchivedQueues, positions: Positions) -> int:
    """How many messages brokers have that are not archived yet."""
    ends = {queue: one.end for queue, one in archived.queues.items()}
    return sum(
        max(0, at.max_offset - max(ends.get(queue, 0), at.min_offset))
        for queue, at in positions.items()
    )


def _check_not_shorter(queue: str, archived: int, at: TopicOffset) -> None:
    if at.max_offset < archived:
        raise DataLoss(
            f"queue {queue} ends at {at.max_offset}, but the table holds it up to {archived}: the "
            "topic was deleted and made anew, or its broker lost messages; archive into another "
            "directory"
        )


def _check_nothing_lost(queue: str, archived: int, at: TopicOffset) -> None:
    if at.min_offset > archived:
        raise DataLoss(
            f"queue {queue} no longer holds the messages from {archived} up to {at.min_offset}, "
            "which were not archived yet: keep messages longer at the broker than the time between "
            "two runs, or go on without them (fail_on_data_loss=False, --skip-lost), which leaves "
            "a hole that verify names"
        )
