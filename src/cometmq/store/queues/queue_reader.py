"""Hot. What one pull gets: entries looked at, records copied out of the log, where to go on.

Neighbours in the log are copied as one run. Limits follow RocketMQ: old messages come in smaller
portions than fresh ones, the first message comes whatever its size. A large read has limits of its
own, for messages of any age.
Refuses to know requests and sessions. Java: DefaultMessageStore.getMessage.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate
from struct import Struct
from typing import TYPE_CHECKING

from cometmq.store.get_result import GetResult, GetStatus
from cometmq.store.log.mapped_file_queue import NotInMemory
from cometmq.store.property_filter import FilterNotReady
from cometmq.wire.records import log_record as stored
from cometmq.wire.records.consume_queue_entry import ENTRY, FILLER_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.settings.store import StoreSettings
    from cometmq.store.log.commit_log import CommitLog
    from cometmq.store.property_filter import PropertyFilter
    from cometmq.store.queues.consume_queue import ConsumeQueue

_Bounds = tuple[int, int, int, int]
"""Of one read: messages, bytes, where fresh messages begin, where those begin that are in memory
(0 for a read that is not large: it is small enough for either)."""

_FOUND = GetStatus.FOUND
_logger = logging.getLogger(__name__)
_are_whole = stored.are_whole
_entries = ENTRY.iter_unpack
_place_of = Struct(">qq").unpack_from
LARGE_LIMITS = (1024, 1024 * 1024)
"""Messages and bytes of a large read; more where the settings allow more."""
LARGE_SPAN_BYTES = 2 * 1024 * 1024
"""A large read of what may not be in memory ends there, so that the disk is asked few times."""
_REJECTED_BYTES_MAX = 2 * 1024 * 1024
"""Of records that a property filter rejects, so many are looked at for damage in one read."""
_REPORTED_MAX = 10_000
"""Skipped messages that are named in the log, each once."""


@lru_cache(maxsize=256)
def _flat(count: int) -> Struct:
    return Struct(">" + "qi8x" * count)


class QueueReader:
    """Reads queues for pulls. Belongs to the store's loop."""

    def __init__(self, log: CommitLog, settings: StoreSettings, ram_bytes: int) -> None:
        self._log = log
        self._fresh_bytes = ram_bytes * settings.memory_percent // 100
        self._reported: set[tuple[str, int, int]] = set()
        self.adjust(settings)

    def adjust(self, settings: StoreSettings) -> None:
        """Work with these limits from now on."""
        self._scan_max = settings.filter_scan_bytes_max // ENTRY.size
        self._fresh = (settings.transfer_count_in_memory_max, settings.transfer_bytes_in_memory_max)
        self._old = (settings.transfer_count_on_disk_max, settings.transfer_bytes_on_disk_max)
        self._large = (max(LARGE_LIMITS[0], self._fresh[0]), max(LARGE_LIMITS[1], self._fresh[1]))

    def get(
        self,
        queue: ConsumeQueue | None,
        queue_offset: int,
        max_count: int,
        max_bytes: int,
        match: Callable[[int], bool] | None,
        judge: PropertyFilter | None = None,
        cached_only: bool = False,
        is_large: bool | None = None,
    ) -> GetResult:
        """Messages from `queue_offset` on that are wanted; see `ReadContext.get`."""
        if queue is None or queue.max_offset == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0, b"", 0)
        high = queue.max_offset
        low = queue.min_offset(self._log.first, cached_only)
        if low <= queue_offset < high:
            log = self._log
            limits, fresh_from, near_from = self._fresh, log.written - self._fresh_bytes, 0
            if is_large:
                limits, fresh_from, near_from = self._large, 0, log.resident_from
            max_count = min(max_count, limits[0])
            max_bytes = min(max_bytes, limits[1])
            bounds = max_count, max_bytes, fresh_from, near_from
            if match is None and judge is None:
                got = self._read_all(queue, queue_offset, bounds, low, cached_only)
                if got is not None:
                    return got
            return self._scan(queue, queue_offset, bounds, match, judge, low, cached_only)
        if queue_offset < low:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high, b"", 0)
        if queue_offset == high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, queue_offset, low, high, b"", 0)
        return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high, b"", 0)

    def _read_all(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        bounds: _Bounds,
        low: int,
        cached_only: bool,
    ) -> GetResult | None:
        """Fresh records as they come, where there is nothing to choose: 14 us less for 32."""
        max_count, max_bytes, fresh_from, near_from = bounds
        raw = queue.read(queue_offset, max(max_count, 1), cached_only)
        if not raw:
            return None
        log = self._log
        if recent := log.recent_records(raw, fresh_from, max_bytes):
            count, body = recent
            return GetResult(_FOUND, queue_offset + count, low, queue.max_offset, body, count)
        count = len(raw) // ENTRY.size
        flat = _flat(count).unpack(raw)
        places, sizes = flat[::2], flat[1::2]
        total = sum(sizes)
        if places[0] < fresh_from or places[0] < log.first or min(sizes) <= 0:
            return None
        span_max = LARGE_SPAN_BYTES if places[0] < near_from else 0
        if total > max_bytes or span_max:  # a filler is longer than any answer
            ends = list(accumulate(sizes))
            count = bisect_right(ends, max_bytes)
            if span_max:
                count = min(count, bisect_right(places, places[0] + span_max))
            if not count:
                return None
            places, sizes, total = places[:count], sizes[:count], ends[count - 1]
        gathered = log.gather(places, sizes, total, cached_only, span_max)
        if gathered is None:
            return None
        if places[0] < log.life_start and not _are_whole(gathered, sizes, places, queue_offset):
            return None  # the scan finds out which are not, and leaves them out
        return GetResult(_FOUND, queue_offset + count, low, queue.max_offset, gathered, count)

    def _accepts(
        self,
        judge: PropertyFilter,
        queue_offset: int,
        scanned: int,
        phy_offset: int,
        size: int,
        cached_only: bool,
    ) -> bool | None:
        """Whether the filter accepts the record of an entry; None when the scan ends before it.

        What it rejects may be damage: a damaged record counts as wanted, and `_without_damaged`
        reports it and leaves it out.
        """
        log, number = self._log, queue_offset + scanned
        try:
            if judge.accepts(log.properties_at(phy_offset, size, cached_only)):
                return True
            if phy_offset >= log.life_start:
                return False
            return not self._is_whole(log.read(phy_offset, size, cached_only), number, phy_offset)
        except NotInMemory:
            if judge.may_stop and scanned:
                return None
            raise
        except FilterNotReady:
            if scanned:
                return None
            raise

    def _is_whole(self, raw: bytes, number: int, phy_offset: int) -> bool:
        """Whether these bytes are the record of this place and number, and not damaged."""
        must = phy_offset >= self._log.checksums_from
        is_whole = stored.is_whole_raw(raw, must_have_checksum=must)
        return is_whole and _place_of(raw, 20) == (number, phy_offset)

    def _scan_count(
        self,
        max_count: int,
        match: Callable[[int], bool] | None,
        judge: PropertyFilter | None,
    ) -> int:
        """How many entries one read looks at: more than it may return, where it has a choice."""
        if judge is not None:
            return max(min(max(self._scan_max, max_count), judge.scan_max), 1)
        return max(max_count if match is None else max(self._scan_max, max_count), 1)

    def _scan(  # noqa: C901 - one pass over the entries; calls would cost more than it does
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        bounds: _Bounds,
        match: Callable[[int], bool] | None,
        judge: PropertyFilter | None,
        low: int,
        cached_only: bool,
    ) -> GetResult:
        max_count, max_bytes, fresh_from, near_from = bounds
        log, first = self._log, self._log.first
        life_start, written, span_end = log.life_start, log.written, log.written
        old_count_max, old_bytes_max = min(max_count, self._old[0]), min(max_bytes, self._old[1])
        raw = queue.read(queue_offset, self._scan_count(max_count, match, judge), cached_only)
        runs: list[tuple[int, int]] = []
        from_disk: list[tuple[int, int, int]] = []
        run_start = run_end = total = count = scanned = removed = rejected_bytes = 0
        for phy_offset, size, tags_code in _entries(raw):
            if match is not None and not match(tags_code):
                scanned += 1
                continue
            if size <= 0 or not first <= phy_offset <= written - size:  # a filler is too long
                removed += 1
                if size != FILLER_SIZE:
                    self._report(queue, queue_offset + scanned, phy_offset, "its entry is broken")
                scanned += 1
                continue
            if judge is not None:
                wanted = self._accepts(judge, queue_offset, scanned, phy_offset, size, cached_only)
                if wanted is None or rejected_bytes > _REJECTED_BYTES_MAX:
                    break
                if not wanted:
                    rejected_bytes += size if phy_offset < life_start else 0
                    scanned += 1
                    continue
            total += size
            if count:
                if phy_offset < fresh_from:
                    if count >= old_count_max or total > old_bytes_max:
                        break
                elif count >= max_count or total > max_bytes or phy_offset > span_end:
                    break
            elif phy_offset < near_from:
                span_end = phy_offset + LARGE_SPAN_BYTES
            if phy_offset < life_start:
                from_disk.append((queue_offset + scanned, phy_offset, size))
            if phy_offset != run_end:
                if run_end:
                    runs.append((run_start, run_end))
                run_start = phy_offset
            run_end = phy_offset + size
            count += 1
            scanned += 1
        if count:
            runs.append((run_start, run_end))
            body = log.read_runs(runs, cached_only)
            if got := self._found(queue, queue_offset + scanned, low, body, count, from_disk):
                return got
        return self._nothing(queue, queue_offset, scanned, low, bool(raw), removed + count > 0)

    def _found(
        self,
        queue: ConsumeQueue,
        next_offset: int,
        low: int,
        body: bytes,
        count: int,
        from_disk: list[tuple[int, int, int]],
    ) -> GetResult | None:
        """The messages that a scan found; None where all of them are damaged."""
        if from_disk:
            body, skipped = self._without_damaged(queue, body, from_disk)
            count -= skipped
            if not count:
                return None
        high = queue.max_offset
        assert next_offset <= high
        return GetResult(GetStatus.FOUND, next_offset, low, high, body, count)

    def _nothing(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        scanned: int,
        low: int,
        has_entries: bool,
        removed: bool,
    ) -> GetResult:
        """Where to go on after a scan without a message."""
        high = queue.max_offset
        if not has_entries:
            self._report(queue, queue_offset, -1, "the queue has no file there")
            beyond = min(queue.next_file_offset(queue_offset), high)
            return GetResult(GetStatus.OFFSET_FOUND_NULL, beyond, low, high, b"", 0)
        status = GetStatus.MESSAGE_WAS_REMOVING if removed else GetStatus.NO_MATCHED_MESSAGE
        return GetResult(status, queue_offset + scanned, low, high, b"", 0)

    def _without_damaged(
        self, queue: ConsumeQueue, body: bytes, from_disk: list[tuple[int, int, int]]
    ) -> tuple[bytes, int]:
        """Leave out the records that the disk has damaged; those from it come first in `body`.

        What was written since the start is not looked at: it comes from memory.
        """
        parts, at, skipped = [], 0, 0
        for number, phy_offset, size in from_disk:
            # Not cut out of `body`: a broken entry may reach beyond a file, and it is short then.
            raw = self._log.read(phy_offset, size)
            at += len(raw)
            # The number is that of this entry, whatever other queue the record may be of.
            if self._is_whole(raw, number, phy_offset):
                parts.append(raw)
                continue
            self._report(queue, number, phy_offset, "its record is damaged")
            skipped += 1
        if not skipped:
            return body, 0
        parts.append(body[at:])
        return b"".join(parts), skipped

    def _report(self, queue: ConsumeQueue, number: int, phy_offset: int, why: str) -> None:
        """Say once that a message is skipped."""
        place = queue.topic, queue.queue_id, number
        if place in self._reported or len(self._reported) > _REPORTED_MAX:
            return
        self._reported.add(place)
        _logger.error(
            "consumers do not get %s queue %d offset %d: %s, at byte %d of the log; stop the "
            "broker and let `cometmq store verify` say more",
            *place,
            why,
            phy_offset,
        )
        if len(self._reported) > _REPORTED_MAX:
            _logger.error("from now on no message that is skipped is named")
