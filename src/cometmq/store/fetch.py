"""Hot. What one pull gets: entries looked at, records copied out of the log, where to go on.

Neighbours in the log are copied as one run. Limits follow RocketMQ: old messages come in smaller
helpings than fresh ones, the first message comes whatever its size.
Refuses to know requests and sessions. Java: DefaultMessageStore.getMessage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.store.results import GetStatus, Got
from cometmq.wire.queue_entry import ENTRY, FILLER_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.settings.store import StoreSettings
    from cometmq.store.commit_log import CommitLog
    from cometmq.store.consume_queue import ConsumeQueue

_entries = ENTRY.iter_unpack


class Fetch:
    """Reads queues for pulls. Belongs to the store's loop."""

    def __init__(self, log: CommitLog, settings: StoreSettings, ram_bytes: int) -> None:
        self._log = log
        self._fresh_bytes = ram_bytes * settings.memory_percent // 100
        self._scan_max = settings.filter_scan_bytes_max // ENTRY.size
        self._fresh = (settings.transfer_count_in_memory_max, settings.transfer_bytes_in_memory_max)
        self._old = (settings.transfer_count_on_disk_max, settings.transfer_bytes_on_disk_max)

    def get(
        self,
        queue: ConsumeQueue | None,
        queue_offset: int,
        max_count: int,
        max_bytes: int,
        match: Callable[[int], bool] | None,
    ) -> Got:
        """Messages from `queue_offset` on whose tags code matches; see `MessageStore.get`."""
        if queue is None or queue.max_offset == 0:
            return Got(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0, b"", 0)
        low, high = queue.min_offset(self._log.first), queue.max_offset
        if low <= queue_offset < high:
            return self._scan(queue, queue_offset, max_count, max_bytes, match, low)
        if queue_offset < low:
            return Got(GetStatus.OFFSET_TOO_SMALL, low, low, high, b"", 0)
        if queue_offset == high:
            return Got(GetStatus.OFFSET_OVERFLOW_ONE, queue_offset, low, high, b"", 0)
        return Got(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high, b"", 0)

    def _scan(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        max_count: int,
        max_bytes: int,
        match: Callable[[int], bool] | None,
        low: int,
    ) -> Got:
        log, first, high = self._log, self._log.first, queue.max_offset
        most = self._fresh[0] if match is None else max(self._scan_max, max_count)
        raw = queue.read(queue_offset, min(most, max_count) if match is None else most)
        fresh_from = log.written - self._fresh_bytes
        runs: list[bytes] = []
        run_start = run_end = total = count = scanned = 0
        removed = False
        for phy_offset, size, tags_code in _entries(raw):
            if match is not None and not match(tags_code):
                scanned += 1
                continue
            if size == FILLER_SIZE or size <= 0 or phy_offset < first:
                removed = True
                scanned += 1
                continue
            count_max, bytes_max = self._fresh if phy_offset >= fresh_from else self._old
            if count and (
                count >= max_count
                or count >= count_max
                or total + size > bytes_max
                or total + size > max_bytes
            ):
                break
            if phy_offset != run_end:
                if run_end:
                    runs.append(log.read(run_start, run_end - run_start))
                run_start = phy_offset
            run_end = phy_offset + size
            total += size
            count += 1
            scanned += 1
        next_offset = queue_offset + scanned
        if count:
            runs.append(log.read(run_start, run_end - run_start))
            return Got(GetStatus.FOUND, next_offset, low, high, b"".join(runs), count)
        if not raw:
            after = queue.row.base_of(queue_offset * ENTRY.size) + queue.row.file_bytes
            beyond = min(after // ENTRY.size, high)
            return Got(GetStatus.OFFSET_FOUND_NULL, beyond, low, high, b"", 0)
        status = GetStatus.MESSAGE_WAS_REMOVING if removed else GetStatus.NO_MATCHED_MESSAGE
        return Got(status, next_offset, low, high, b"", 0)
