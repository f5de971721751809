"""Recovery: finds the end of the log after any kind of stop, and repairs what a crash left.

The log is replayed from the offset below which the checkpoint says that queue entries are durable;
after a clean stop of another broker from the newest queue entry on. Each record read is verified,
the log is cut after the last good one, and the queues are filled from it. Queue files that disagree
with the log are built anew; if a queue lacks entries, all queues are, from the whole log.
Invariant: a log that ends before what the checkpoint calls durable is refused, not cut.
Java: CommitLog.recoverNormally, recoverAbnormally.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from cometmq.errors import StoreCorrupt
from cometmq.store.log.last_record import NO_RECORD, LastRecord
from cometmq.store.log.log_reader import LogReader
from cometmq.store.queues.raw_entries import raw_entry
from cometmq.store.queues.record_dispatcher import RecordDispatcher
from cometmq.store.recovery.light_topics import is_light_queue
from cometmq.store.recovery.log_walk import LogWalk, start_by_time
from cometmq.store.recovery.lost_messages import cut_files, known_end, lost_begin, lost_end
from cometmq.store.recovery.queue_check import QueueCheck, durable_end_of, is_of_log
from cometmq.store.recovery.queue_repair import FILES_MAX, QueueRepair
from cometmq.wire.records.consume_queue_entry import FILLER_SIZE, SIZE
from cometmq.wire.records.log_record import has_checksum

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cometmq.store.log.commit_log import CommitLog
    from cometmq.store.queues.consume_queue import ConsumeQueue
    from cometmq.store.queues.consume_queues import ConsumeQueues
    from cometmq.store.recovery.checkpoint import Checkpoint
    from cometmq.store.recovery.log_walk import LostBytes
    from cometmq.wire.records.log_record import StoredRecord

    TagsCode = Callable[[str, bytes, int], int]

log = logging.getLogger(__name__)
_WRITE_EVERY = 65_536
_BEGIN_BYTES = 4096


class RecoveryResult(NamedTuple):
    """What recovery did: how many records it replayed, and the newest one."""

    records: int
    last: LastRecord
    checksums_from: int
    """From this byte of the log on every record has a checksum of its own."""


class _GapInQueue(Exception):
    """A queue lacks entries that the checkpoint counted."""


class Recovery:
    """One recovery of one store, before anything is put."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        checkpoint: Checkpoint,
        tags_code: TagsCode,
        *,
        check_crc: bool,
    ) -> None:
        self._mapped_files = mapped_files = commit_log.mapped_files
        self._log = commit_log
        self._queues = queues
        self._checkpoint = checkpoint
        self._tags_code = tags_code
        self._dispatcher = RecordDispatcher(queues, tags_code)
        self._deletions = queues.deletions
        self._reader = LogReader(
            mapped_files, check_crc=check_crc, with_checksum=checkpoint.with_checksum
        )
        self._checksums_from = 0
        self._replayed = range(0)
        self._lost: list[LostBytes] = []
        self._resumed: set[ConsumeQueue] = set()
        self._from_first = False
        self._was_stopped = self._is_same_boot = False
        self._records = 0
        self._last = NO_RECORD
        self._entry_count = 0

    def check(self, *, was_stopped: bool, is_same_boot: bool = False) -> None:
        """Raise for every reason to refuse the store, and say what is lost; changes nothing.

        `is_same_boot`: the machine has not gone down since the crash. StoreCorrupt: the log lacks
        what was durable, or a table cannot be read. NotAStore: a file has a strange name.
        """
        self._was_stopped = was_stopped
        self._is_same_boot = is_same_boot and not was_stopped
        self._deletions.load(self._mapped_files.first)
        self._queues.load()
        with ExitStack() as until_checked:
            for mapped_files in (
                self._mapped_files,
                *(queue.mapped_files for queue in self._queues),
            ):
                until_checked.enter_context(mapped_files.unchanged())
            self._leave_light_queues()
            self._refuse_short_log(was_stopped=was_stopped)
        self._report_damage()

    def _leave_light_queues(self) -> None:
        light = [
            queue
            for queue in self._queues
            if is_light_queue(queue.topic, queue.mapped_files, self._mapped_files)
        ]
        for queue in light:
            self._queues.forget(queue)
        if light:
            log.info("%d queues of light topics (%%LMQ%%...) are left as they are", len(light))

    def _report_damage(self) -> None:
        """Say what was lost before and between the files of the log, as far as their names tell."""
        mapped_files, checksums = self._mapped_files, self._queues.checksums
        if not self._checkpoint.is_known:
            checksums.clear()
        if lost := lost_begin(mapped_files.first, checksums):
            log.error("%s", lost)
        for path, size in cut_files(mapped_files):
            log.error(
                "%s has %d bytes, not %d: what it held behind them is lost; `cometmq store verify` "
                "names the messages",
                path,
                size,
                mapped_files.file_bytes,
            )

    def run(self) -> RecoveryResult:
        """Repair the store; afterwards log and queues continue after the last good record.

        `check` comes before it.
        """
        was_stopped = self._was_stopped
        self._queues.remove_empty()
        self._drop_deleted()
        counted = self._checkpoint.entries
        expected = counted - self._deletions.uncounted(self._checkpoint.dispatched, counted)
        try:
            self._repair_queues(was_stopped=was_stopped)
            start = self._checkpointed_end()
            is_checkpointed = start >= 0
            if not is_checkpointed:
                start = (
                    self._end_of_queues()
                    if was_stopped
                    else start_by_time(self._reader, self._mapped_files, self._checkpoint)
                )
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
        return RecoveryResult(self._records, self._last, self._checksums_from)

    def _drop_deleted(self) -> None:
        """Remove what a crash left of deleted topics' queues."""
        for queue in self._queues:
            phy_offset, size, _ = raw_entry(queue.mapped_files, queue.mapped_files.first // SIZE)
            if size > 0 and phy_offset < self._deletions.end_of(queue.topic):
                self._queues.remove(queue)

    def _refuse_short_log(self, *, was_stopped: bool) -> None:
        """StoreCorrupt when the log ends before the byte that it had reached."""
        mapped_files = self._mapped_files
        files = {(queue.topic, queue.queue_id): queue.mapped_files for queue in self._queues}
        known = known_end(
            self._checkpoint,
            files,
            mapped_files,
            was_stopped=was_stopped,
            is_same_boot=self._is_same_boot,
        )
        if known.end <= mapped_files.first or self._reader.at(known.newest) is not None:
            return
        start = min(mapped_files.base_of(known.newest), max(mapped_files.bases, default=0))
        walk = self._walk(max(start, mapped_files.first))
        for _ in walk.records():
            pass
        if walk.at < known.end:
            raise StoreCorrupt(lost_end(files, mapped_files.directory, walk.at, known.end))

    def _newest_checkpointed(self) -> StoredRecord | None:
        """The newest record that the checkpoint knows of, where it is whole."""
        record = self._reader.at(self._checkpoint.newest)
        if record is not None and record.phy_offset + record.size <= self._checkpoint.dispatched:
            return record
        return None

    def _repair_queues(self, *, was_stopped: bool) -> None:
        """Build anew the queue files that disagree with the log; _GapInQueue: they are too many."""
        checkpoint, deletions = self._checkpoint, self._deletions
        durable_end = durable_end_of(checkpoint, was_stopped=was_stopped)
        queues = {(queue.topic, queue.queue_id): queue for queue in self._queues}
        files = {name: queue.mapped_files for name, queue in queues.items()}
        checksums = self._queues.checksums
        checksums.forget_before(self._mapped_files.first, deletions.end_of)
        check = QueueCheck(self._mapped_files, files, checksums, durable_end, self._tags_code)
        if damaged := check.damaged():
            if len(damaged) > FILES_MAX:
                raise _GapInQueue(f"{len(damaged)} of their files disagree with it")
            get = self._queues.get_or_create
            QueueRepair(
                self._whole_records, self._mapped_files.first, deletions.end_of, self._tags_code
            ).run([(get(topic, queue_id), base) for topic, queue_id, base in damaged])
            for topic, queue_id, base in damaged:
                checksums.remove(get(topic, queue_id), base)

    def _whole_records(self, start: int) -> Iterator[StoredRecord]:
        return self._walk(start).records()

    def _walk(self, start: int) -> LogWalk:
        return LogWalk(self._reader, self._checkpoint, start, is_same_boot=self._is_same_boot)

    def _checkpointed_end(self) -> int:
        """The offset up to which log and queues are durable by the checkpoint; -1: not known."""
        checkpoint = self._checkpoint
        if not checkpoint.is_known or checkpoint.dispatched < self._mapped_files.first:
            return -1
        record = self._newest_checkpointed()
        size = record.size if record else checkpoint.dispatched - checkpoint.newest
        assert size > 0, "a checkpoint ends before its newest record"
        self._last = LastRecord(checkpoint.newest, size, record.store_ms if record else 0)
        return checkpoint.dispatched

    def _end_of_queues(self) -> int:
        """Where the newest queued record ends, after a clean stop of another broker."""
        for queue in self._queues:
            self._resume_at_end(queue, self._mapped_files.end)
        last = self._reader.at(self._last.phy_offset) if self._last.size else None
        if last is None:
            self._resumed.clear()
            self._last = NO_RECORD
            return start_by_time(self._reader, self._mapped_files, self._checkpoint)
        self._last = self._last._replace(store_ms=last.store_ms)
        return self._last.end

    def _replay(self, start: int) -> int:
        """Read and dispatch records from `start` on; where the last good one ends."""
        self._from_first = start == self._mapped_files.first
        known = self._checkpoint.with_checksum
        self._checksums_from = min(known.start, start) if known and start <= known.stop else start
        walk = self._walk(start)
        walk.store_ms = self._last.store_ms
        for record in walk.records():
            if not self._dispatch(record):
                break
        assert walk.at >= start, "a replay ends before it began"
        self._replayed, self._lost = range(start, walk.at), walk.lost
        for lost in walk.lost:
            log.error(
                "%s is damaged at byte %d: what bytes %d to %d of the log held is lost; "
                "`cometmq store verify` names the messages",
                self._mapped_files.path_of(self._mapped_files.base_of(lost.start)),
                lost.start % self._mapped_files.file_bytes,
                lost.start,
                lost.end,
            )
        return walk.at

    def _dispatch(self, record: StoredRecord) -> bool:
        """Give a record its queue entry; False: it is left over from before an earlier crash."""
        assert record.phy_offset >= self._last.end, "a record is replayed twice"
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
            assert queue.max_offset == queue.next_offset == number + 1, "an entry is missing"
        self._last = LastRecord(record.phy_offset, record.size, record.store_ms)
        if not has_checksum(record.properties):
            self._checksums_from = self._last.end
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
            if self._is_in_log(queue, middle, log_end):
                low = middle + 1
            else:
                high = middle
        assert queue.mapped_files.first // SIZE <= low <= queue.mapped_files.end // SIZE
        queue.begin_at(low)
        self._resumed.add(queue)
        self._entry_count += low
        if low:
            phy_offset, size, _ = raw_entry(queue.mapped_files, low - 1)
            if size != FILLER_SIZE and self._last.end < phy_offset + size <= log_end:
                self._last = LastRecord(phy_offset, size, 0)

    def _is_in_log(self, queue: ConsumeQueue, number: int, log_end: int) -> bool:
        """Whether an entry names a place in the log; what is there was checked, or is lost.

        Where all records were replayed and none of them was of this queue, an entry is left over
        from before an earlier power cut, which took its record; unless it names what damage took.
        """
        place, size, _ = raw_entry(queue.mapped_files, number)
        if size == FILLER_SIZE:
            return place < log_end
        if place in self._replayed and not any(at <= place < end for at, end, _ in self._lost):
            return False
        return 0 < size <= self._mapped_files.file_bytes and 0 <= place <= log_end - size

    def _entry_matches_log(self, queue: ConsumeQueue, number: int, log_end: int) -> bool:
        """Whether an entry is what the log says it must be, or older than the log."""
        place, size, _ = entry = raw_entry(queue.mapped_files, number)
        if place + size > log_end and self._mapped_files.first <= place and size != FILLER_SIZE:
            return False
        name = (queue.topic, queue.queue_id)
        return is_of_log(self._mapped_files, name, number, entry)

    def _resume_others(self, end: int) -> None:
        """Find the ends of all queues without replayed records."""
        for queue in self._queues:
            if queue not in self._resumed:
                self._resume_at_end(queue, end)

    def _finish(self, end: int, *, all_queues: bool) -> None:
        """Cut log and queues at their ends and make everything durable."""
        assert end >= self._last.end or self._last is NO_RECORD, "a good record would be cut"
        for base in [base for base in self._mapped_files.bases if base >= end > 0]:
            if any(self._mapped_files.read(base, _BEGIN_BYTES)):
                path = self._mapped_files.path_of(base)
                log.warning("%s is removed: it does not continue the log", path)
        self._mapped_files.cut(end)
        assert not self._mapped_files.bases or self._mapped_files.bases[-1] < end or end == 0
        self._log.begin_at(end)
        self._deletions.cut(end)
        assert 0 <= self._log.flushed == self._log.tail == end
        if self._records or all_queues:
            for segment in self._mapped_files.segments.values():
                segment.open().sync()
            self._queues.write_all_pending()
            for queue in self._queues:
                assert queue.written_offset == queue.max_offset == queue.next_offset
                self._queues.cut_behind_end(queue)
            self._queues.flush_all()
        if not self._mapped_files.bases:
            for queue in self._queues:
                self._queues.remove(queue)
