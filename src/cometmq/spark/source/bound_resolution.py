"""Turns where a read starts or ends into an offset for each queue.

Asks brokers for the offsets of times; everything else follows from the positions that the caller
has. Invariant: an offset lies between the ends of its queue, or there is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import SettingsError
from cometmq.spark.source.offset_bounds import EARLIEST_NUMBER, LATEST_NUMBER
from cometmq.spark.source.topic_selection import queue_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cometmq.model.queue import MessageQueue
    from cometmq.spark.source.cluster_client import ClusterClient
    from cometmq.spark.source.offset_bounds import OffsetBound
    from cometmq.spark.source.planned_offsets import QueueOffsets
    from cometmq.spark.source.queue_positions import Positions


def resolve(
    cluster: ClusterClient, bound: OffsetBound, positions: Positions, left_out: str
) -> QueueOffsets:
    """The offsets that a bound means for the queues of `positions`.

    `left_out` (earliest or latest) is for queues that numbers by queue don't name. Raises
    SettingsError for a queue that doesn't exist, and for an offset after its end.
    """
    named = dict(bound.numbers)
    for queue in sorted(cluster.options.selection.queues.union(named)):
        if queue not in positions and cluster.options.fail_on_data_loss:
            raise SettingsError(f"topic {queue.topic} has no queue {queue_key(queue)}")
    if bound.kind == "time":
        return _at_times(cluster, dict.fromkeys(positions, bound.time_ms), positions)
    ends = _ends(bound.kind if bound.kind in {"earliest", "latest"} else left_out, positions)
    if bound.kind == "times":
        times = {queue: at for queue, at in named.items() if queue in positions}
        return ends | _at_times(cluster, times, positions)
    return ends | _exact(named, positions)


def known_queues(*bounds: OffsetBound | None) -> set[MessageQueue]:
    """The queues that bounds name."""
    return {queue for bound in bounds if bound is not None for queue, _ in bound.numbers}


def require_start_before_end(start: QueueOffsets, end: QueueOffsets) -> None:
    """Refuse a range that ends before it starts."""
    for queue, begin in start.items():
        if begin > end[queue]:
            raise SettingsError(
                f"the start of queue {queue}, {begin}, lies after its end, {end[queue]}: "
                "give an earlier start or a later end"
            )


def _ends(kind: str, positions: Positions) -> QueueOffsets:
    if kind == "earliest":
        return {queue: at.min_offset for queue, at in positions.items()}
    return {queue: at.max_offset for queue, at in positions.items()}


def _at_times(
    cluster: ClusterClient, times: Mapping[MessageQueue, int], positions: Positions
) -> QueueOffsets:
    """The first offsets at these times; the end of a queue whose messages are all older."""
    offsets = {queue: positions[queue].max_offset for queue in times}
    asked = {
        queue: at for queue, at in times.items() if at <= positions[queue].last_update_timestamp
    }
    return offsets | cluster.offsets_at_times(asked)


def _exact(given: QueueOffsets, positions: Positions) -> QueueOffsets:
    exact: QueueOffsets = {}
    for queue, offset in given.items():
        if queue not in positions:
            continue
        at = positions[queue]
        if offset > at.max_offset:
            raise SettingsError(
                f"the offset {offset} of {queue_key(queue)} cannot be used: in topic {queue.topic} "
                f"this queue ends at {at.max_offset}"
            )
        exact[queue] = {EARLIEST_NUMBER: at.min_offset, LATEST_NUMBER: at.max_offset}.get(
            offset, offset
        )
    return exact
