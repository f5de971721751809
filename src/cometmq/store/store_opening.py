"""Opening a store: locks the directory, builds the parts of a store, recovers after a crash.

The one place that knows how the parts depend on each other; `MessageStore` uses them.
Invariants: a directory that is no store, or is in use, is not changed; where a start fails later,
every file is closed and the lock released.
"""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from cometmq.runtime.system_clock_and_files import expand_user_path, ram_bytes
from cometmq.store.cold_read_context import ReadContext
from cometmq.store.cold_reads import ColdReader
from cometmq.store.index.key_index import KeyIndex
from cometmq.store.log.commit_log import CommitLog
from cometmq.store.log.log_flush import LogFlusher
from cometmq.store.log.mapped_file_queue import MappedFileQueue, OpenFiles
from cometmq.store.log.put_latency import PutLatencies
from cometmq.store.log.retention import Retention
from cometmq.store.maintenance import Maintenance
from cometmq.store.message_visibility import VisibilityAdvancer
from cometmq.store.queues.consume_queues import ConsumeQueues
from cometmq.store.queues.queue_reader import QueueReader
from cometmq.store.recovery.checkpoint import Checkpoint
from cometmq.store.recovery.full_disk import RoomMaker, open_failure
from cometmq.store.recovery.missing_log import require_log
from cometmq.store.recovery.recovery import Recovery
from cometmq.store.recovery.store_directory import StoreDirectory, check_files
from cometmq.store.store_clock import StoreClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Clock, Files, Worker
    from cometmq.settings.store import StoreSettings

log = logging.getLogger(__name__)


class StoreParts:
    """The parts of one store, built in the order in which they depend on each other."""

    def __init__(
        self,
        directory: StoreDirectory,
        settings: StoreSettings,
        clock: Clock,
        files: Files,
        tags_code: Callable[[str, bytes, int], int],
        store_host: bytes,
        worker: Callable[[str], Worker],
        ram: int,
    ) -> None:
        self.directory = directory
        self.clock = clock
        self.store_clock = StoreClock(clock)
        self.tags_code = tags_code
        self.flush_worker = worker("store-flush")
        self.queue_worker = worker("store-queues")
        open_files = OpenFiles(settings.open_files_max)
        self.mapped_files = mapped_files = _log_files(files, directory, settings, open_files)
        mapped_files.load()
        crc, is_sync = settings.append_crc, settings.is_sync_flush
        log = CommitLog(mapped_files, store_host, ram, with_crc=crc, with_zeros_ahead=is_sync)
        self.commit_log = log
        queue_bytes = settings.consume_queue_file_bytes
        self.queues = ConsumeQueues(files, directory.consume_queue, queue_bytes, open_files)
        self.checkpoint = Checkpoint(files, directory.checkpoint)
        self.index = KeyIndex(files, clock, directory.index, settings, log, open_files)
        self.put_times = times = PutLatencies()
        self.publisher = publisher = VisibilityAdvancer(self.queues, times)
        self.flusher = LogFlusher(log, self.flush_worker, settings, publisher.publish, times)
        self.queue_reader = reader = QueueReader(log, settings, ram)
        context = partial(ReadContext, log, self.queues, reader, is_sync=is_sync)
        self.reads = context(cached_only=False)
        read_workers = [worker("store-reads") for _ in range(settings.read_threads)]
        self.cold_reader = ColdReader(read_workers, context(cached_only=True), self.reads)
        self.retention = Retention(
            settings,
            clock,
            self.store_clock,
            log,
            self.queues,
            self.checkpoint,
            self.index,
            self.cold_reader,
            self.queue_worker,
            dict.fromkeys((directory.commit_log, directory.root)),
        )
        self.maintenance = Maintenance(
            settings,
            clock.monotonic_ms,
            self.store_clock,
            log,
            self.queues,
            self.checkpoint,
            self.flusher,
            self.publisher,
            self.retention,
            self.index,
            self.queue_worker,
        )

    def close(self) -> None:
        """Close all files, end the workers and release the directory; nothing is flushed."""
        self.cold_reader.close()
        self.flush_worker.close()
        self.queue_worker.close()
        self.checkpoint.close()
        self.index.close()
        self.queues.close()
        self.mapped_files.close()
        self.directory.release()


def open_parts(
    root: Path,
    settings: StoreSettings,
    *,
    clock: Clock,
    files: Files,
    tags_code: Callable[[str, bytes, int], int],
    store_host: bytes,
    worker: Callable[[str], Worker],
    ram: int | None,
    refuse: Callable[[], None],
) -> StoreParts:
    """Build and recover the parts for `MessageStore.open`; nothing runs yet."""
    directory = StoreDirectory(files, root, _log_directory(settings))
    try:
        with ExitStack() as undo:
            directory.check()
            log_files = _log_files(files, directory, settings, OpenFiles(1))
            check_files(log_files)
            require_log(files, directory, log_files)
            undo.callback(directory.release)
            directory.take()
            memory = ram_bytes() if ram is None else ram
            parts = StoreParts(
                directory, settings, clock, files, tags_code, store_host, worker, memory
            )
            undo.callback(parts.close)
            _recover(parts, settings, refuse)
            undo.pop_all()
    except OSError as problem:
        raise open_failure(root, problem) from problem
    return parts


def _log_directory(settings: StoreSettings) -> Path | None:
    given = settings.store_path_commit_log
    return expand_user_path("storePathCommitLog", given).absolute() if given else None


def _log_files(
    files: Files, directory: StoreDirectory, settings: StoreSettings, open_files: OpenFiles
) -> MappedFileQueue:
    size = settings.commit_log_file_bytes
    return MappedFileQueue(files, directory.commit_log, size, open_files, mapped=True)


def _recover(parts: StoreParts, settings: StoreSettings, refuse: Callable[[], None]) -> None:
    checkpoint, commit_log, directory = parts.checkpoint, parts.commit_log, parts.directory
    files, checksums = parts.mapped_files.files, parts.queues.checksums
    checkpoint.load()
    checksums.load()
    was_stopped = directory.was_stopped
    recovery = Recovery(
        commit_log,
        parts.queues,
        checkpoint,
        parts.tags_code,
        check_crc=settings.check_crc_on_recover,
    )
    recovery.check(was_stopped=was_stopped, is_same_boot=directory.is_same_boot)
    log_files, clock = parts.mapped_files, parts.clock
    RoomMaker(files, directory, log_files, checkpoint, checksums, settings, clock).run(refuse)
    recovered = recovery.run()
    assert commit_log.flushed == commit_log.written == commit_log.tail
    assert recovered.last.end <= commit_log.tail, "a record reaches beyond the end of the log"
    if settings.append_crc:
        commit_log.checksums_from = recovered.checksums_from
    parts.index.load(checkpoint, commit_log.tail, was_stopped=was_stopped)
    parts.publisher.newest_visible = recovered.last
    parts.store_clock.not_before(recovered.last.store_ms)
    parts.maintenance.checkpoint_now()
    directory.mark_running(os.getpid())
    if not was_stopped:
        log.warning(
            "the store %s was not stopped in order: %d messages read again, up to byte %d",
            directory.root,
            recovered.records,
            commit_log.tail,
        )
