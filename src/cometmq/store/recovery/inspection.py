"""Inspection of a stopped store: what is whole, what is damaged. Changes nothing.

Reads the log record by record, every checksum included, and compares queues and index with it. It
walks and checks as a start does (`log_walk.py`, `queue_check.py`), so it says beforehand what a
start will mend, cut or refuse; and it sees what a start does not read.
Java: none; mqadmin's exportMetadata and the checks of recovery come near.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Self

from cometmq.errors import NotAStore, StoreLocked
from cometmq.store.index.index_check import DEFAULT_INDEX_LAYOUT, IndexCheck
from cometmq.store.log.log_reader import LogReader
from cometmq.store.log.mapped_file_queue import (
    NAME_DIGITS,
    MappedFileQueue,
    OpenFiles,
    is_number,
)
from cometmq.store.queues.deleted_topics import DeletedTopics
from cometmq.store.queues.queue_checksums import QueueChecksums
from cometmq.store.queues.queue_directories import queue_directories, queue_directory
from cometmq.store.queues.raw_entries import raw_entry
from cometmq.store.recovery.checkpoint import Checkpoint
from cometmq.store.recovery.light_topics import is_light_queue
from cometmq.store.recovery.log_walk import LogWalk, start_by_time
from cometmq.store.recovery.lost_messages import (
    known_end,
    lost_begin,
    lost_end,
    messages_between,
    named,
)
from cometmq.store.recovery.missing_log import require_log
from cometmq.store.recovery.queue_check import QueueCheck, durable_end_of
from cometmq.store.recovery.records_without_checksum import UnchecksummedRecordFinder
from cometmq.store.recovery.store_directory import StoreDirectory
from cometmq.wire.records import sysflag
from cometmq.wire.records.consume_queue_entry import FILLER_SIZE, SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files, HeldLock
    from cometmq.store.index.index_file import IndexFileLayout
    from cometmq.store.recovery.log_walk import LostBytes
    from cometmq.wire.records.log_record import StoredRecord

    TagsCode = Callable[[str, bytes, int], int | None]

_OPEN_FILES = 64
_LOG_BYTES = 1024**3
_QUEUE_BYTES = 6_000_000
_TORN_BYTES = 1 << 16
_REPAIR = "`cometmq store repair`"


@dataclass
class InspectionReport:
    """What an inspection found.

    `damage` is lost; `notes` is what the next start mends or cuts, without loss; `repairs` is
    without loss too, but no start sees it.
    """

    was_stopped: bool
    first: int = 0
    end: int = 0
    records: int = 0
    queues: int = 0
    light_queues: int = 0
    """Those of light topics, which only Apache's broker serves; they are not looked at."""
    topics: Counter[str] = field(default_factory=Counter)
    damage: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    """What may be damaged: nothing shows whether it is."""
    lost: list[LostBytes] = field(default_factory=list)
    """The parts of the log between whole records that hold none."""


class _WrongQueueEntry(NamedTuple):
    """An entry that is not what its record says: which file it is in, and what it is."""

    base: int
    phy_offset: int
    is_absent: bool


