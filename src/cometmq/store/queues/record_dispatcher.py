"""From a record of the log to its queue entries, for readers of the log: recovery, raw appends.

Knows which records stand in queues, what their entries say, and that a gap in the numbers of a
queue is filled with entries that no reader is given. Knows nothing of where records come from.
Java: CommitLogDispatcherBuildConsumeQueue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.wire.records import sysflag
from cometmq.wire.records.consume_queue_entry import FILLER_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.store.log.log_flush import QueueEntry
    from cometmq.store.queues.consume_queue import ConsumeQueue
    from cometmq.store.queues.consume_queues import ConsumeQueues
    from cometmq.wire.records.log_record import StoredRecord

GAP_MAX = 10_000_000
"""Messages of one queue that damage may have taken; a wider gap is a broken number."""


class RecordDispatcher:
    """Makes the queue entries of one store's records. Belongs to its loop."""

    def __init__(self, queues: ConsumeQueues, tags_code: Callable[[str, bytes, int], int]) -> None:
        self._queues = queues
        self._tags_code = tags_code

    def is_in_queue(self, record: StoredRecord) -> bool:
        """Whether a record is in a queue, and its topic was not deleted later."""
        return sysflag.is_queued(
            record.sys_flag
        ) and record.phy_offset >= self._queues.deletions.end_of(record.topic)

    def queue_of(self, record: StoredRecord) -> ConsumeQueue | None:
        """The queue of a record, made when it is new; None: it is in none."""
        if not self.is_in_queue(record):
            return None
        return self._queues.get_or_create(record.topic, record.queue_id)

    def entries(self, record: StoredRecord, queue: ConsumeQueue) -> list[QueueEntry] | None:
        """The entries up to and with the record's, which `next_offset` then counts.

        None: the record's number cannot be true.
        """
        gap = record.queue_offset - queue.next_offset
        assert gap >= 0, "the queue has this number already"
        if gap > GAP_MAX:
            return None
        code = self._tags_code(record.topic, record.properties, record.store_ms)
        queue.next_offset = record.queue_offset + 1
        filler = queue, record.phy_offset, FILLER_SIZE, 0
        return [filler] * gap + [(queue, record.phy_offset, record.size, code)]
