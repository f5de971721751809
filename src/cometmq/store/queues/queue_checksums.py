"""Checksums of the files of consume queues, so that a start knows cheaply whether one was changed.

A file's checksum covers its entries up to a count; entries once durable never change, so it holds
for ever. Kept in `queueChecksums` beside the checkpoint and believed only while the checkpoint is
ours; RocketMQ ignores the file. Layout, big-endian: magic 8 bytes, u32 CRC of the rest, i64 first
byte of the log; then per queue u16 length of the topic, i32 queue id, u16 files, the topic, and per
file i64 base, u32 count, u32 CRC-32, i64 place of the last record.
Refuses to judge: `queue_check.py` does.
Java: none.
"""

from __future__ import annotations

from contextlib import suppress
from struct import Struct, error
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from cometmq.wire.records.consume_queue_entry import ENTRY, SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files
    from cometmq.store.queues.consume_queue import ConsumeQueue

NAME = "queueChecksums"
_MAGIC = b"CQSUMS01"
_CRC = Struct(">I")
_LOG_FIRST = Struct(">q")
_QUEUE = Struct(">HiH")
_FILE = Struct(">qIIq")
_ENTRIES_AT = len(_MAGIC) + _CRC.size + _LOG_FIRST.size
_FILES_MAX = 65_535
NOT_KNOWN = -1
"""Where the log began, while no checksums tell: a store of another broker or an early version."""


class QueueFileChecksum(NamedTuple):
    """The first `entries` entries of a file have this CRC; the last is of the record at `last`."""

    entries: int
    crc: int
    last: int


QueueFileChecksums = dict[int, QueueFileChecksum]
"""Of one queue, by the base of each file."""


class QueueChecksums:
    """The checksums of one store. Belongs to its loop."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._path = directory / NAME
        self._queues: dict[tuple[str, int], QueueFileChecksums] = {}
        self.log_first = NOT_KNOWN
        """Where the log began when they were saved."""
        self._saved = b""

    def load(self) -> None:
        """Read what was saved; nothing when there is no such file or it is not whole."""
        if raw := self._files.read(self._path):
            self._saved = raw
        self._queues, self.log_first = _decode(raw or b"")

    def clear(self) -> None:
        """Forget all: another broker has written queues since."""
        self._queues.clear()
        self.log_first = NOT_KNOWN

    def queues(self) -> set[tuple[str, int]]:
        """The queues that have checksums."""
        return set(self._queues)

    def of(self, queue: tuple[str, int]) -> QueueFileChecksums:
        """Those of one queue, to be read only; empty when none is known."""
        return self._queues.get(queue, {})

    def extend(self, queue: ConsumeQueue, at: int, data: bytes) -> None:
        """Count entries that were just written at byte `at` of a queue."""
        assert at % SIZE == len(data) % SIZE == 0, "a part of an entry"
        assert at + len(data) <= queue.written_offset * SIZE, "counted before it was written"
        found = self._queues.setdefault((queue.topic, queue.queue_id), {})
        file_bytes, done = queue.mapped_files.file_bytes, 0
        while done < len(data):
            base = at - at % file_bytes
            piece = data[done : done + base + file_bytes - at]
            known = found.get(base)
            crc = 0
            if at > base:
                if known is None or known.entries * SIZE != at - base:
                    known = _measure(queue, base, at - base)
                crc = known.crc
            end = at + len(piece)
            last = ENTRY.unpack_from(piece, len(piece) - SIZE)[0]
            assert base < end <= base + file_bytes, "an entry of another file"
            found[base] = QueueFileChecksum((end - base) // SIZE, crc32(piece, crc), last)
            at = end
            done += len(piece)

    def cut(self, queue: ConsumeQueue, queue_offset: int) -> None:
        """Forget the files that hold entries from `queue_offset` on."""
        found = self._queues.get((queue.topic, queue.queue_id), {})
        end = queue_offset * SIZE
        for base in [b for b in found if b + queue.mapped_files.file_bytes > end]:
            del found[base]

    def remove(self, queue: ConsumeQueue, base: int) -> None:
        """Forget one file."""
        self._queues.get((queue.topic, queue.queue_id), {}).pop(base, None)

    def forget_before(self, log_first: int, deleted_before: Callable[[str], int]) -> None:
        """Forget files whose last record is not in the log any more, or was deleted with its topic.

        What such a file holds now may be of a topic made anew, and nobody compares it.
        """
        for (topic, _), files in self._queues.items():
            floor = max(log_first, deleted_before(topic))
            for base in [base for base, each in files.items() if each.last < floor]:
                del files[base]

    def encode(self, queues: Iterable[ConsumeQueue], log_first: int) -> bytes:
        """What `write` takes: those of all entries in the files now; reads what is not known."""
        assert log_first >= 0, "checksums are saved for a log whose begin is known"
        kept: dict[tuple[str, int], QueueFileChecksums] = {}
        for queue in queues:
            if files := self._complete(queue):
                kept[queue.topic, queue.queue_id] = files
        self._queues = kept
        self.log_first = log_first
        return _encode(kept)

    def write(self, checksums: bytes) -> None:
        """Make this the file's content, durably, once the entries it speaks of are; any thread."""
        data = _LOG_FIRST.pack(self.log_first) + checksums
        data = _MAGIC + _CRC.pack(crc32(data)) + data
        if data == self._saved:
            return
        fresh = self._path.with_name(NAME + ".tmp")
        self._files.write(fresh, data)
        self._files.rename(fresh, self._path)
        self._files.sync_dir(self._path.parent)
        self._saved = data

    def begin_at(self, log_first: int) -> None:
        """Have the log begin here: files before are about to be deleted. `try_rewrite` follows."""
        if self.log_first != NOT_KNOWN:
            self.log_first = log_first

    def try_rewrite(self) -> None:
        """Write anew where the log begins, durably; any thread.

        Where the disk refuses, a start after a crash will call the deleted files lost: better than
        to keep them on a full disk.
        """
        if self.log_first != NOT_KNOWN:
            with suppress(OSError):
                self.write(self._saved[_ENTRIES_AT:])

    def _complete(self, queue: ConsumeQueue) -> QueueFileChecksums:
        """The checksums of a queue's files up to the last entry written."""
        known = self._queues.get((queue.topic, queue.queue_id), {})
        found: QueueFileChecksums = {}
        for base in queue.mapped_files.bases[-_FILES_MAX:]:
            length = min(queue.written_offset * SIZE - base, queue.mapped_files.file_bytes)
            if length <= 0:
                continue
            sum_ = known.get(base)
            if sum_ is None or sum_.entries * SIZE != length:
                sum_ = _measure(queue, base, length)
            found[base] = sum_
        return found


