"""Which message of a queue was stored at a time: binary search over store times.

Store times never fall along the log, hence not along a queue either.
Java: ConsumeQueue.getOffsetInQueueByTime, BoundaryType.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cometmq.store.log.commit_log import CommitLog
    from cometmq.store.queues.consume_queue import ConsumeQueue


def offset_by_time(
    queue: ConsumeQueue, log: CommitLog, ms: int, *, upper: bool, cached_only: bool = False
) -> int:
    """The first message stored at or after `ms`; with `upper` the last one at or before it.

    Always within the queue: its end (lower) or its first offset (upper) when there is none.
    """
    first, end = queue.min_offset(log.first, cached_only), queue.max_offset
    low, high = first, end
    while low < high:
        middle = (low + high) // 2
        store_ms = log.store_time(queue.entry(middle, cached_only)[0], cached_only)
        # A record that is gone has store time -1: too old, go right.
        if store_ms < ms or (upper and store_ms == ms):
            low = middle + 1
        else:
            high = middle
    assert first <= low <= max(first, end)
    return max(low - 1, first) if upper else low
