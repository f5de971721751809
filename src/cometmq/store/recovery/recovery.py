"""Recovery: finds the end of the log after any kind of stop, and repairs what a crash left.

After a clean stop the newest queue entry gives the end of the log. After a crash the log is
replayed from the offset below which the checkpoint says that queue entries are durable. Each record
read is verified, the log is cut after the last good one, and the queues are filled from it. If a
queue lacks entries that the log still has, all queues are rebuilt from the whole log.
Invariant: nothing is cut before a record that the checkpoint calls flushed.
Java: CommitLog.recoverNormally, recoverAbnormally.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from cometmq.errors import ProtocolError
from cometmq.store.log.log_reader import LogReader
from cometmq.store.queues.record_dispatcher import RecordDispatcher
from cometmq.wire.records import log_record as stored
from cometmq.wire.records.consume_queue_entry import ENTRY, FILLER_SIZE, SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.store.log.commit_log import CommitLog
    from cometmq.store.log.mapped_file_queue import MappedFileQueue
    from cometmq.store.queues.consume_queue import ConsumeQueue
    from cometmq.store.queues.consume_queues import ConsumeQueues
    from cometmq.store.recovery.checkpoint import Checkpoint
    from cometmq.wire.records.log_record import StoredRecord

    TagsCode = Callable[[str, bytes, int], int]

log = logging.getLogger(__name__)
_WRITE_EVERY = 65_536


class LastRecord(NamedTuple):
    """The newest good record: where, how long, when stored."""

    phy_offset: int
    size: int
    store_ms: int

    @property
    def end(self) -> int:
        """The offset after it."""
        return self.phy_offset + self.size


NO_RECORD = LastRecord(-1, 0, 0)


class RecoveryResult(NamedTuple):
    """What recovery did: how many records it replayed, and the newest one."""

    records: int
    last: LastRecord


class _GapInQueue(Exception):
    """A queue lacks entries that the checkpoint counted."""


class Recovery:
    """One recovery of one store, before anything is put."""

    def __init__(
        self,
        mapped_files: MappedFileQueue,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        checkpoint: Checkpoint,
        tags_code: TagsCode,
        *,
        check_crc: bool,
    ) -> None:
        self._mapped_files = mapped_files
        self._log = commit_log
        self._queues = queues
        self._checkpoint = checkpoint
        self._dispatcher = RecordDispatcher(queues, tags_code)
        self._deletions = queues.deletions
        self._reader = LogReader(mapped_files, check_crc=check_crc)
        self._resumed: set[ConsumeQueue] = set()
        self._from_first = False
        self._records = 0
        self._last = NO_RECORD
        self._entry_count = 0

    def run(self, *, was_stopped: bool) -> RecoveryResult:
        """Repair the store; afterwards log and queues continue after the last good record."""
        self._deletions.load(self._mapped_files.first)
        self._queues.load()
        self._drop_deleted()
        counted = self._checkpoint.entries
        expected = counted - self._deletions.uncounted(self._checkpoint.dispatched, counted)
        try:
            start = self._checkpointed_end()
            is_checkpointed = start >= 0
            if not is_checkpointed:
                start = self._end_of_queues() if was_stopped else self._start_by_time()
            end = self._replay(start)
            self._resume_others(end)
            if is_checkpointed and self._entry_count != expected:
                raise _GapInQueue(f"they have {self._entry_count} entries, not {expected}")
        except _GapInQueue as gap:
            log.warning("building the queues anew from the whole log: %s", gap)
            self._resumed.clear()
            self._last = NO_RECORD
            end = self._replay(self._mapped_files.first)
            self._resume_others(end)
        self._finish(end, all_queues=not was_stopped or self._from_first)
        return RecoveryResult(self._records, self._last)

    def _drop_deleted(self) -> None:
        """Remove what a crash left of deleted topics' queues."""
        for queue in self._queues:
            phy_offset, size, _ = _raw_entry(queue, queue.mapped_files.first // SIZE)
            if size > 0 and phy_offset < self._deletions.end_of(queue.topic):
                self._queues.remove(queue)

    def _checkpointed_end(self) -> int:
        """The offset up to which log and queues are durable by the checkpoint; -1: not known."""
        dispatched, newest = self._checkpoint.dispatched, self._checkpoint.newest
        if dispatched >= self._mapped_files.first and newest >= 0:
            record = self._reader.at(newest)
            if record is not None and newest + record.size <= dispatched:
                self._last = LastRecord(newest, record.size, record.store_ms)
                return dispatched
        return -1

    def _end_of_queues(self) -> int:
        """Where the newest queued record ends, after a clean stop of another broker."""
        for queue in self._queues:
            self._resume_at_end(queue, self._mapped_files.end)
        last = self._reader.at(self._last.phy_offset) if self._last.size else None
        if last is None:
            self._resumed.clear()
            self._last = NO_RECORD
            return self._start_by_time()
        self._last = self._last._replace(store_ms=last.store_ms)
        return self._last.end

    def _start_by_time(self) -> int:
        """The first record of the newest file that the checkpoint's times cover."""
        safe_ms = self._checkpoint.safe_ms
        for base in reversed(self._mapped_files.bases):
            record = self._reader.at(base)
            if record is not None and record.store_ms <= safe_ms:
                return base
        return self._mapped_files.first

    def _replay(self, start: int) -> int:
        """Read and dispatch records from `start` on; where the last good one ends."""
        self._from_first = start == self._mapped_files.first
        at = start
        while True:
            record = self._reader.at(at)
            if record is None:
                following = self._following(at)
                if following < 0:
                    return at
                at = following
            elif self._dispatch(record):
                at += record.size
            else:
                return at

    def _following(self, at: int) -> int:
        """The next file's begin, where one file ended well or was damaged long ago; else -1."""
        following = self._reader.next_file(at)
        if following >= 0 or not self._mapped_files.bases:
            return following
        base = self._mapped_files.base_of(at)
        for later in self._mapped_files.bases:
            if later > base and (record := self._reader.at(later)) is not None:
                if record.store_ms >= self._checkpoint.log_ms:
                    return -1
                log.error(
                    "%s is damaged at byte %d; its messages from there on are lost, "
                    "those of %s are kept",
                    self._mapped_files.path_of(base),
                    at - base,
                    self._mapped_files.path_of(later),
                )
                room = self._mapped_files.file_bytes - (at - base)
                self._mapped_files.write(at, stored.BLANK.pack(room, stored.MAGIC_BLANK))
                return later
        return -1

    def _dispatch(self, record: StoredRecord) -> bool:
        """Give a record its queue entry; False: it is left over from before an earlier crash."""
        queue = self._dispatcher.queue_of(record)
        if queue is not None:
            number = record.queue_offset
            if number < 0:
                return False  # damage that no checksum was checked for
            if queue not in self._resumed:
                self._resume_queue(queue, number)
            elif number < queue.next_offset:
                if record.store_ms < self._last.store_ms:
                    return False
                self._queues.cut(queue, number)  # the topic was deleted and made again
            entries = self._dispatcher.entries(record, queue)
            if entries is None:
                return False
            self._queues.append(entries)
        self._last = LastRecord(record.phy_offset, record.size, record.store_ms)
        self._records += 1
        if not self._records % _WRITE_EVERY:
            self._queues.write_all_pending()
        return True

    def _resume_queue(self, queue: ConsumeQueue, number: int) -> None:
        """Find where a queue ends, at its first replayed record."""
        self._resumed.add(queue)
        self._entry_count += number
        if number == 0 or self._entry_matches_log(queue, number - 1, self._mapped_files.end):
            self._queues.cut(queue, number)
        elif self._from_first:
            self._queues.cut(queue, 0)
            queue.begin_at(number)
        else:
            raise _GapInQueue(f"{queue.topic} queue {queue.queue_id} lacks entry {number - 1}")

    def _resume_at_end(self, queue: ConsumeQueue, log_end: int) -> None:
        """Find the end of a queue without replayed records, by binary search."""
        low, high = queue.mapped_files.first // SIZE, queue.mapped_files.end // SIZE
        while low < high:
            middle = (low + high) // 2
            if self._entry_matches_log(queue, middle, log_end):
                low = middle + 1
            else:
                high = middle
        assert low <= max(high, queue.mapped_files.end // SIZE)
        queue.begin_at(low)
        self._resumed.add(queue)
        self._entry_count += low
        if low:
            phy_offset, size, _ = _raw_entry(queue, low - 1)
            if size != FILLER_SIZE and self._last.end < phy_offset + size <= log_end:
                self._last = LastRecord(phy_offset, size, 0)

    def _entry_matches_log(self, queue: ConsumeQueue, number: int, log_end: int) -> bool:
        """Whether an entry is what the log says it must be, or older than the log."""
        phy_offset, size, _ = _raw_entry(queue, number)
        if size <= 0 or phy_offset < 0:
            return False
        if size == FILLER_SIZE or phy_offset < self._mapped_files.first:
            return True
        if phy_offset + size > log_end or size > self._mapped_files.file_bytes:
            return False
        try:
            record = stored.decode(self._mapped_files.read(phy_offset, size))
        except ProtocolError:
            return False
        return (record.phy_offset, record.queue_offset, record.queue_id, record.topic) == (
            phy_offset,
            number,
            queue.queue_id,
            queue.topic,
        )

    def _resume_others(self, end: int) -> None:
        """Find the ends of all queues without replayed records."""
        for queue in self._queues:
            if queue not in self._resumed:
                self._resume_at_end(queue, end)

    def _finish(self, end: int, *, all_queues: bool) -> None:
        """Cut log and queues at their ends and make everything durable."""
        assert end >= self._last.end or self._last is NO_RECORD, "a good record would be cut"
        self._mapped_files.cut(end)
        assert not self._mapped_files.bases or self._mapped_files.bases[-1] < end or end == 0
        self._log.begin_at(end)
        assert 0 <= self._log.flushed == self._log.tail == end
        if self._records or all_queues:
            for segment in self._mapped_files.segments.values():
                segment.open().sync()
            self._queues.write_all_pending()
            for queue in self._queues:
                assert queue.written_offset == queue.max_offset == queue.next_offset
                queue.mapped_files.cut(queue.max_offset * SIZE)
            self._queues.flush_all()
        if not self._mapped_files.bases:
            for queue in self._queues:
                self._queues.remove(queue)


def _raw_entry(queue: ConsumeQueue, number: int) -> tuple[int, int, int]:
    """An entry as the files have it, also beyond the end of the queue."""
    raw = queue.mapped_files.read(number * SIZE, SIZE)
    return ENTRY.unpack(raw) if len(raw) == SIZE else (0, 0, 0)
