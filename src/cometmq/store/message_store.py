"""The door of the store: put messages, get them back, know what is safe.

A put gets its offsets at once; the bytes of all puts of one turn of the loop leave in one write at
its end, and then readers see them (SYNC_FLUSH: once they are on disk). `settle` says when.
Refuses to know requests, topics' settings and consumers.
Invariant: what was answered PUT_OK is found again after any crash that flushDiskType covers.
Java: DefaultMessageStore.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from typing import TYPE_CHECKING

from cometmq.errors import StoreError, StoreFull
from cometmq.runtime.system import ThreadWorker, ram_bytes
from cometmq.store.cold_reads import Aside
from cometmq.store.index.key_index import KeyIndex
from cometmq.store.index.key_lookup import Lookup
from cometmq.store.log.commit_log import CommitLog
from cometmq.store.log.log_flush import Group, LogFlush
from cometmq.store.log.mapped_file_queue import FileRow, OpenFiles
from cometmq.store.log.record_template import Lane, Turn
from cometmq.store.log.retention import Retention
from cometmq.store.maintenance import Upkeep
from cometmq.store.queues.consume_queues import Queues, run
from cometmq.store.queues.offset_by_time import offset_by_time
from cometmq.store.queues.queue_reader import Fetch
from cometmq.store.queues.topic_deletion import TopicDeletion
from cometmq.store.recovery.checkpoint import Checkpoint
from cometmq.store.recovery.recovery import Last, Recovery
from cometmq.store.recovery.store_directory import Layout, check_files
from cometmq.store.results import Draft, GetStatus, Got, Placed, PutStatus, is_topic
from cometmq.wire import log_record as stored
from cometmq.wire import properties, sysflag

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cometmq.runtime.ports import Clock, Files, Worker
    from cometmq.settings.store import StoreSettings
    from cometmq.store.log.log_flush import Done, Entry
    from cometmq.store.results import Judge

__all__ = ["Draft", "GetStatus", "Got", "MessageStore", "Placed", "PutStatus"]

log = logging.getLogger(__name__)
_CLOSED = OpenFiles(1)
_HOST_BITS = sysflag.BORN_HOST_V6 | sysflag.STORE_HOST_V6
_NO_PLACE = -1
_LAST_CATCH_UP_MS = 3_000


def _nobody(topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
    """Nobody waits for arrivals yet."""


class MessageStore:
    """One broker's messages. Everything but `open` runs on one loop.

    `aside` asks what may need the disk, `lookup` finds by key, `deletion` deletes topics; none
    holds up the loop.
    """

    def __init__(
        self,
        layout: Layout,
        settings: StoreSettings,
        clock: Clock,
        files: Files,
        tags_code: Callable[[str, bytes, int], int],
        store_host: bytes,
        worker: Callable[[str], Worker],
        ram: int,
    ) -> None:
        """For `open`, which is the way to a store."""
        self._layout, self._settings, self._clock = layout, settings, clock
        self.tags_code = tags_code
        self._workers = worker("store-flush"), worker("store-queues")
        self.is_sync = settings.is_sync_flush
        self._with_crc = settings.append_crc
        self._properties_max = properties.BYTES_MAX - (21 if settings.append_crc else 0)
        self._host_bits = sysflag.with_hosts(0, b"", store_host)
        opened = OpenFiles(settings.open_files_max)
        size, queue_size = settings.commit_log_file_bytes, settings.consume_queue_file_bytes
        self._row = FileRow(files, layout.commit_log, size, opened, mapped=True)
        self._queues = Queues(files, layout.consume_queue, queue_size, opened)
        self._row.load()
        self._log = CommitLog(self._row, store_host, ram, with_crc=self._with_crc)
        self._checkpoint = Checkpoint(files, layout.checkpoint)
        self._fetch = Fetch(self._log, settings, ram)
        self._flush = LogFlush(
            self._log, self._workers[0], settings.sync_flush_timeout_ms, self._show
        )
        self.put_times = self._flush.times
        self._index = KeyIndex(files, clock, layout.index, settings, self._log, opened)
        self.aside = Aside(opened, [worker("store-reads") for _ in range(settings.read_threads)])
        behind = self._workers[1]
        self._retention = Retention(
            settings, clock, self._row, self._log, self._queues, self._index, self.aside, behind
        )
        self._upkeep = Upkeep(
            *(settings, clock, self._log, self._queues, self._checkpoint),
            *(self._flush, self._retention, self._index, behind),
        )
        self.lookup = Lookup(
            self._index, self.aside, lambda: self._upkeep.shown.end, self.record_at, clock.now_ms
        )
        self.deletion = TopicDeletion(self._queues, self._upkeep, behind)
        self.on_arrival: Callable[[str, int, int, int], None] = _nobody
        """(topic, queue_id, new max offset, tags code) of messages that became visible, once for
        all of one turn, queue and code."""
        self._asked: list[Done] = []
        self._turn = Turn(self._begin_lane_turn)
        self._last_ms = 0
        self._is_ticking = self._is_stopped = self._is_write_failing = False
        self.turn = 0
        """Counts the turns of the loop in which something was put or asked."""

    @classmethod
    def open(
        cls,
        root: Path,
        settings: StoreSettings,
        *,
        clock: Clock,
        files: Files,
        tags_code: Callable[[str, bytes, int], int],
        store_host: bytes,
        worker: Callable[[str], Worker] = ThreadWorker,
        ram: int | None = None,
    ) -> MessageStore:
        """Lock the directory (made when missing), mend what a crash left, and open it; blocks.

        `tags_code(topic, raw properties, store_ms)` gives the number a consumer's filter sees;
        `store_host` is the packed address written into records; with `ram` bytes of memory some of
        the log counts as fresh. Raises StoreLocked, NotAStore, StoreCorrupt, StoreFull, StoreError.
        """
        layout = Layout(files, root)
        store: MessageStore | None = None
        try:
            layout.check()
            check_files(FileRow(files, layout.commit_log, settings.commit_log_file_bytes, _CLOSED))
            layout.take()
            memory = ram_bytes() if ram is None else ram
            opening = cls(layout, settings, clock, files, tags_code, store_host, worker, memory)
            opening._recover()
            store = opening
        except OSError as problem:
            kind = StoreFull if problem.errno == errno.ENOSPC else StoreError
            raise kind(f"the store {root} cannot be opened: {problem}") from problem
        finally:
            if store is None:
                layout.release()
        return store

    def _recover(self) -> None:
        self._checkpoint.load()
        was_stopped = self._layout.was_stopped
        recovered = Recovery(
            *(self._row, self._log, self._queues, self._checkpoint, self.tags_code),
            check_crc=self._settings.check_crc_on_recover,
        ).run(was_stopped=was_stopped)
        self._index.load(self._checkpoint, self._log.tail, was_stopped=was_stopped)
        self._last_ms = recovered.last.store_ms
        self._upkeep.shown = recovered.last
        self._upkeep.vouch_now()
        self._layout.mark_running(f"{os.getpid()}\n")
        if not was_stopped:
            log.warning(
                "the store %s was not stopped in order: %d messages read again, up to byte %d",
                self._layout.root,
                recovered.records,
                self._log.tail,
            )

    # ---- putting

    def put(self, draft: Draft) -> Placed:
        """Give a message its place; its bytes leave at the end of the turn, `settle` says when.

        A status other than PUT_OK means that nothing was kept. Must be called on the loop.
        """
        if not self._is_ticking:
            self._begin_turn()
        if status := self._refusal():
            return self._refused(status)
        raw, sys_flag, size, status = self._measure(draft)
        if status is not None:
            return self._refused(status)
        self._log.make_room(size)
        return self._place(draft, raw, sys_flag)

    def put_batch(self, drafts: list[Draft]) -> list[Placed]:
        """Give messages of one queue places side by side in one file: all of them or none."""
        if not self._is_ticking:
            self._begin_turn()
        measured = [self._measure(draft) for draft in drafts]
        status = self._refusal() or next((m[3] for m in measured if m[3] is not None), None)
        room = sum([m[2] for m in measured])
        if status is None and not self._log.fits(room):
            status = PutStatus.MESSAGE_ILLEGAL
        if status is not None:
            return [self._refused(status) for _ in drafts]
        self._log.make_room(room)
        return [
            self._place(draft, raw, sys_flag)
            for draft, (raw, sys_flag, _, _) in zip(drafts, measured, strict=True)
        ]

    def lane(
        self,
        topic: str,
        queue_count: int,
        *,
        flag: int,
        sys_flag: int,
        born_host: bytes,
        reconsume_times: int,
    ) -> Lane:
        """Work out once what messages of one topic from one sender share; put them by `put`."""
        return Lane(
            *(topic, self._queues.of, queue_count, self._log, self._turn),
            flag=flag,
            sys_flag=sysflag.with_hosts(sys_flag, born_host, self._log.store_host),
            born_host=born_host,
            reconsume_times=reconsume_times,
            size_max=min(
                self._settings.max_message_bytes, self._settings.commit_log_file_bytes - 8
            ),
            with_crc=self._with_crc,
        )

    def _begin_lane_turn(self) -> int:
        """Look once a turn whether anything may be put; 0 when not."""
        if self._refusal():
            return 0
        if not self._is_ticking:
            self._begin_turn()
        return self._begin_tick()

    def _refused(self, status: PutStatus) -> Placed:
        self.put_times.failed += 1
        return Placed(status, _NO_PLACE, 0, _NO_PLACE, 0)

    def _refusal(self) -> PutStatus | None:
        """Why nothing at all can be put now, if so."""
        commit_log, upkeep = self._log, self._upkeep
        if self._is_stopped or self._flush.broken or upkeep.is_full or self._retention.is_disk_full:
            return PutStatus.SERVICE_NOT_AVAILABLE
        safe = commit_log.flushed if self.is_sync else commit_log.written
        if commit_log.tail - safe > self._settings.unwritten_bytes_max:
            return PutStatus.OS_PAGE_CACHE_BUSY
        return None

    def _measure(self, draft: Draft) -> tuple[bytes, int, int, PutStatus | None]:
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
        size = stored.size_of(topic, body, raw, sys_flag, self._with_crc)
        if not self._log.fits(size):
            return raw, 0, 0, PutStatus.MESSAGE_ILLEGAL
        return raw, sys_flag, size, None

    def _place(self, draft: Draft, raw: bytes, sys_flag: int) -> Placed:
        now = self._turn.now_ms or self._begin_tick()
        if not sysflag.is_queued(sys_flag):
            phy_offset, size = self._log.place(draft, raw, sys_flag, 0, now)
            return Placed(PutStatus.PUT_OK, phy_offset, size, 0, now)
        queue = self._queues.of(draft.topic, draft.queue_id)
        queue_offset = queue.next_offset
        phy_offset, size = self._log.place(draft, raw, sys_flag, queue_offset, now)
        queue.next_offset = queue_offset + 1
        code = self.tags_code(draft.topic, raw, now)
        self._turn.placed.append((queue, phy_offset, size, code))
        return Placed(PutStatus.PUT_OK, phy_offset, size, queue_offset, now)

    def _begin_turn(self) -> None:
        loop, self._is_ticking = asyncio.get_running_loop(), True
        self._turn.begun_s = loop.time()
        loop.call_soon(self._end_tick)

    @property
    def turn_ms(self) -> int:
        """The store time of what is put in this turn; 0 where nothing was put yet."""
        return self._turn.now_ms

    def _begin_tick(self) -> int:
        """The time of this turn; never before that of an earlier one."""
        self._turn.now_ms = self._last_ms = max(self._clock.now_ms(), self._last_ms, 1)
        return self._last_ms

    def settle(self, done: Callable[[PutStatus], None]) -> None:
        """Have `done` called on the loop once all that was put before is as safe as promised.

        That is: written (ASYNC_FLUSH), or durable (SYNC_FLUSH; after syncFlushTimeout it is called
        with FLUSH_DISK_TIMEOUT). SERVICE_NOT_AVAILABLE: it could not be kept.
        """
        if not self._is_ticking:
            self._begin_turn()
        self._asked.append(done)

    def _end_tick(self) -> None:
        """Write what this turn put; then show and answer, at once or after the flush."""
        self._is_ticking = False
        self._turn.now_ms = 0
        self.turn += 1
        asked, self._asked = self._asked, []
        placed, self._turn.placed = self._turn.placed, []
        try:
            self._log.write()
        except OSError as problem:
            self._give_up(placed, asked, problem)
            return
        if self._is_write_failing and placed:
            self._is_write_failing = False
            log.warning("the log %s is written again", self._row.directory)
        if self.is_sync and (self._log.flushed < self._log.written or self._flush.broken):
            self._flush.join(placed, asked, self._last_ms, self._turn.begun_s)
            return
        group = Group()
        group.take(placed, asked, self._turn.begun_s)
        self._show(group)
        group.settle(PutStatus.PUT_OK)

    def _give_up(self, placed: list[Entry], asked: list[Done], problem: OSError) -> None:
        """Take back what could not be written: its offsets will be given again."""
        for queue, _, _, _ in placed:
            queue.next_offset -= 1
        self.put_times.failed += len(placed)
        if not self._is_write_failing:
            self._is_write_failing = True
            log.warning(
                "the log %s cannot be written, sends are refused: %s", self._row.directory, problem
            )
        for done in asked:
            done(PutStatus.SERVICE_NOT_AVAILABLE)

    def _show(self, group: Group) -> None:
        """Let readers see messages, then tell who waits for them."""
        entries = group.entries
        if not entries:
            return
        shown = self._queues.append(entries)
        _, phy_offset, size, _ = entries[-1]
        self._upkeep.shown = Last(phy_offset, size, group.store_ms or self._last_ms)
        arrived = self.on_arrival
        for queue, code in shown:
            arrived(queue.topic, queue.queue_id, queue.max_offset, code)
        self._flush.count(group)

    # ---- getting

    def get(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_count: int,
        max_bytes: int,
        match: Callable[[int], bool] | None = None,
        judge: Judge | None = None,
    ) -> Got:
        """Records of a queue from `queue_offset` on, one after the other, as they are on disk.

        At most `max_count` messages and `max_bytes` (the first comes whatever its size), and no
        more than the transfer limits of the settings. `match` says by a tags code whether a message
        is wanted, `judge` then by its properties. `next_offset`: where to go on, or the queue's end
        or beginning.
        """
        queue = self._queues.find(topic, queue_id)
        return self._fetch.get(queue, queue_offset, max_count, max_bytes, match, judge)

    def record_at(self, phy_offset: int) -> bytes | None:
        """The record that begins at a byte of the log; None when none does that readers may see."""
        is_shown = not self.is_sync or phy_offset < self._log.flushed
        return self._log.record_at(phy_offset) if is_shown else None

    def entry(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        """(phy_offset, size, tags_code) of a visible message; None when there is none."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or not 0 <= queue_offset < queue.max_offset:
            return None
        return queue.entry(queue_offset)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first offset of a queue whose message is still there; 0 for a queue never used."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.min_offset(self._log.first)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset after the newest visible message of a queue; 0 for a queue never used."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def offset_by_time(self, topic: str, queue_id: int, ms: int, upper: bool = False) -> int:
        """The first message stored at or after `ms`; with `upper` the last at or before it."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else offset_by_time(queue, self._log, ms, upper=upper)

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """When a message was stored, ms; -1 when there is none at this offset."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or not 0 <= queue_offset < queue.max_offset:
            return -1
        return self._log.store_time(queue.entry(queue_offset)[0])

    def queues(self) -> list[tuple[str, int]]:
        """(topic, queue_id) of every queue that was ever put to."""
        return [(queue.topic, queue.queue_id) for queue in self._queues]

    def delete_topic(self, topic: str) -> None:
        """Delete the queues of a topic, at once; its records stay until their file goes."""
        self._queues.delete_topic(topic, self._upkeep.deletion_of(topic))
        self._upkeep.vouch_soon()

    def adjust(self, settings: StoreSettings) -> None:
        """Work with these settings from now on, which differ in live ones only."""
        self._settings = settings
        self._fetch.adjust(settings)
        self._retention.adjust(settings)

    async def clean(self) -> None:
        """Delete now what is older than need be, whatever the hour; OSError when that fails."""
        await self._retention.clean(any_hour=True)

    @property
    def min_phy_offset(self) -> int:
        """The first byte of the log that is still there."""
        return self._log.first

    @property
    def max_phy_offset(self) -> int:
        """The byte after the newest record in the files."""
        return self._log.written

    @property
    def unflushed_bytes(self) -> int:
        """What a power cut would take of the files, as far as is known."""
        return max(0, self._log.written - self._log.flushed)

    # ---- living

    def move_to(self, store_host: bytes) -> None:
        """Write this packed address into records from now on: the port came to be known."""
        self._host_bits = sysflag.with_hosts(0, b"", store_host)
        self._log.store_host = store_host

    async def start(self) -> None:
        """Begin the background work: flushing, writing queue entries, cleaning."""
        self._upkeep.start(self.lookup.keep_up)

    async def stop(self) -> None:
        """Write and flush everything, say that the stop was in order, give the directory back."""
        if self._is_stopped:
            return
        self._is_stopped = True
        await self._upkeep.stop()
        self._end_tick()
        self._flush.join([], [], self._last_ms)
        await self._flush.idle()
        await self.lookup.catch_up(_LAST_CATCH_UP_MS)
        try:
            await run(self._workers[1], lambda: None)  # what was under way there has ended
            if self._flush.broken is not None:
                raise self._flush.broken
            self._upkeep.vouch_now()
            self._layout.mark_stopped()
        except OSError as problem:
            log.error("the store %s could not be stopped in order: %s", self._layout.root, problem)
        self._close()

    def abandon(self) -> None:
        """Give the directory back at once, as after a crash: nothing is flushed or marked."""
        self._is_stopped = True
        self._close()

    def _close(self) -> None:
        self.aside.close()
        for worker in self._workers:
            worker.close()
        self._checkpoint.close()
        self._index.close()
        self._queues.close()
        self._row.close()
        self._layout.release()
