"""The store as its callers see it: put messages, read them, learn when they are safe.

Names the parts of a store and sends each call to the one that does it: `MessageAppender` writes,
`ReadContext` reads, `KeyLookup` finds by key, `TopicDeletion` deletes, `Maintenance` works
in the background. Knows nothing of requests, topics' settings and consumers.
Invariant: what was answered PUT_OK is found after any crash that flushDiskType covers.
Java: DefaultMessageStore.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cometmq.runtime.system_clock_and_files import ThreadWorker
from cometmq.runtime.worker_jobs import run_job
from cometmq.store.durability import DurabilityConditions
from cometmq.store.get_result import GetResult, GetStatus
from cometmq.store.index.key_lookup import KeyLookup
from cometmq.store.log_shipping import RawLogAppender
from cometmq.store.message_appender import MessageAppender
from cometmq.store.message_draft import MessageDraft
from cometmq.store.put_result import PutResult, PutStatus
from cometmq.store.queues.topic_deletion import TopicDeletion
from cometmq.store.store_opening import open_parts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Clock, Files, Worker
    from cometmq.settings.store import StoreSettings
    from cometmq.store.store_opening import StoreParts

__all__ = ["GetResult", "GetStatus", "MessageDraft", "MessageStore", "PutResult", "PutStatus"]

log = logging.getLogger(__name__)
_LAST_CATCH_UP_MS = 3_000


def _has_no_reason() -> None:
    """Of a caller that refuses no start."""


class MessageStore:
    """One broker's messages. Everything but `open` runs on one loop.

    `cold_reader` reads what may not be in memory, `lookup` finds messages by key and `deletion`
    deletes topics; none of them blocks the loop.
    """

    def __init__(self, parts: StoreParts, settings: StoreSettings) -> None:
        """For `open`, which is the way to a store."""
        self._parts = parts
        self._log = parts.commit_log
        self._queues = parts.queues
        self._queue_reader = parts.queue_reader
        self._maintenance = parts.maintenance
        self._is_stopped = False
        self.is_sync = settings.is_sync_flush
        """Whether flushDiskType is SYNC_FLUSH."""
        self.tags_code = parts.tags_code
        """From topic, raw properties and store time to the number a consumer's filter sees."""
        self.put_times = parts.put_times
        self.cold_reader = parts.cold_reader
        self.lookup = KeyLookup(
            parts.index, parts.cold_reader, parts.publisher, parts.clock.monotonic_ms
        )
        self.is_slave = False
        """Whether only raw bytes are taken: puts are refused, as SERVICE_NOT_AVAILABLE."""
        self.durability_conditions = DurabilityConditions()
        """What responses wait for beside the local flush; none unless somebody adds one."""
        self._appender = appender = MessageAppender(
            parts.commit_log,
            parts.queues,
            parts.flusher,
            parts.publisher,
            settings,
            parts.store_clock,
            parts.clock.monotonic_ms,
            parts.tags_code,
            self._is_refusing,
            self.durability_conditions,
        )
        self.deletion = TopicDeletion(
            parts.queues, parts.maintenance, parts.queue_worker, appender.write_now
        )
        appender.last_store_ms = parts.publisher.newest_visible.store_ms
        reads = parts.reads
        # Bound here, so that no call is only passed on. See `MessageAppender` and `ReadContext`.
        self.batch = appender.batch
        self.put = appender.put
        self.put_batch = appender.put_batch
        self.current_store_ms = appender.current_store_ms
        self.renew_store_time = appender.renew_store_time
        self.believed_ms = parts.store_clock.believed_ms
        self.record_template = appender.record_template
        self.on_durable = appender.on_durable
        self.raw_log = RawLogAppender(
            parts.commit_log, parts.queues, parts.flusher, appender, self.is_out_of_order
        )
        self.append_raw = self.raw_log.append
        self.read_raw = reads.read_raw
        self.get = reads.get
        self.record_at = reads.record_at
        self.entry = reads.entry
        self.min_offset = reads.min_offset
        self.max_offset = reads.max_offset
        self.offset_by_time = reads.offset_by_time
        self.store_time = reads.store_time

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
        refuse: Callable[[], None] = _has_no_reason,
    ) -> MessageStore:
        """Lock the directory (made when missing), repair what a crash left, and open it; blocks.

        `tags_code(topic, raw properties, store_ms)` gives the number a consumer's filter sees;
        `store_host` is the packed address written into records; with `ram` bytes of memory some of
        the log counts as fresh. `refuse` is called before files are deleted to make room on a full
        disk, and raises where its caller is about to refuse the start. Raises StoreLocked,
        NotAStore, StoreCorrupt, StoreFull, StoreError.
        """
        parts = open_parts(
            root,
            settings,
            clock=clock,
            files=files,
            tags_code=tags_code,
            store_host=store_host,
            worker=worker,
            ram=ram,
            refuse=refuse,
        )
        return cls(parts, settings)

    @property
    def on_arrival(self) -> Callable[[str, int, int, int], None]:
        """Called with (topic, queue_id, new max offset, tags code) of messages now visible.

        Once for all messages of one batch that share queue and code.
        """
        return self._parts.publisher.on_arrival

    @on_arrival.setter
    def on_arrival(self, callback: Callable[[str, int, int, int], None]) -> None:
        self._parts.publisher.on_arrival = callback

    @property
    def on_log_end(self) -> list[Callable[[], None]]:
        """Called in the loop iteration in which `readable_phy_offset` has grown."""
        return self._parts.publisher.on_log_end

    @property
    def is_deferring(self) -> bool:
        """Whether `on_durable` may call back after the loop iteration of its puts."""
        return self.is_sync or bool(self.durability_conditions.active)

    def _is_refusing(self) -> bool:
        """Whether something else than the log forbids puts now."""
        return self.is_slave or self.is_out_of_order()

    def is_out_of_order(self) -> bool:
        """Whether nothing can be written, whoever it comes from."""
        parts = self._parts
        return (
            self._is_stopped
            or parts.maintenance.is_queue_write_failing
            or parts.retention.is_disk_full
        )

    # ---- getting

    def queues(self) -> list[tuple[str, int]]:
        """(topic, queue_id) of every queue that was ever put to."""
        return [(queue.topic, queue.queue_id) for queue in self._queues]

    def delete_topic(self, topic: str) -> None:
        """Delete the queues of a topic, at once; its records stay until their file goes."""
        self._appender.write_now()
        self._queues.delete_topic(topic, self._maintenance.deletion_mark(topic))
        self._maintenance.checkpoint_soon()

    def adjust(self, settings: StoreSettings) -> None:
        """Work with these settings from now on, which differ in live ones only."""
        self._appender.adjust(settings)
        self._queue_reader.adjust(settings)
        self._parts.retention.adjust(settings)

    @property
    def keeps_old_files(self) -> bool:
        """Whether files of the log stay, whatever their age, unless the disk is nearly full."""
        return self._parts.retention.keeps_old_files

    @keeps_old_files.setter
    def keeps_old_files(self, keeps: bool) -> None:
        self._parts.retention.keeps_old_files = keeps

    async def clean(self) -> None:
        """Delete now what is older than need be, whatever the hour; OSError when that fails."""
        await self._parts.retention.clean(any_hour=True)

    @property
    def commit_log_directory(self) -> Path:
        """Where the files of the log are."""
        return self._parts.directory.commit_log

    @property
    def min_phy_offset(self) -> int:
        """The first byte of the log that is still there."""
        return self._log.first

    @property
    def max_phy_offset(self) -> int:
        """The byte after the newest record in the files."""
        return self._log.written

    @property
    def readable_phy_offset(self) -> int:
        """Where `read_raw` ends: with SYNC_FLUSH only what is flushed may leave this store."""
        return self._log.flushed if self.is_sync else self._log.written

    @property
    def is_log_empty(self) -> bool:
        """Whether the log has no file: nothing was ever written, or all of it is gone."""
        return self._log.is_empty

    @property
    def log_file_bytes(self) -> int:
        """How large each file of the log is."""
        return self._log.file_bytes

    @property
    def unflushed_bytes(self) -> int:
        """What a power cut would take of the files, as far as is known."""
        return max(0, self._log.written - self._log.flushed)

    # ---- lifecycle

    def set_store_host(self, store_host: bytes) -> None:
        """Write this packed address into records from now on: the port came to be known."""
        self._appender.set_store_host(store_host)

    async def start(self) -> None:
        """Begin the background work: flushing, writing queue entries, cleaning."""
        assert not self._is_stopped, "a store that was stopped is opened again, not started"
        self._maintenance.start(self.lookup.follow_log)

    async def stop(self) -> None:
        """Write and flush everything, mark the stop as orderly, give the directory back."""
        if self._is_stopped:
            return
        self._is_stopped = True
        parts = self._parts
        await self._maintenance.stop()
        self._appender.end_last_batch()
        await parts.flusher.wait_until_idle()
        await self.lookup.catch_up(_LAST_CATCH_UP_MS)
        try:
            await run_job(parts.queue_worker, lambda: None)  # what it was given before has ended
            if parts.flusher.failure is not None:
                raise parts.flusher.failure
            assert self._log.flushed == self._log.written, (
                "a stop leaves bytes that are not flushed"
            )
            self._maintenance.checkpoint_now()
            parts.directory.mark_stopped()
        except OSError as problem:
            root = parts.directory.root
            log.error("the store %s could not be stopped in order: %s", root, problem)
        finally:
            parts.close()

    def abandon(self) -> None:
        """Give the directory back at once, as after a crash: nothing is flushed or marked."""
        self._is_stopped = True
        self._parts.close()
