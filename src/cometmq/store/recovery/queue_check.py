"""Which files of the consume queues disagree with the log: what a start builds anew.

Entries that have a checksum (`queue_checksums.py`) are compared with that: 0.02 s for a million.
Others, which another broker wrote or which came shortly before a crash, must follow each other, and
a sample of them is compared with the records they name. Changes nothing: a start and
`cometmq store verify` both ask it, so they agree. Java: ConsumeQueue.recover.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from cometmq.errors import ProtocolError
from cometmq.model.topic import SCHEDULE_TOPIC
from cometmq.store.queues.raw_entries import without_empty_end
from cometmq.wire.records import log_record as stored
from cometmq.wire.records.consume_queue_entry import ENTRY, FILLER_SIZE, SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cometmq.store.log.mapped_file_queue import MappedFileQueue
    from cometmq.store.queues.queue_checksums import QueueChecksums, QueueFileChecksum
    from cometmq.store.recovery.checkpoint import Checkpoint

    Queue = tuple[str, int]
    QueueFiles = Mapping[Queue, MappedFileQueue]
    TagsCode = Callable[[str, bytes, int], int | None]

_COMPARED_MAX = 20_000
"""Entries without a checksum that one start compares with their records; of a file beyond, few."""
_SAMPLES = 16
_READ_BYTES = 1 << 16


class DamagedQueueFile(NamedTuple):
    """A file of a queue that is not what the log says."""

    topic: str
    queue_id: int
    base: int


class QueueCheck:
    """One look at all queues of a store."""

    def __init__(
        self,
        log_files: MappedFileQueue,
        queue_files: QueueFiles,
        checksums: QueueChecksums,
        durable_end: int,
        tags_code: TagsCode | None,
    ) -> None:
        """`checksums`: without those of records that do not count, see `forget_before`.

        Entries of records below `durable_end` have been durable. `tags_code`: what an entry says of
        topic, properties and store time (ms); None, the argument or its answer: not compared.
        """
        self._log_files = log_files
        self._queue_files = queue_files
        self._checksums = checksums
        self._durable_end = durable_end
        self._tags_code = tags_code
        self._compared = 0

    def damaged(self) -> list[DamagedQueueFile]:
        """All files that are to be built anew from the log."""
        found: list[DamagedQueueFile] = []
        for queue in sorted(set(self._queue_files) | self._checksums.queues()):
            bases = self._damaged_of(queue)
            assert len(bases) == len(set(bases)), "a file is named twice"
            found += [DamagedQueueFile(*queue, base) for base in bases]
        return found

    def _damaged_of(self, queue: Queue) -> list[int]:
        listed = self._checksums.of(queue)
        files = self._queue_files.get(queue)
        bases = files.bases if files is not None else []
        damaged = [base for base in listed if base not in bases]
        is_last = True
        for base in reversed(bases):
            assert files is not None
            is_whole, is_empty = self._check_file(queue, files, base, listed.get(base), is_last)
            if not is_whole:
                damaged.append(base)
            is_last = is_last and is_empty
        return sorted(damaged + _detached(files, damaged))

    def _check_file(
        self,
        queue: Queue,
        files: MappedFileQueue,
        base: int,
        listed: QueueFileChecksum | None,
        is_last: bool,
    ) -> tuple[bool, bool]:
        """Whether a file is as it should be, and whether it holds nothing."""
        done = 0
        if listed is not None:
            done = listed.entries * SIZE
            if crc32(files.read(base, done)) != listed.crc:
                return False, False
        raw = _entries_behind(files, base, done, is_whole_file=listed is None)
        if not is_last and done + len(raw) < files.file_bytes:
            return False, False
        is_whole = self._follow_each_other(raw)
        count = self._valid_count(raw)
        is_whole = is_whole and self._are_of_log(queue, (base + done) // SIZE, raw[: count * SIZE])
        return is_whole, not done and not raw

    def _valid_count(self, raw: bytes) -> int:
        """How many entries come before the first that a replay of the log writes again."""
        for index, (place, size, _) in enumerate(ENTRY.iter_unpack(raw)):
            if size <= 0 or (0 <= self._durable_end <= place):
                return index
        return len(raw) // SIZE

    def _follow_each_other(self, raw: bytes) -> bool:
        """Whether entries without a checksum are in the order of the log, without a hole.

        What lies behind the durable end may be anything after a crash: it is written again.
        """
        end, is_over = 0, False
        for place, size, _ in ENTRY.iter_unpack(raw):
            is_news = 0 <= self._durable_end <= place
            if size <= 0 or is_news:
                is_over = True
                if place and not is_news:
                    return False  # no size, and yet a place
            elif is_over or (place < end and size != FILLER_SIZE):
                return False
            elif size != FILLER_SIZE:
                end = place + size
        return True

    def _are_of_log(self, queue: Queue, number: int, raw: bytes) -> bool:
        """Whether entries name records of their queue with their numbers, as far as is looked."""
        count = len(raw) // SIZE
        step = 1
        if self._compared + count > _COMPARED_MAX:
            step = max(count // _SAMPLES, 1)
        for index in {*range(0, count, step), count - 1} if count else ():
            self._compared += 1
            entry = ENTRY.unpack_from(raw, index * SIZE)
            # When a delayed message is due depends on settings, which may be others now.
            tags_code = self._tags_code if queue[0] != SCHEDULE_TOPIC else None
            if not is_of_log(self._log_files, queue, number + index, entry, tags_code):
                return False
        return True


def _entries_behind(files: MappedFileQueue, base: int, done: int, *, is_whole_file: bool) -> bytes:
    """The entries of a file behind its first `done` bytes, up to where only zeros follow."""
    parts: list[bytes] = []
    while done < files.file_bytes:
        raw = files.read(base + done, min(_READ_BYTES, files.file_bytes - done))
        if not raw or (not is_whole_file and raw.count(0) == len(raw)):
            break
        parts.append(raw)
        done += len(raw)
    return without_empty_end(b"".join(parts))


def _detached(files: MappedFileQueue | None, damaged: list[int]) -> list[int]:
    """The files that do not continue the one before them."""
    if files is None:
        return []
    there = sorted({*files.bases, *damaged})
    found = []
    for before, base in itertools.pairwise(there):
        if base != before + files.file_bytes:
            found += [each for each in there if each >= base and each not in damaged]
            break
    return found


def durable_end_of(checkpoint: Checkpoint, *, was_stopped: bool) -> int:
    """The byte of the log from which on entries are written again after a crash; -1: none is."""
    return -1 if was_stopped or not checkpoint.is_known else checkpoint.dispatched


def is_of_log(
    log_files: MappedFileQueue,
    queue: Queue,
    number: int,
    entry: tuple[int, int, int],
    tags_code: TagsCode | None = None,
) -> bool:
    """Whether an entry is what the log says it must be, or older than the log."""
    place, size, code = entry
    if size <= 0 or place < 0:
        return False
    if size == FILLER_SIZE or place < log_files.first:
        return True
    if place + size > log_files.end or size > log_files.file_bytes:
        return False
    try:
        record = stored.decode(log_files.read(place, size))
    except ProtocolError:
        return False
    found = record.phy_offset, record.size, record.queue_offset, record.topic, record.queue_id
    if found != (place, size, number, *queue):
        return False
    wanted = tags_code(record.topic, record.properties, record.store_ms) if tags_code else None
    return wanted is None or wanted == code
