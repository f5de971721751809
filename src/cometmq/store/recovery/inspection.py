"""Inspection of a stopped store: what is whole, what is damaged. Changes nothing.

Reads the log record by record, every checksum included, and compares queues and index with it.
What a start would repair by itself is reported apart from what is lost.
Java: none; mqadmin's exportMetadata and the checks of recovery come near.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from cometmq.errors import NotAStore, StoreLocked
from cometmq.store.index.index_check import DEFAULT_INDEX_LAYOUT, IndexCheck
from cometmq.store.log.log_reader import LogReader
from cometmq.store.log.mapped_file_queue import MappedFileQueue, OpenFiles
from cometmq.store.queues.deleted_topics import DeletedTopics
from cometmq.store.recovery.checkpoint import Checkpoint
from cometmq.store.recovery.store_directory import StoreDirectory
from cometmq.wire.records import sysflag
from cometmq.wire.records.consume_queue_entry import ENTRY, FILLER_SIZE, SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files, HeldLock
    from cometmq.store.index.index_file import IndexFileLayout
    from cometmq.wire.records.log_record import StoredRecord

_OPEN_FILES = 64
_LOG_BYTES = 1024**3
_QUEUE_BYTES = 6_000_000


@dataclass
class InspectionReport:
    """What an inspection found. `damage` is lost; `notes` is what the next start repairs."""

    was_stopped: bool
    first: int = 0
    end: int = 0
    records: int = 0
    queues: int = 0
    topics: Counter[str] = field(default_factory=Counter)
    damage: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Inspection:
    """One stopped store, locked while it is inspected. A context manager."""

    def __init__(
        self,
        root: Path,
        files: Files,
        index_layout: IndexFileLayout = DEFAULT_INDEX_LAYOUT,
        commit_log: Path | None = None,
    ) -> None:
        """Raise NotAStore when there is no store, StoreLocked when a broker runs on it.

        `commit_log`: the directory of the log, where it is not in `root`.
        """
        self._index_layout = index_layout
        self._files = files
        self._layout = StoreDirectory(files, root, commit_log)
        self._layout.check()
        if not files.names(self._layout.commit_log):
            raise NotAStore(
                f"{self._layout.commit_log} holds no commit log; where storePathCommitLog says "
                "another directory, give that one with --commit-log"
            )
        self._open_files = OpenFiles(_OPEN_FILES)
        self._mapped_files = self._files_of(self._layout.commit_log, _LOG_BYTES)
        self._reader = LogReader(self._mapped_files, check_crc=True)
        self._queue_files: dict[tuple[str, int], MappedFileQueue] = {}
        self._held: HeldLock | None = None

    def __enter__(self) -> Self:
        """Take the store's lock, if it has ever had one."""
        lock = self._layout.root / "lock"
        if self._files.stat(lock) is not None:
            self._held = self._files.lock(lock)
            if self._held is None:
                raise StoreLocked(f"the store {self._layout.root} is in use; stop its broker first")
        return self

    def __exit__(self, *_: object) -> None:
        """Close the files and release the lock."""
        self._mapped_files.close()
        for mapped_files in self._queue_files.values():
            mapped_files.close()
        if self._held is not None:
            self._held.release()

    def records(self, start: int = -1) -> Iterator[StoredRecord]:
        """The whole records from a byte of the log on (default: the first); ends at damage."""
        at = self._mapped_files.first if start < 0 else start
        while True:
            record = self._reader.at(at)
            if record is not None:
                yield record
                at += record.size
            elif (at := self._reader.next_file(at)) < 0:
                return

    def verify(self) -> InspectionReport:
        """Read everything and say what is whole."""
        report = InspectionReport(
            self._layout.was_stopped, self._mapped_files.first, self._mapped_files.first
        )
        ends: Counter[tuple[str, int]] = Counter()
        self._check_files(report)
        missing: Counter[tuple[str, int]] = Counter()
        index = IndexCheck(self._files, self._layout.index, self._index_layout)
        deletions = DeletedTopics(self._files, self._layout.config)
        deletions.load(self._mapped_files.first)
        for record in self.records():
            report.records += 1
            report.topics[record.topic] += 1
            index.see(record)
            report.end = record.phy_offset + record.size
            is_deleted = record.phy_offset < deletions.end_of(record.topic)
            if sysflag.is_queued(record.sys_flag) and not is_deleted:
                queue = record.topic, record.queue_id
                ends[queue] = record.queue_offset + 1
                if self._entry(queue, record.queue_offset)[:2] != (record.phy_offset, record.size):
                    missing[queue] += 1
        report.queues = len(ends)
        self._check_end(report)
        self._check_queues(report, ends, missing)
        report.notes += index.finish()
        return report

    def _check_files(self, report: InspectionReport) -> None:
        if missing := self._mapped_files.missing():
            report.damage.append(f"{missing} is missing")
        for base in self._mapped_files.bases:
            path = self._mapped_files.path_of(base)
            stat = self._files.stat(path)
            if stat is not None and stat.size != self._mapped_files.file_bytes:
                report.notes.append(
                    f"{path} has {stat.size} bytes, not {self._mapped_files.file_bytes}"
                )

    def _check_end(self, report: InspectionReport) -> None:
        """What follows the last whole record: zeros are sound, other bytes are damage."""
        at = report.end
        if (following := self._reader.next_file(at)) >= 0:
            at = following
        base = self._mapped_files.base_of(at)
        if any(self._mapped_files.read(at, 1 << 16)):
            path = self._mapped_files.path_of(base)
            report.damage.append(f"{path} holds no whole record at byte {at - base}")
        for later in [later for later in self._mapped_files.bases if later > base]:
            if self._reader.at(later) is not None:
                path = self._mapped_files.path_of(later)
                report.damage.append(f"{path} holds records beyond the end of the log")
        checkpoint = Checkpoint(self._files, self._layout.checkpoint)
        checkpoint.load()
        if checkpoint.dispatched > report.end:
            lost = checkpoint.dispatched - report.end
            report.damage.append(f"the checkpoint knows of {lost} bytes more of the log")

    def _check_queues(
        self,
        report: InspectionReport,
        ends: Counter[tuple[str, int]],
        missing: Counter[tuple[str, int]],
    ) -> None:
        for (topic, queue_id), count in sorted(missing.items()):
            report.notes.append(f"queue {topic} {queue_id} lacks {count} entries or has other ones")
        for (topic, queue_id), end in sorted(ends.items()):
            phy_offset, size, _ = self._entry((topic, queue_id), end)
            if size > 0 and size != FILLER_SIZE:
                report.notes.append(
                    f"queue {topic} {queue_id} has entries beyond its last message, at {phy_offset}"
                )

    def _entry(self, queue: tuple[str, int], number: int) -> tuple[int, int, int]:
        mapped_files = self._queue_files.get(queue)
        if mapped_files is None:
            directory = self._layout.consume_queue / queue[0] / str(queue[1])
            mapped_files = self._queue_files[queue] = self._files_of(directory, _QUEUE_BYTES)
        raw = mapped_files.read(number * SIZE, SIZE)
        return ENTRY.unpack(raw) if len(raw) == SIZE else (0, 0, 0)

    def _files_of(self, directory: Path, default_bytes: int) -> MappedFileQueue:
        """The files of a directory; their names, or the first file, give their size."""
        bases = sorted(int(n) for n in self._files.names(directory) if n.isdecimal())
        size = default_bytes
        if len(bases) > 1:
            size = min(after - before for before, after in itertools.pairwise(bases))
        elif bases and (stat := self._files.stat(directory / f"{bases[0]:020d}")):
            size = max(stat.size, 1)
        mapped_files = MappedFileQueue(
            self._files, directory, size, self._open_files, may_grow=False
        )
        mapped_files.load()
        return mapped_files
