"""Builds files of consume queues anew from the part of the log that they speak of.

The range of the log is given by the neighbours of the broken files. A message that the log has lost
gets a filler, which no reader is given. The number of files is bounded; for more than that all
queues are built anew from the whole log. Knows nothing of why a file is broken.
Java: none; there all queues are built anew.
"""

from __future__ import annotations

import logging
from operator import itemgetter
from typing import TYPE_CHECKING

from cometmq.wire.records import sysflag
from cometmq.wire.records.consume_queue_entry import ENTRY, FILLER, FILLER_SIZE, SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cometmq.store.queues.consume_queue import ConsumeQueue
    from cometmq.wire.records.log_record import StoredRecord

log = logging.getLogger(__name__)
FILES_MAX = 16
"""Files that are built in memory, 6 MB each."""


class QueueRepair:
    """One repair of some files of queues, before anything is put."""

    def __init__(
        self,
        records: Callable[[int], Iterator[StoredRecord]],
        log_first: int,
        deleted_before: Callable[[str], int],
        tags_code: Callable[[str, bytes, int], int],
    ) -> None:
        """`records`: the whole records of the log from a byte on."""
        self._records = records
        self._log_first = log_first
        self._deleted_before = deleted_before
        self._tags_code = tags_code

    def run(self, damaged: list[tuple[ConsumeQueue, int]]) -> None:
        """Build these files (queue, base) anew, durably."""
        assert len(damaged) <= FILES_MAX, "more than fits into memory"
        bases = {queue: {b for q, b in damaged if q is queue} for queue, _ in damaged}
        files = self._empty_files(damaged, bases)
        ranges = [_range_of(queue, base, bases[queue], self._log_first) for queue, base in damaged]
        start, ends = min(low for low, _ in ranges), [high for _, high in ranges]
        end = -1 if -1 in ends else max(ends)
        file_bytes = {queue: queue.mapped_files.file_bytes for queue in bases}
        names = {(queue.topic, queue.queue_id): queue for queue in bases}
        for record in self._records(start):
            if 0 <= end <= record.phy_offset:
                break
            queue = names.get((record.topic, record.queue_id))
            if queue is None or not sysflag.is_queued(record.sys_flag):
                continue
            if record.phy_offset < self._deleted_before(record.topic):
                continue
            at = record.queue_offset * SIZE
            base = at - at % file_bytes[queue]
            if file := files.get((record.topic, record.queue_id, base)):
                code = self._tags_code(record.topic, record.properties, record.store_ms)
                file.put(at - base, record.phy_offset, record.size, code)
        for file in files.values():
            file.write()

    def _empty_files(
        self, damaged: list[tuple[ConsumeQueue, int]], bases: dict[ConsumeQueue, set[int]]
    ) -> dict[tuple[str, int, int], _File]:
        files: dict[tuple[str, int, int], _File] = {}
        for queue, base in sorted(damaged, key=itemgetter(1)):
            before = files.get((queue.topic, queue.queue_id, base - queue.mapped_files.file_bytes))
            has_before = _place_before(queue, base, bases[queue]) >= self._log_first
            file = _File(queue, base, before, has_message_before=has_before)
            files[queue.topic, queue.queue_id, base] = file
        return files


class _File:
    """One file as it should be."""

    def __init__(
        self, queue: ConsumeQueue, base: int, before: _File | None, *, has_message_before: bool
    ) -> None:
        """`before`: the file before this one where it is built, too.

        `has_message_before`: whether the files that are not built have a message before this one.
        """
        self._queue = queue
        self._base = base
        self._entries = bytearray()
        self._before = before
        self._has_message_before = has_message_before

    def put(self, at: int, place: int, size: int, tags_code: int) -> None:
        """Set an entry; those that were skipped before it stand for lost messages."""
        entries = self._entries
        assert at % SIZE == 0, "a part of an entry"
        if at < len(entries):
            del entries[at:]  # the topic was deleted and made again
        if at > len(entries):
            filler = ENTRY.pack(place, FILLER_SIZE, 0) if self.has_message else FILLER
            entries += filler * ((at - len(entries)) // SIZE)
        entries += ENTRY.pack(place, size, tags_code)
        assert len(entries) == at + SIZE <= self._queue.mapped_files.file_bytes

    @property
    def has_message(self) -> bool:
        """Whether the queue has a message in this file or before it."""
        has_before = self._has_message_before or (self._before and self._before.has_message)
        return bool(self._entries or has_before)

    def write(self) -> None:
        """Write what was found, durably; a file without an entry is removed."""
        mapped_files, base = self._queue.mapped_files, self._base
        path = mapped_files.path_of(base)
        before = mapped_files.read(base, mapped_files.file_bytes)
        known = len(before.rstrip(b"\0")) // SIZE
        following = mapped_files.read(base + mapped_files.file_bytes, SIZE)
        if self._entries and following.strip(b"\0"):
            place = ENTRY.unpack(following)[0]
            missing = (mapped_files.file_bytes - len(self._entries)) // SIZE
            self._entries += ENTRY.pack(place, FILLER_SIZE, 0) * missing
        log.warning(
            "%s did not agree with the log: built anew, with %d entries (it had %d)",
            path,
            len(self._entries) // SIZE,
            known,
        )
        assert len(self._entries) <= mapped_files.file_bytes, "more than fits into the file"
        if not self._entries:
            if base in mapped_files.segments:
                mapped_files.remove(base)
            return
        mapped_files.write(base, bytes(self._entries))
        mapped_files.segments[base].open().cut(len(self._entries))
        mapped_files.segments[base].open().sync()
        mapped_files.files.sync_dir(mapped_files.directory)


def _range_of(queue: ConsumeQueue, base: int, damaged: set[int], log_first: int) -> tuple[int, int]:
    """The part of the log that a file speaks of; its end is -1 where that is the log's."""
    mapped_files = queue.mapped_files
    size, high = mapped_files.file_bytes, -1
    low = max(_place_before(queue, base, damaged), log_first)
    if base + size in mapped_files.segments and base + size not in damaged:
        place, length, _ = ENTRY.unpack(mapped_files.read(base + size, SIZE))
        high = place if length > 0 else -1
    return low, high


def _place_before(queue: ConsumeQueue, base: int, damaged: set[int]) -> int:
    """Where the record of the entry before this file lies; -1 where no good file says so."""
    mapped_files = queue.mapped_files
    before = base - mapped_files.file_bytes
    if before not in mapped_files.segments or before in damaged:
        return -1
    place: int = ENTRY.unpack(mapped_files.read(base - SIZE, SIZE))[0]
    return place
