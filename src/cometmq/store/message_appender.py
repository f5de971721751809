"""Hot. The write path of the store: messages get their places, and each loop iteration one write.

A put gets its offsets at once; the bytes of all puts of one iteration of the event loop leave in
one write at its end. Then readers see them (SYNC_FLUSH: once they are on disk) and the callbacks of
`on_durable` are called. Knows nothing of readers, files and background work.
Invariant: what could not be written gives its offsets back before anything else is put.
Java: CommitLog.asyncPutMessage, CommitLog.handleDiskFlush.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from cometmq.store.log.record_template import LoopIterationBatch, RecordTemplate
from cometmq.store.message_draft import MessageDraft, is_topic
from cometmq.store.put_result import PutResult, PutStatus
from cometmq.wire.records import log_record, properties, sysflag

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.settings.store import StoreSettings
    from cometmq.store.durability import DurabilityConditions
    from cometmq.store.log.commit_log import CommitLog
    from cometmq.store.log.log_flush import DurableCallback, LogFlusher, QueueEntry
    from cometmq.store.message_visibility import VisibilityAdvancer
    from cometmq.store.queues.consume_queues import ConsumeQueues
    from cometmq.store.store_clock import StoreClock

log = logging.getLogger(__name__)
_HOST_BITS = sysflag.BORN_HOST_V6 | sysflag.STORE_HOST_V6
_NO_OFFSET = -1
_MAGIC_BYTES = 8
"""What follows the last record of a file at least: a blank's head."""


