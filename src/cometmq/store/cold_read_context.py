"""Hot. Every read of messages, with what it may wait for said by the object that is asked.

A store has two contexts. `store.cold_reader.cached` answers from memory and raises NotInMemory
where the disk would have to be waited for; the store's own one waits. Neither changes anything.
Invariant: no message is returned before it is as safe as flushDiskType promises.
Java: DefaultMessageStore.getMessage, lookMessageByOffset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import StoreError
from cometmq.store.queues.offset_by_time import offset_by_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.store.get_result import GetResult
    from cometmq.store.log.commit_log import CommitLog
    from cometmq.store.property_filter import PropertyFilter
    from cometmq.store.queues.consume_queues import ConsumeQueues
    from cometmq.store.queues.queue_reader import QueueReader


class ReadContext:
    """Reads one store, read-only. Belongs to its loop."""

    __slots__ = ("_is_sync", "_log", "_queue_reader", "_queues", "cached_only")

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        queue_reader: QueueReader,
        *,
        is_sync: bool,
        cached_only: bool,
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._queue_reader = queue_reader
        self._is_sync = is_sync
        self.cached_only = cached_only
        """Whether a read raises NotInMemory rather than wait for the disk."""

    def get(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_count: int,
        max_bytes: int,
        match: Callable[[int], bool] | None = None,
        judge: PropertyFilter | None = None,
        is_large: bool | None = None,
    ) -> GetResult:
        """Records of a queue from `queue_offset` on, one after the other, as they are on disk.

        At most `max_count` messages and `max_bytes` (the first comes whatever its size), and no
        more than the transfer limits of the settings, or than `queue_reader.LARGE_LIMITS`
        with `is_large`. `match` says by a tags code whether a message
        is wanted, `judge` then by its properties. `next_offset`: where to go on, or the queue's end
        or beginning.
        """
        return self._queue_reader.get(
            self._queues.find(topic, queue_id),
            queue_offset,
            max_count,
            max_bytes,
            match,
            judge,
            self.cached_only,
            is_large,
        )

    def record_at(self, phy_offset: int) -> bytes | None:
        """The record that begins at a byte of the log; None when none does that readers may see."""
        is_visible = not self._is_sync or phy_offset < self._log.flushed
        return self._log.record_at(phy_offset, self.cached_only) if is_visible else None

    def read_raw(self, from_offset: int, max_bytes: int) -> bytes:
        """Bytes of the log from an offset on, of one file: what another store takes as they are.

        Up to what readers may see, so with SYNC_FLUSH only what is flushed: a copy never has what
        a power cut takes from this store. Empty at that end.
        StoreError when the offset is before the first byte or behind that end.
        """
        log = self._log
        end = log.flushed if self._is_sync else log.written
        if not log.first <= from_offset <= end:
            raise StoreError(
                f"byte {from_offset} is not in the log, which begins at {log.first} "
                f"and ends at {end}"
            )
        room = log.file_bytes - from_offset % log.file_bytes
        length = min(max_bytes, end - from_offset, room)
        data = log.read(from_offset, length, self.cached_only) if length > 0 else b""
        assert len(data) == max(length, 0), "the log has bytes that no file has"
        return data

    def entry(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        """(phy_offset, size, tags_code) of a visible message; None when there is none."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or not 0 <= queue_offset < queue.max_offset:
            return None
        return queue.entry(queue_offset, self.cached_only)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first offset of a queue whose message is still there; 0 for a queue never used."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.min_offset(self._log.first, self.cached_only)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset after the newest visible message of a queue; 0 for a queue never used."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def offset_by_time(self, topic: str, queue_id: int, ms: int, upper: bool = False) -> int:
        """The first message stored at or after `ms`; with `upper` the last at or before it."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        return offset_by_time(queue, self._log, ms, upper=upper, cached_only=self.cached_only)

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """When a message was stored, ms; -1 when there is none at this offset."""
        entry = self.entry(topic, queue_id, queue_offset)
        return -1 if entry is None else self._log.store_time(entry[0], self.cached_only)
