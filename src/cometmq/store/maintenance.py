"""What a store does beside puts and gets: flush, write queue entries, write checkpoints, clean up.

Holds no messages. A round that fails for want of room is reported once, and puts are refused until
one succeeds. Invariant: the checkpoint names an offset only after every record below it is durable
and has a durable queue entry.
Java: FlushConsumeQueueService, StoreCheckpoint, CleanCommitLogService.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from cometmq.runtime.background import BackgroundTasks
from cometmq.runtime.worker_jobs import run_job
from cometmq.store.log.file_preallocation import FilePreallocator
from cometmq.store.log.last_record import NO_RECORD, LastRecord
from cometmq.store.put_result import PutStatus
from cometmq.store.queues.deleted_topics import DeletedTopic
from cometmq.store.store_clock import FOLLOW_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cometmq.runtime.clock_and_file_protocols import Worker
    from cometmq.settings.store import StoreSettings
    from cometmq.store.index.key_index import IndexPosition, KeyIndex
    from cometmq.store.log.commit_log import CommitLog
    from cometmq.store.log.log_flush import LogFlusher
    from cometmq.store.log.retention import Retention
    from cometmq.store.message_visibility import VisibilityAdvancer
    from cometmq.store.queues.consume_queues import ConsumeQueues
    from cometmq.store.recovery.checkpoint import Checkpoint
    from cometmq.store.store_clock import StoreClock

log = logging.getLogger(__name__)
_PAGE = 4096
_INDEX_S = 0.05
_NEXT_FILE_S = 0.25
_CHECKSUMS_MS = 60_000
"""How old the checksums of queue files become: 1 us a file to encode, on the loop."""


class Maintenance:
    """The background work of one store. Belongs to the store's loop."""

    def __init__(
        self,
        settings: StoreSettings,
        monotonic_ms: Callable[[], int],
        store_clock: StoreClock,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        checkpoint: Checkpoint,
        flusher: LogFlusher,
        publisher: VisibilityAdvancer,
        retention: Retention,
        index: KeyIndex,
        worker: Worker,
    ) -> None:
        self._settings = settings
        self._monotonic_ms = monotonic_ms
        self._store_clock = store_clock
        self._log = commit_log
        self._queues = queues
        self._checkpoint = checkpoint
        self._flusher = flusher
        self._publisher = publisher
        self._retention = retention
        self._index = index
        self._worker = worker
        self._background = BackgroundTasks("store")
        self.preallocator = FilePreallocator(commit_log, worker)
        """Makes the log's next file before it is needed."""
        self._flush_due_ms = self._checkpoint_due_ms = self._checksums_due_ms = 0
        self._deletions = self._checkpointed_deletions = 0
        self._checkpointed_entries: Counter[str] = Counter()
        self.is_queue_write_failing = False
        """Whether queue entries could not be written; they wait in memory."""

    def start(self, follow_log: Callable[[], Awaitable[None]]) -> None:
        """Begin the periodic work on the running loop; `follow_log` fills the key index."""
        settings, every = self._settings, self._background.every
        if not settings.is_sync_flush:
            every(settings.flush_interval_ms / 1000, self.flush_if_due, name="flush")
        every(settings.flush_interval_consume_queue_ms / 1000, self.write_queues, name="queues")
        every(_NEXT_FILE_S, self.preallocator.preallocate_if_due, name="next log file")
        every(settings.clean_interval_ms / 1000, self.clean, name="clean")
        every(FOLLOW_S, self._store_clock.follow, name="store clock")
        if settings.message_index_enable:
            every(_INDEX_S, follow_log, name="key index")

    async def stop(self) -> None:
        """End the periodic work."""
        await self._background.stop()
        await self.preallocator.discard()

    def flush_if_due(self) -> None:
        """Start a flush of the log when enough was written, or long ago."""
        written, now = self._log.written - self._log.flushed, self._monotonic_ms()
        assert written >= 0, "more is flushed than was written"
        is_due = now >= self._flush_due_ms
        if written >= self._settings.flush_least_pages * _PAGE or (written and is_due):
            self._flusher.request([], [], self._publisher.newest_visible.store_ms)
            self._flush_due_ms = now + self._settings.flush_thorough_interval_ms

    async def write_queues(self) -> None:
        """Write waiting queue entries; now and then make them durable and say so."""
        try:
            if self._queues.has_unwritten:
                await self._queues.write_pending()
            if self.is_queue_write_failing:
                log.warning("queue entries are written again")
            self.is_queue_write_failing = False
            await self._write_deletions()
            now = self._monotonic_ms()
            if now >= self._checkpoint_due_ms or self._index.is_write_due:
                self._checkpoint_due_ms = (
                    now + self._settings.flush_consume_queue_thorough_interval_ms
                )
                await self.checkpoint_queues()
        except OSError as problem:
            if not self.is_queue_write_failing:
                log.warning("queue entries cannot be written, sends are refused: %s", problem)
            self.is_queue_write_failing = True

    async def _write_deletions(self) -> None:
        deletions = self._queues.deletions
        if deletions.is_stale:
            deletions.is_stale = False  # before the write: it may become stale meanwhile
            is_on = False
            try:
                await run_job(self._worker, deletions.writing())
                is_on = True
            finally:
                deletions.is_stale = deletions.is_stale or not is_on

    def deletion_mark(self, topic: str) -> DeletedTopic:
        """What recovery must know of a topic that is deleted now; nothing waits to be written."""
        checkpoint = self._checkpoint
        assert not self._log.pending, "a write that fails would leave the mark behind the log's end"
        return DeletedTopic(
            end=self._log.tail,
            entries=self._checkpointed_entries[topic],
            dispatched=checkpoint.dispatched,
            counted=checkpoint.entries,
        )

    def checkpoint_soon(self) -> None:
        """Move the checkpoint in the next round: queues were deleted."""
        self._checkpoint_due_ms = 0
        self._deletions += 1

    async def checkpoint_queues(self) -> None:
        """Make all that readers see now durable, entries included, and move the checkpoint."""
        newest_visible, entries = self._publisher.newest_visible, self._queues.entries()
        deletions, checkpoint = self._deletions, self._checkpoint
        is_news = (
            newest_visible.end > checkpoint.dispatched
            or deletions > self._checkpointed_deletions
            or self._index.is_ahead_of(checkpoint.index_mark)
        )
        assert deletions >= self._checkpointed_deletions, "more deletions are saved than were made"
        if newest_visible is NO_RECORD or not is_news:
            return
        self._index.is_paused = True  # what is indexed by now will be written, after the log
        try:
            if not await self._is_flushed(newest_visible):
                return
            mark = self._index.mark()
            writes = await self._index.begin_writes()
        finally:
            self._index.is_paused = False
        is_on = False
        try:
            await self._queues.write_pending()
            checksums = self._due_checksums()
            await self._queues.flush(self._worker)
            is_on = True
        finally:
            if not is_on:
                self._index.cancel_writes(writes)
        await self._index.flush(writes, self._worker)
        if checksums is not None:
            await run_job(self._worker, partial(self._queues.checksums.write, checksums))
        if deletions != self._deletions:
            return  # queues were deleted meanwhile: what was counted is no longer so
        assert newest_visible.end >= checkpoint.dispatched, "a checkpoint goes back"
        self._record_checkpoint(newest_visible, entries, mark)
        await run_job(self._worker, checkpoint.save)
        self._checkpointed_deletions = deletions

    def _due_checksums(self) -> bytes | None:
        """Those of the queue files as they are now, once a minute and when the log lost files."""
        checksums, now = self._queues.checksums, self._monotonic_ms()
        if now < self._checksums_due_ms and checksums.log_first == self._log.first:
            return None
        self._checksums_due_ms = now + _CHECKSUMS_MS
        return checksums.encode(self._queues, self._log.first)

    def checkpoint_now(self) -> None:
        """Write and flush the queues and move the checkpoint here and now; the log is flushed."""
        if self._queues.deletions.is_stale:  # else a topic that was to stay goes at the next start
            self._queues.deletions.writing()()
            self._queues.deletions.is_stale = False
        self._queues.write_all_pending()
        self._queues.flush_all()
        self._index.flush_now()
        if self._publisher.newest_visible is not NO_RECORD:
            self._record_checkpoint(
                self._publisher.newest_visible, self._queues.entries(), self._index.mark()
            )
        checksums = self._queues.checksums
        checksums.write(checksums.encode(self._queues, self._log.first))
        self._checkpoint.save()

    def _record_checkpoint(
        self, newest_visible: LastRecord, entries: Counter[str], mark: IndexPosition
    ) -> None:
        checkpoint = self._checkpoint
        assert newest_visible.end <= self._log.flushed, "a checkpoint of what is not durable"
        assert entries.total() >= 0
        self._checkpointed_entries = entries
        checkpoint.entries = entries.total()
        checkpoint.dispatched = newest_visible.end
        checkpoint.newest = newest_visible.phy_offset
        is_known = self._log.checksums_from <= newest_visible.end
        checkpoint.checksums_from = self._log.checksums_from if is_known else -1
        checkpoint.log_ms = checkpoint.queues_ms = newest_visible.store_ms
        if self._index.is_enabled:
            checkpoint.index_mark = mark.name, mark.number, mark.position
            checkpoint.index_ms = mark.end_ms

    async def clean(self) -> None:
        """Delete files that are past their retention."""
        try:
            await self._retention.clean()
        except OSError as problem:
            log.warning("old files cannot be deleted: %s", problem)

    async def _is_flushed(self, newest_visible: LastRecord) -> bool:
        """Wait until the log is durable up to here; False when it did not get there in time."""
        if self._log.flushed >= newest_visible.end:
            return True
        answer: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()

        def done(status: PutStatus) -> None:
            if not answer.done():
                answer.set_result(status)

        self._flusher.request([], [done], newest_visible.store_ms)
        return await answer is PutStatus.PUT_OK