class MessageAppender:
    """Appends messages to one store. Belongs to its loop."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        flusher: LogFlusher,
        publisher: VisibilityAdvancer,
        settings: StoreSettings,
        clock: StoreClock,
        monotonic_ms: Callable[[], int],
        tags_code: Callable[[str, bytes, int], int],
        is_refusing: Callable[[], bool],
        conditions: DurabilityConditions,
    ) -> None:
        """`is_refusing`: whether the rest of the store can take no messages now."""
        self._log = commit_log
        self._queues = queues
        self._flusher = flusher
        self._publisher = publisher
        self._settings = settings
        self._clock = clock
        self._monotonic_ms = monotonic_ms
        self.tags_code = tags_code
        self.is_refusing = is_refusing
        """Whether something else than the log forbids puts now."""
        self._conditions = conditions
        self._put_times = flusher.put_times
        self._is_sync = settings.is_sync_flush
        self._with_crc = settings.append_crc
        crc_bytes = 1 + log_record.CRC_BYTES if settings.append_crc else 0
        self._properties_max = properties.BYTES_MAX - crc_bytes
        self.batch = self._batch = LoopIterationBatch(self._begin_template_batch)
        """What is put in this iteration of the loop; others only look at it."""
        self._callbacks: list[DurableCallback] = []
        self._conditional_callbacks: list[DurableCallback] = []
        self._is_batch_open = False
        self._is_write_failing = False
        self.last_store_ms = 0
        """The store time of the newest message: times never go back along the log."""
        self._host_bits = 0
        self.set_store_host(commit_log.store_host)

    def set_store_host(self, store_host: bytes) -> None:
        """Write this packed address into records from now on."""
        assert len(store_host) in (8, 20), "a packed address and its port"
        self._host_bits = sysflag.with_hosts(0, b"", store_host)
        self._log.store_host = store_host

    def adjust(self, settings: StoreSettings) -> None:
        """Work with these limits from now on."""
        self._settings = settings

    def current_store_ms(self) -> int:
        """The store time of what is put now: the one base of delays and ages."""
        return self.batch.store_ms or max(self._clock.now_ms(), self.last_store_ms, 1)

    def renew_store_time(self) -> None:
        """Let what is put next have the time of now, not of the loop iteration's first message."""
        self._batch.store_ms = 0

    # ---- putting

    def put(self, draft: MessageDraft) -> PutResult:
        """Give a message its place; its bytes leave at the end of the loop iteration.

        `on_durable` says when they are safe. A status other than PUT_OK means that nothing was
        kept. Must be called on the loop.
        """
        if not self._is_batch_open:
            self._begin_batch()
        if status := self._refusal():
            return self._refuse(status)
        raw, sys_flag, size, status = self._measure(draft)
        if status is not None:
            return self._refuse(status)
        self._log.make_room(size)
        return self._place(draft, raw, sys_flag)

    def put_batch(self, drafts: list[MessageDraft]) -> list[PutResult]:
        """Give messages of one queue places side by side in one file: all of them or none."""
        if not self._is_batch_open:
            self._begin_batch()
        measured = [self._measure(draft) for draft in drafts]
        status = self._refusal() or next((m[3] for m in measured if m[3] is not None), None)
        room = sum([m[2] for m in measured])
        if status is None and not self._log.fits(room):
            status = PutStatus.MESSAGE_ILLEGAL
        if status is not None:
            return [self._refuse(status) for _ in drafts]
        self._log.make_room(room)
        start = self._log.tail
        placed = [
            self._place(draft, raw, sys_flag)
            for draft, (raw, sys_flag, _, _) in zip(drafts, measured, strict=True)
        ]
        assert self._log.tail == start + room, "a record is not as long as it was measured"
        return placed

    def record_template(
        self,
        topic: str,
        queue_count: int,
        *,
        flag: int,
        sys_flag: int,
        born_host: bytes,
        reconsume_times: int,
    ) -> RecordTemplate:
        """Encode once what messages of one topic from one sender share; put them by its `put`."""
        settings = self._settings
        return RecordTemplate(
            topic,
            self._queues.get_or_create,
            queue_count,
            self._log,
            self._batch,
            flag=flag,
            sys_flag=sysflag.with_hosts(sys_flag, born_host, self._log.store_host),
            born_host=born_host,
            reconsume_times=reconsume_times,
            size_max=min(settings.max_message_bytes, settings.commit_log_file_bytes - _MAGIC_BYTES),
            with_crc=self._with_crc,
        )

    def on_durable(self, callback: DurableCallback, *, local_only: bool = False) -> None:
        """Have `callback` called on the loop once all that was put before is as safe as promised.

        That is: written (ASYNC_FLUSH), or durable (SYNC_FLUSH; after syncFlushTimeout it is called
        with FLUSH_DISK_TIMEOUT); and it meets all durability conditions, unless `local_only`.
        SERVICE_NOT_AVAILABLE: it could not be kept.
        """
        if not self._is_batch_open:
            self._begin_batch()
        if local_only or not self._conditions.active:
            self._callbacks.append(callback)
        else:
            self._conditional_callbacks.append(callback)

    def add_entries(self, entries: list[QueueEntry], store_ms: int) -> None:
        """Publish records that are in the log already, like messages put in this iteration."""
        if not self._is_batch_open:
            self._begin_batch()
        assert not self._log.pending, "messages and raw bytes in one batch"
        self._batch.entries += entries
        self.last_store_ms = max(self.last_store_ms, store_ms)
        self._clock.not_before(store_ms)

    def _refuse(self, status: PutStatus) -> PutResult:
        self._put_times.failed += 1
        return PutResult(status, _NO_OFFSET, 0, _NO_OFFSET, 0)

    def _refusal(self) -> PutStatus | None:
        """Why nothing at all can be put now, if so."""
        commit_log = self._log
        if self._flusher.failure or self.is_refusing():
            return PutStatus.SERVICE_NOT_AVAILABLE
        safe = commit_log.flushed if self._is_sync else commit_log.written
        assert safe <= commit_log.tail, "the log ends behind what is safe of it"
        if commit_log.tail - safe > self._settings.unwritten_bytes_max:
            return PutStatus.OS_PAGE_CACHE_BUSY
        return None

    def _measure(self, draft: MessageDraft) -> tuple[bytes, int, int, PutStatus | None]:
        """Properties and flag as they will be stored, the record's size, and what is wrong."""
        raw, topic, body = draft.properties, draft.topic, draft.body
        if properties.CRC32_KEY in raw:
            raw = properties.remove(raw, properties.CRC32_KEY)
        if len(raw) > self._properties_max:
            return raw, 0, 0, PutStatus.PROPERTIES_SIZE_EXCEEDED
        is_long = len(body) > self._settings.max_message_bytes and not draft.was_stored
        if is_long or not is_topic(topic):
            return raw, 0, 0, PutStatus.MESSAGE_ILLEGAL
        sys_flag = draft.sys_flag & ~_HOST_BITS | self._host_bits
        if len(draft.born_host) > 8:
            sys_flag |= sysflag.BORN_HOST_V6
        size = log_record.size_of(topic, body, raw, sys_flag, self._with_crc)
        if not self._log.fits(size):
            return raw, 0, 0, PutStatus.MESSAGE_ILLEGAL
        return raw, sys_flag, size, None

    def _place(self, draft: MessageDraft, raw: bytes, sys_flag: int) -> PutResult:
        now = self._batch.store_ms or self._take_batch_time()
        if not sysflag.is_queued(sys_flag):
            phy_offset, size = self._log.place(draft, raw, sys_flag, 0, now)
            return PutResult(PutStatus.PUT_OK, phy_offset, size, 0, now)
        queue = self._queues.get_or_create(draft.topic, draft.queue_id)
        queue_offset = queue.next_offset
        phy_offset, size = self._log.place(draft, raw, sys_flag, queue_offset, now)
        queue.next_offset = queue_offset + 1
        code = self.tags_code(draft.topic, raw, now)
        self._batch.entries.append((queue, phy_offset, size, code))
        return PutResult(PutStatus.PUT_OK, phy_offset, size, queue_offset, now)

    # ---- batches of one loop iteration

    def _begin_batch(self) -> None:
        loop = asyncio.get_running_loop()
        self._is_batch_open = True
        self._batch.started_s = loop.time()
        loop.call_soon(self._end_batch)

    def _begin_template_batch(self) -> int:
        """Check once a batch whether anything may be put; the batch's store time, 0 when not."""
        if self._refusal():
            return 0
        if not self._is_batch_open:
            self._begin_batch()
        return self._take_batch_time()

    def _take_batch_time(self) -> int:
        """The store time of this batch; never before that of an earlier one."""
        now_ms = self._monotonic_ms() + self._clock.offset_ms  # its `now_ms`, without a call more
        now_ms = max(now_ms, self.last_store_ms, 1)
        self._batch.store_ms = self.last_store_ms = now_ms
        return now_ms

    def _end_batch(self) -> None:
        """Write what this iteration put; publish it and call back, at once or after the flush."""
        batch, callbacks, conditional = self._batch, self._callbacks, self._conditional_callbacks
        entries = batch.entries
        self._is_batch_open = False
        batch.store_ms = 0
        batch.number += 1
        batch.entries, self._callbacks = [], []
        if conditional:
            self._conditional_callbacks = []
        log_begin = self._log.written
        try:
            self._log.write()
        except OSError as problem:
            self._take_back(entries, callbacks + conditional, problem)
            return
        if conditional:
            # Asked now, before the flush: replicas work while the disk does.
            callbacks.append(self._conditions.begin(log_begin, self._log.written, conditional))
        if self._is_write_failing and entries:
            self._is_write_failing = False
            log.warning("the log %s is written again", self._log.directory)
        if self._is_sync and (self._log.flushed < self._log.written or self._flusher.failure):
            self._flusher.request(entries, callbacks, self.last_store_ms, batch.started_s)
            return
        if entries:
            self._publisher.publish(entries, self.last_store_ms, ((len(entries), batch.started_s),))
        for callback in callbacks:
            callback(PutStatus.PUT_OK)

    def write_now(self) -> None:
        """Write what was put so far, before the loop iteration ends; or take it back, as then.

        Afterwards the log's tail is final: no failing write moves it back.
        """
        if self._log.pending:
            self._end_batch()
        assert self._log.tail == self._log.written, "messages still wait to be written"

    def end_last_batch(self) -> None:
        """Write and flush what was put so far, whatever flushDiskType says: the store stops."""
        self._end_batch()
        self._flusher.request([], [], self.last_store_ms)

    def _take_back(
        self, entries: list[QueueEntry], callbacks: list[DurableCallback], problem: OSError
    ) -> None:
        """Take back what could not be written: its offsets will be reused."""
        for queue, _, _, _ in entries:
            queue.next_offset -= 1
            assert queue.next_offset >= queue.max_offset, "a visible message was taken back"
        self._put_times.failed += len(entries)
        if not self._is_write_failing:
            self._is_write_failing = True
            log.warning(
                "the log %s cannot be written, sends are refused: %s", self._log.directory, problem
            )
        for callback in callbacks:
            callback(PutStatus.SERVICE_NOT_AVAILABLE)
