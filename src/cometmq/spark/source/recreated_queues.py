"""Finds queues that were deleted and made anew since they were read.

Such a queue may have outgrown the old offset, and then no offset shows it. Times do: offsets are
planned with the store time of the newest message known then, so a message before them is not newer.
A queue whose first message is newer, although it begins before the offset, is another queue.
Both times are brokers' times, so no clock of ours can make the check fail.
Offsets without a time (of an earlier version, or written by hand) cannot be checked.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cometmq.errors import DataLoss
from cometmq.spark.source.offset_planning import BEGIN_ANEW, plan_ranges

if TYPE_CHECKING:
    from cometmq.model.queue import MessageQueue
    from cometmq.spark.source.cluster_client import ClusterClient
    from cometmq.spark.source.offset_planning import OffsetRange
    from cometmq.spark.source.planned_offsets import PlannedOffsets
    from cometmq.spark.source.queue_positions import Positions

_log = logging.getLogger("cometmq.spark")


def checked_ranges(
    cluster: ClusterClient, start: PlannedOffsets, end: PlannedOffsets
) -> list[OffsetRange]:
    """The ranges from start to end, if the queues are the ones that were planned.

    Raises DataLoss for one that was made anew; with failOnDataLoss=false that is reported, and it
    is read from its first message on. A range of it that was planned before is left out then: the
    next one begins with that message.
    """
    ranges = plan_ranges(start.queues, end.queues)
    limits = {one.queue: start.last_store_ms if one.begin else end.last_store_ms for one in ranges}
    earliest = cluster.earliest_store_times([queue for queue in limits if limits[queue]])
    suspects = [queue for queue, stored_ms in earliest.items() if stored_ms > limits[queue]]
    if not suspects:
        return ranges
    positions = cluster.positions(suspects)
    found = {queue: positions[queue] for queue in suspects if queue in positions}
    checked = []
    for one in ranges:
        if one.queue not in found or found[one.queue].min_offset >= max(one.begin, 1):
            checked.append(one)
        elif 0 < end.last_store_ms < earliest[one.queue]:
            _report(cluster, one, limits[one.queue], "what was planned of it is left out")
        else:
            first = found[one.queue].min_offset
            _report(cluster, one, limits[one.queue], f"it is read from {first} on")
            checked.append(one._replace(begin=first))
    return checked


def recreated_queues(
    cluster: ClusterClient, start: PlannedOffsets, positions: Positions
) -> dict[MessageQueue, str]:
    """Queues that were made anew and have not outgrown their old offset yet, each with a sentence.

    Longer ones are found by `checked_ranges`, once their messages are planned.
    """
    if not start.last_store_ms:
        return {}
    suspects = [
        queue
        for queue, at in positions.items()
        if at.min_offset < at.max_offset <= start.queues.get(queue, 0)
        and at.last_update_timestamp > start.last_store_ms
    ]
    return {
        queue: _sentence(queue, start.queues[queue], start.last_store_ms)
        for queue, stored_ms in cluster.earliest_store_times(suspects).items()
        if stored_ms > start.last_store_ms
    }


def _report(cluster: ClusterClient, one: OffsetRange, limit_ms: int, what_follows: str) -> None:
    """Raise DataLoss; with failOnDataLoss=false log it, with what follows from it."""
    sentence = _sentence(one.queue, one.begin or one.end, limit_ms)
    if cluster.options.fail_on_data_loss:
        raise DataLoss(sentence)
    _log.warning("%s; failOnDataLoss=false, %s", sentence, what_follows)


def _sentence(queue: MessageQueue, offset: int, limit_ms: int) -> str:
    at = datetime.fromtimestamp(limit_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return (
        f"queue {queue} is not the one that was read: what lay before offset {offset} was stored "
        f"until {at}, and all that it holds now is newer, so the topic was deleted and made anew; "
        f"{BEGIN_ANEW}, or set failOnDataLoss=false to read it from its first message"
    )