class Inspection:
    """One stopped store, locked while it is inspected. A context manager."""

    def __init__(
        self,
        root: Path,
        files: Files,
        index_layout: IndexFileLayout = DEFAULT_INDEX_LAYOUT,
        commit_log: Path | None = None,
        tags_code: TagsCode | None = None,
    ) -> None:
        """Raise NotAStore when there is no store, StoreLocked when a broker runs on it.

        `commit_log`: the directory of the log, where it is not in `root`. `tags_code`: what an
        entry says of a message's tag; None where that is not known.
        """
        self._index_layout = index_layout
        self._files = files
        self._tags_code = tags_code
        self.directory = StoreDirectory(files, root, commit_log)
        self.directory.check()
        if not files.names(self.directory.commit_log):
            raise NotAStore(
                f"{self.directory.commit_log} holds no commit log; where storePathCommitLog says "
                "another directory, give that one with --commit-log"
            )
        self._open_files = OpenFiles(_OPEN_FILES)
        self.log_files = self._files_of(self.directory.commit_log, _LOG_BYTES)
        self._checkpoint = Checkpoint(files, self.directory.checkpoint)
        self._checkpoint.load()
        self._reader = LogReader(
            self.log_files, check_crc=True, with_checksum=self._checkpoint.with_checksum
        )
        self._queue_files: dict[tuple[str, int], MappedFileQueue] = {}
        self._held: HeldLock | None = None
        self._replayed_from = sys.maxsize
        """Entries of records from here on are written by a start without a checkpoint's byte."""

    def __enter__(self) -> Self:
        """Take the store's lock, if it has ever had one."""
        lock = self.directory.root / "lock"
        if self._files.stat(lock) is not None:
            self._held = self._files.lock(lock)
            if self._held is None:
                raise StoreLocked(
                    f"the store {self.directory.root} is in use; stop its broker first"
                )
        return self

    def __exit__(self, *_: object) -> None:
        """Close the files and release the lock."""
        self.log_files.close()
        for mapped_files in self._queue_files.values():
            mapped_files.close()
        if self._held is not None:
            self._held.release()

    def records(self, start: int = -1) -> Iterator[StoredRecord]:
        """The whole records from a byte of the log on (default: the first), over damage."""
        return self._walk(self.log_files.first if start < 0 else start).records()

    def _walk(self, start: int) -> LogWalk:
        is_same_boot = self.directory.is_same_boot
        return LogWalk(self._reader, self._checkpoint, start, is_same_boot=is_same_boot)

    def verify(self) -> InspectionReport:
        """Read everything and say what is whole. StoreCorrupt, NotAStore: as a start says."""
        require_log(self._files, self.directory, self.log_files)
        first = self.log_files.first
        report = InspectionReport(self.directory.was_stopped, first, first)
        if not report.was_stopped:
            self._replayed_from = start_by_time(self._reader, self.log_files, self._checkpoint)
        self._load_queues(report)
        self._check_files(report)
        index = IndexCheck(
            self._files,
            self.directory.index,
            self._index_layout,
            self._checkpoint,
            self.log_files,
        )
        deletions = DeletedTopics(self._files, self.directory.config)
        deletions.load(first)
        ends: dict[tuple[str, int], int] = {}
        strange: dict[tuple[str, int], list[_WrongQueueEntry]] = defaultdict(list)
        bare = UnchecksummedRecordFinder()
        walk = self._walk(first)
        for record in walk.records():
            report.records += 1
            report.topics[record.topic] += 1
            index.see(record)
            bare.see(record)
            is_deleted = record.phy_offset < deletions.end_of(record.topic)
            if sysflag.is_queued(record.sys_flag) and not is_deleted:
                queue = record.topic, record.queue_id
                ends[queue] = record.queue_offset + 1
                if (found := self._strange(queue, record)) is not None:
                    strange[queue].append(found)
        report.end, report.lost = walk.at, walk.lost
        assert report.first <= report.end, "the log ends before it begins"
        assert report.records == report.topics.total(), "a record is counted twice, or not at all"
        report.queues = len(ends)
        report.doubts = bare.found
        self._report_lost(report)
        self._check_end(report)
        self._check_queues(report, ends, strange, deletions)
        mended, repairs = index.finish(report.end, was_stopped=report.was_stopped)
        report.notes += mended
        report.repairs += [
            f"{line}, which no start sees: {_REPAIR} has the index built anew" for line in repairs
        ]
        return report

    def _load_queues(self, report: InspectionReport) -> None:
        for topic, queue_id, path in queue_directories(self._files, self.directory.consume_queue):
            if not self._files.names(path):
                continue
            found = self._files_of(path, _QUEUE_BYTES)
            if is_light_queue(topic, found, self.log_files):
                report.light_queues += 1
                found.close()
            else:
                self._queue_files[topic, queue_id] = found

    def _check_files(self, report: InspectionReport) -> None:
        if missing := self.log_files.missing():
            report.damage.append(f"{missing} is missing: a start refuses")
        for base in self.log_files.bases:
            path = self.log_files.path_of(base)
            stat = self._files.stat(path)
            if stat is not None and stat.size != self.log_files.file_bytes:
                report.notes.append(
                    f"{path} has {stat.size} bytes, not {self.log_files.file_bytes}: "
                    "it is filled up with zeros"
                )

    def _report_lost(self, report: InspectionReport) -> None:
        for lost in report.lost:
            messages = named(messages_between(self._queue_files, *lost[:2]))
            base = self.log_files.base_of(lost.start)
            report.damage.append(
                f"bytes {lost.start} to {lost.end} of the log, {self.log_files.path_of(base)} from "
                f"byte {lost.start - base} on: {messages}; a start goes on without them"
            )

    def _check_end(self, report: InspectionReport) -> None:
        """What follows the last whole record: zeros are sound, other bytes are cut at a start."""
        end = report.end
        known = known_end(
            self._checkpoint,
            self._queue_files,
            self.log_files,
            was_stopped=report.was_stopped,
            is_same_boot=self.directory.is_same_boot,
        )
        if end < known.end:
            directory = self.directory.commit_log
            lost = lost_end(self._queue_files, directory, end, known.end)
            report.damage.append(f"{lost}; a start refuses")
            return
        base = self.log_files.base_of(end)
        if any(self.log_files.read(end, _TORN_BYTES)):
            path = self.log_files.path_of(base)
            behind = self._reader.behind(end)
            if report.was_stopped and not self._checkpoint.is_known:
                report.damage.append(
                    f"{path} holds no whole record at byte {end - base}; a start cuts the log there"
                )
            elif behind is not None:
                report.notes.append(
                    f"{path} holds no whole record at byte {end - base}, and whole ones behind it, "
                    f"from byte {behind.phy_offset} of the log on: no flush had reached them "
                    "when the machine went down; the next start cuts them"
                )
            else:
                report.notes.append(
                    f"{path} ends in an unfinished write at byte {end - base}: no sender had an "
                    "answer for it; the next start cuts it"
                )
        for later in [later for later in self.log_files.bases if later > max(end, base)]:
            if any(self.log_files.read(later, _TORN_BYTES)):
                path = self.log_files.path_of(later)
                report.notes.append(f"{path} does not continue the log: the next start removes it")

    def _check_queues(
        self,
        report: InspectionReport,
        ends: dict[tuple[str, int], int],
        strange: dict[tuple[str, int], list[_WrongQueueEntry]],
        deletions: DeletedTopics,
    ) -> None:
        """Sort what is wrong with queues by who mends it: the next start, or a repair."""
        checksums = QueueChecksums(self._files, self.directory.root)
        if self._checkpoint.is_known:
            checksums.load()
        if lost := lost_begin(report.first, checksums):
            report.damage.append(f"{lost}; a start goes on without them")
        checksums.forget_before(report.first, deletions.end_of)
        check = QueueCheck(
            self.log_files,
            self._queue_files,
            checksums,
            durable_end_of(self._checkpoint, was_stopped=report.was_stopped),
            self._tags_code,
        )
        damaged = {(topic, queue_id, base) for topic, queue_id, base in check.damaged()}
        for topic, queue_id, base in sorted(damaged):
            directory = queue_directory(self.directory.consume_queue, topic, queue_id)
            path = directory / f"{base:0{NAME_DIGITS}d}"
            report.notes.append(
                f"{path} does not agree with the log: the next start builds it anew"
            )
        for (topic, queue_id), found in sorted(strange.items()):
            unseen = [each for each in found if (topic, queue_id, each.base) not in damaged]
            mended = [each for each in unseen if self._is_mended(each)]
            if mended:
                report.notes.append(
                    f"queue {topic} {queue_id} lacks {len(mended)} entries: the next start adds "
                    "them"
                )
            if len(unseen) > len(mended):
                report.repairs.append(
                    f"queue {topic} {queue_id} lacks {len(unseen) - len(mended)} entries or has "
                    f"other ones, which no start sees: {_REPAIR} has it built anew"
                )
        for (topic, queue_id), end in sorted(ends.items()):
            phy_offset, size, _ = self._entry((topic, queue_id), end)
            is_known = any(damage[:2] == (topic, queue_id) for damage in damaged)
            if size > 0 and size != FILLER_SIZE and not is_known and phy_offset >= report.end:
                report.notes.append(
                    f"queue {topic} {queue_id} has entries beyond its last message, at "
                    f"{phy_offset}: they are written over"
                )

    def _is_mended(self, strange: _WrongQueueEntry) -> bool:
        """Whether a start mends an entry that the check of its file does not find wrong."""
        checkpoint = self._checkpoint
        if checkpoint.is_known:
            return strange.is_absent or strange.phy_offset >= checkpoint.dispatched
        return strange.phy_offset >= self._replayed_from

    def _strange(self, queue: tuple[str, int], record: StoredRecord) -> _WrongQueueEntry | None:
        """What is wrong with the entry of a record; None: nothing."""
        found = self._entry(queue, record.queue_offset)
        if found[:2] == (record.phy_offset, record.size):
            code = None
            if self._tags_code is not None:
                code = self._tags_code(record.topic, record.properties, record.store_ms)
            if code is None or code == found[2]:
                return None
        files = self._queue_files.get(queue)
        base = files.base_of(record.queue_offset * SIZE) if files is not None else 0
        return _WrongQueueEntry(base, record.phy_offset, found == (0, 0, 0))

    def _entry(self, queue: tuple[str, int], number: int) -> tuple[int, int, int]:
        files = self._queue_files.get(queue)
        return raw_entry(files, number) if files is not None else (0, 0, 0)

    def _files_of(self, directory: Path, default_bytes: int) -> MappedFileQueue:
        """The files of a directory; the longest, or their names, give their size."""
        names = [name for name in self._files.names(directory) if is_number(name, NAME_DIGITS)]
        stats = [self._files.stat(directory / name) for name in names]
        size = max([stat.size for stat in stats if stat is not None], default=default_bytes)
        bases = sorted(int(name) for name in names)
        if size <= 0 or any(base % size for base in bases):
            size = min([b - a for a, b in itertools.pairwise(bases)], default=1)
        mapped_files = MappedFileQueue(
            self._files, directory, size, self._open_files, may_grow=False
        )
        mapped_files.load()
        return mapped_files