def _measure(queue: ConsumeQueue, base: int, length: int) -> QueueFileChecksum:
    """The checksum of what a file holds now up to a byte."""
    return measure(queue.mapped_files.read(base, length))


def measure(raw: bytes) -> QueueFileChecksum:
    """The checksum of whole entries."""
    last = ENTRY.unpack_from(raw, len(raw) - SIZE)[0] if len(raw) >= SIZE else -1
    return QueueFileChecksum(len(raw) // SIZE, crc32(raw), last)


def _encode(queues: dict[tuple[str, int], QueueFileChecksums]) -> bytes:
    parts = []
    for (topic, queue_id), files in queues.items():
        name = topic.encode()
        parts.append(_QUEUE.pack(len(name), queue_id, len(files)) + name)
        parts += [_FILE.pack(base, *each) for base, each in files.items()]
    return b"".join(parts)


def _decode(raw: bytes) -> tuple[dict[tuple[str, int], QueueFileChecksums], int]:
    found: dict[tuple[str, int], QueueFileChecksums] = {}
    start = len(_MAGIC) + _CRC.size
    if raw[: len(_MAGIC)] != _MAGIC or raw[len(_MAGIC) : start] != _CRC.pack(crc32(raw[start:])):
        return found, NOT_KNOWN
    at = start + _LOG_FIRST.size
    try:
        (log_first,) = _LOG_FIRST.unpack_from(raw, start)
        while at < len(raw):
            width, queue_id, count = _QUEUE.unpack_from(raw, at)
            at += _QUEUE.size + width
            files = found[raw[at - width : at].decode(), queue_id] = {}
            for _ in range(count):
                base, entries, crc, last = _FILE.unpack_from(raw, at)
                files[base] = QueueFileChecksum(entries, crc, last)
                at += _FILE.size
    except (error, UnicodeDecodeError):
        return {}, NOT_KNOWN
    return found, log_first
