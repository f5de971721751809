"""Making messages visible: their queue entries appear, waiting readers are notified.

A message is published once its bytes are as safe as flushDiskType promises, in the order of the
log. Owns which record is the newest visible one. Knows nothing of files and of how to flush.
Java: ReputMessageService, MessageArrivingListener.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.store.log.last_record import NO_RECORD, LastRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cometmq.store.log.log_flush import QueueEntry
    from cometmq.store.log.put_latency import PutLatencies
    from cometmq.store.queues.consume_queues import ConsumeQueues


def _ignore_arrival(topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
    """Nobody waits for arrivals yet."""


class VisibilityAdvancer:
    """Publishes the messages of one store. Belongs to its loop."""

    def __init__(self, queues: ConsumeQueues, put_times: PutLatencies) -> None:
        self._queues = queues
        self._put_times = put_times
        self.newest_visible: LastRecord = NO_RECORD
        """The newest record that readers may see."""
        self.on_arrival: Callable[[str, int, int, int], None] = _ignore_arrival
        """Called with (topic, queue_id, new max offset, tags code) of messages that became visible:
        once for all messages of one batch that share queue and code."""

        self.on_log_end: list[Callable[[], None]] = []
        """Called once for each batch that became visible: the log has grown for its readers."""

    def publish(
        self, entries: list[QueueEntry], store_ms: int, put_counts: Iterable[tuple[int, float]]
    ) -> None:
        """Let readers see messages, one at least, then notify who waits for them.

        `store_ms` is the time of the last one; `put_counts` says of each iteration of the loop
        that put some of them how many, and when it began.
        """
        arrivals = self._queues.append(entries)
        _, phy_offset, size, _ = entries[-1]
        assert phy_offset > self.newest_visible.phy_offset, "messages are published in log order"
        self.newest_visible = LastRecord(phy_offset, size, store_ms)
        for notify in self.on_log_end:
            notify()
        on_arrival = self.on_arrival
        for queue, code in arrivals:
            on_arrival(queue.topic, queue.queue_id, queue.max_offset, code)
        now_s = asyncio.get_running_loop().time()
        for count, started_s in put_counts:
            self._put_times.add(count, started_s, now_s)
