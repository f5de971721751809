"""All consume queues of a store: finding, making, writing and flushing them.

Keeps the list of queues with unwritten entries and of files with unflushed ones.
Invariant: a queue once made stays the same object until its topic is deleted.
Java: ConsumeQueueStore.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from operator import itemgetter
from typing import TYPE_CHECKING

from cometmq import native
from cometmq.runtime.worker_jobs import run_job
from cometmq.store.log.mapped_file_queue import MappedFileQueue, OpenFiles, Segment, pin_segments
from cometmq.store.queues.consume_queue import SIZE, ConsumeQueue, pack
from cometmq.store.queues.deleted_topics import DeletedTopics
from cometmq.store.queues.queue_checksums import QueueChecksums
from cometmq.store.queues.queue_directories import queue_directories, queue_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files, Worker
    from cometmq.store.log.log_flush import QueueEntry
    from cometmq.store.queues.deleted_topics import DeletedTopic

_SLICE = 16
"""Queues written, or files flushed, in one iteration of the loop."""
_queue_and_code: Callable[[QueueEntry], tuple[ConsumeQueue, int]] = itemgetter(0, 3)
_MANY = 256
"""Files above which one sync of everything is cheaper than one of each."""


class ConsumeQueues:
    """The consume queues of one store."""

    def __init__(
        self, files: Files, directory: Path, file_bytes: int, open_files: OpenFiles
    ) -> None:
        self._files = files
        self._directory = directory
        self._file_bytes = file_bytes
        self._open_files = open_files
        self.deletions = DeletedTopics(files, directory.parent / "config")
        """Topics that were deleted."""
        self.checksums = QueueChecksums(files, directory.parent)
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._dirty: dict[ConsumeQueue, None] = {}
        self._unflushed: dict[Segment, None] = {}
        self._new_names: dict[Path, None] = {}
        self._empty: list[Path] = []
        """Directories that `load` found, which may be empty."""

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, or None when nothing was ever put in it."""
        return self._queues.get((topic, queue_id))

    def get_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, made when it is new; its directory comes with its first entry."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            mapped_files = MappedFileQueue(
                self._files,
                queue_directory(self._directory, topic, queue_id),
                self._file_bytes,
                self._open_files,
            )
            queue = self._queues[topic, queue_id] = ConsumeQueue(topic, queue_id, mapped_files)
        return queue

    def __iter__(self) -> Iterator[ConsumeQueue]:
        """All queues there are now."""
        return iter(list(self._queues.values()))

    def __len__(self) -> int:
        """How many queues there are."""
        return len(self._queues)

    def entries(self) -> Counter[str]:
        """The sum of the max offsets of each topic's queues."""
        found: Counter[str] = Counter()
        for queue in self._queues.values():
            found[queue.topic] += queue.max_offset
        return found

    def load(self) -> None:
        """Make an object for each queue that has files; their ends are not known yet."""
        assert not self._queues, "queues are loaded before any is made"
        for topic, queue_id, directory in queue_directories(self._files, self._directory):
            if self._files.names(directory):
                self.get_or_create(topic, queue_id).mapped_files.load()
            else:
                self._empty.append(directory)
        self._empty += [self._directory / topic for topic in self._files.names(self._directory)]

    def forget(self, queue: ConsumeQueue) -> None:
        """Leave a queue and its files alone, as if they were not there."""
        assert not queue.tail, "a queue that was used"
        queue.mapped_files.close()
        del self._queues[queue.topic, queue.queue_id]

    def remove_empty(self) -> None:
        """Remove the directories without files that `load` found: a deletion was cut short."""
        for directory in self._empty:
            self._remove_empty(directory)
        self._empty.clear()

    def append(self, entries: list[QueueEntry]) -> set[tuple[ConsumeQueue, int]]:
        """Show messages to readers and remember the queues whose entries are to be written.

        Returns which queues got what tags codes.
        """
        dirty = self._dirty
        found = _append_each(entries) if native.c is None else native.c.append_entries(entries)
        for queue, _ in found:
            queue.max_offset = queue.written_offset + len(queue.tail) // SIZE
            assert queue.max_offset <= queue.next_offset, "more is visible than was put"
            dirty[queue] = None
        return found

    @property
    def has_unwritten(self) -> bool:
        """Whether any queue has entries that are in memory only."""
        return bool(self._dirty)

    def write_all_pending(self) -> None:
        """Write all waiting entries now. OSError: those not written still wait."""
        for queue in list(self._dirty):
            self._write_pending(queue)

    async def write_pending(self) -> None:
        """Write the entries that wait now, a few queues in each iteration of the loop."""
        for index, queue in enumerate(list(self._dirty)):
            self._write_pending(queue)
            if index % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)

    def _write_pending(self, queue: ConsumeQueue) -> None:
        if self._queues.get((queue.topic, queue.queue_id)) is not queue:
            self._dirty.pop(queue, None)  # its topic was deleted while messages were on their way
            return
        assert queue.written_offset <= queue.max_offset
        before = len(queue.mapped_files.bases)
        at, entries = queue.written_offset * SIZE, bytes(queue.tail)
        bases = queue.write_pending()
        assert queue.written_offset * SIZE == at + len(entries), "other entries were written"
        assert bases or not entries, "entries are in no file"
        self.checksums.extend(queue, at, entries)
        if len(queue.mapped_files.bases) > before:
            directory = queue.mapped_files.directory
            for path in (directory, directory.parent, self._directory, self._directory.parent):
                self._new_names[path] = None
        for base in bases:
            self._unflushed[queue.mapped_files.segments[base]] = None
        self._dirty.pop(queue, None)

    def flush_all(self) -> None:
        """Make all written entries durable, here and now."""
        if len(self._unflushed) > _MANY:
            self._files.sync_all()
        else:
            for segment in self._unflushed:
                segment.open().sync()
            self._sync_names(list(self._new_names))
        self._unflushed.clear()
        self._new_names.clear()

    async def flush(self, worker: Worker) -> None:
        """Make the entries written so far durable, in the worker."""
        waiting, self._unflushed = self._unflushed, {}
        names, self._new_names = self._new_names, {}
        is_done = False
        try:
            await self._flusher(list(waiting), list(names), worker)
            is_done = True
        finally:
            if not is_done:
                self._unflushed = {s: None for s in waiting if s.exists} | self._unflushed
                self._new_names = names | self._new_names

    async def _flusher(self, waiting: list[Segment], names: list[Path], worker: Worker) -> None:
        if len(waiting) > _MANY:
            await run_job(worker, self._files.sync_all)
            return
        for start in range(0, len(waiting), _SLICE):
            await _sync([s for s in waiting[start : start + _SLICE] if s.exists], worker)
        if names:
            await run_job(worker, lambda: self._sync_names(names))

    def _sync_names(self, directories: list[Path]) -> None:
        for directory in directories:
            # In the worker: a topic may be deleted at any moment.
            with suppress(FileNotFoundError):
                self._files.sync_dir(directory)

    def delete_topic(self, topic: str, mark: DeletedTopic) -> None:
        """Remove a topic's queues, so that no recovery brings them back."""
        self.deletions.note(topic, mark)
        self.remove_topics((topic,))

    def remove_topics(self, topics: Container[str]) -> None:
        """Remove the queues of topics; marks on disk must say so already."""
        for queue in self:
            if queue.topic in topics:
                self.remove(queue)

    def remove(self, queue: ConsumeQueue) -> None:
        """Forget a queue and delete its files.

        Its messages that are on their way are still counted in it, and go with it.
        """
        self._queues.pop((queue.topic, queue.queue_id), None)
        self._cut_files(queue, 0)
        assert not queue.mapped_files.bases
        directory = queue.mapped_files.directory
        # A worker may still be deleting old files there: then the next start removes it.
        if self._remove_empty(directory):
            self._remove_empty(directory.parent)

    def _remove_empty(self, directory: Path) -> bool:
        """Remove a directory that holds nothing; False when it holds something."""
        stat = self._files.stat(directory)
        if (stat is not None and stat.size >= 0) or self._files.names(directory):
            return False
        self._files.delete(directory)
        return True

    def cut(self, queue: ConsumeQueue, queue_offset: int) -> None:
        """Drop the entries from `queue_offset` on, on disk as well."""
        self._cut_files(queue, queue_offset)
        queue.begin_at(queue_offset)
        assert queue.written_offset == queue.max_offset == queue_offset, "entries are left"

    def cut_behind_end(self, queue: ConsumeQueue) -> None:
        """Drop what files hold behind the last entry; durably once `flush_all` was called.

        Else a power cut brings entries back whose records are gone.
        """
        assert queue.written_offset == queue.max_offset, "entries wait to be written"
        mapped_files, end = queue.mapped_files, queue.max_offset * SIZE
        count = len(mapped_files.bases)
        mapped_files.cut(end)
        if len(mapped_files.bases) < count:
            self._new_names[mapped_files.directory] = None
        segment = mapped_files.segments.get(mapped_files.base_of(end))
        if segment is not None:
            self._unflushed[segment] = None

    def _cut_files(self, queue: ConsumeQueue, queue_offset: int) -> None:
        assert queue_offset >= 0
        queue.mapped_files.cut(queue_offset * SIZE)
        assert queue.mapped_files.end - queue.mapped_files.file_bytes <= queue_offset * SIZE
        self.checksums.cut(queue, queue_offset)
        self._dirty.pop(queue, None)
        alive = set(queue.mapped_files.segments.values())
        for segment in [
            s for s in self._unflushed if s.mapped_files is queue.mapped_files and s not in alive
        ]:
            del self._unflushed[segment]

    @staticmethod
    def expired(queue: ConsumeQueue, log_first: int, cached_only: bool = False) -> list[int]:
        """The files of a queue whose last entry's record has left the log, by their bases."""
        mapped_files, gone = queue.mapped_files, []
        for base in mapped_files.bases[:-1]:
            last = (base + mapped_files.file_bytes) // SIZE - 1
            if last >= queue.written_offset or queue.entry(last, cached_only)[0] >= log_first:
                break
            gone.append(base)
        return gone

    def release(self, queue: ConsumeQueue, base: int) -> Path:
        """Take a file out of its queue; the caller deletes what has this path."""
        assert base == queue.mapped_files.first, "a queue loses its oldest file first"
        self._unflushed.pop(queue.mapped_files.segments[base], None)
        self.checksums.remove(queue, base)
        return queue.mapped_files.release(base)

    def close(self) -> None:
        """Close all files."""
        for queue in self._queues.values():
            queue.mapped_files.close()


async def _sync(segments: list[Segment], worker: Worker) -> None:
    """Sync files in the worker and wait for it; OSError when one of them failed."""
    opened = pin_segments(segments)

    def job() -> None:
        for file in opened:
            file.sync()

    def unpin() -> None:
        for segment in segments:
            segment.unpin()

    await run_job(worker, job, unpin)


def _append_each(entries: list[QueueEntry]) -> set[tuple[ConsumeQueue, int]]:
    """Put each entry behind the others of its queue; which queues got what tags codes."""
    for queue, phy_offset, size, tags_code in entries:
        queue.tail += pack(phy_offset, size, tags_code)  # without a call: 0.1 us less
    return set(map(_queue_and_code, entries))
