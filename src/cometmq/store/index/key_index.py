"""The key index of a store: finds the records that have a key.

Filled from the log in the background, in batches; a query first lets it catch up. The files are
RocketMQ's. All of it follows from the log, so missing or broken parts are dropped and rebuilt.
Refuses to know requests. Invariant: the checkpoint names a file, an entry and a byte of the log
only after all entries of records below that byte are durable.
Java: IndexService.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from cometmq.runtime.worker_jobs import run_job
from cometmq.store.index.index_builder import KeyedRecordReader
from cometmq.store.index.index_entries import no_entries
from cometmq.store.index.index_file import (
    NAME_DIGITS,
    IndexFile,
    IndexFileLayout,
    is_index_file,
)
from cometmq.store.index.trusted_index_files import view_index_files
from cometmq.store.log.mapped_file_queue import MappedFileQueue, pin_segments
from cometmq.wire.records import index_file_layout
from cometmq.wire.records.index_file_layout import IndexFileHeader

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Clock, Files, OpenFile, Worker
    from cometmq.settings.store import StoreSettings
    from cometmq.store.cold_reads import ColdReader
    from cometmq.store.index.index_file import IndexWrite
    from cometmq.store.log.commit_log import CommitLog
    from cometmq.store.log.mapped_file_queue import OpenFiles
    from cometmq.store.recovery.checkpoint import Checkpoint

    IndexWrites = list[tuple[IndexFile, IndexWrite]]

log = logging.getLogger(__name__)
BATCH_RECORDS = 256
"""Records read in one slice: mostly what a chunk of the log holds, 0.4 ms."""
ENTRIES_AT_ONCE = 768
"""Entries that one slice puts, of messages with very many keys: 0.3 ms."""
WAITING_MAX = 1_048_576
"""Entries in memory at which the index waits for its writes to end: 20 MB."""
WRITE_AT = 262_144
"""Entries in memory at which they are written before their time: with them go 20 MB of slots."""
_FILES_WAITING_MAX = 48
STEPS_MAX = 1_000_000
"""Entries of one file that a lookup goes through, at most: a second or two of a thread."""
_STEPS_A_BATCH = 1_000
_KEY_CHARS = 100


class IndexFileQueue(MappedFileQueue):
    """The files of an index: named by the local time at which they were made."""

    __slots__ = ()

    def load(self) -> None:
        """Find the files; others are left alone, as Java does."""
        for name in self.files.names(self.directory):
            if is_index_file(name):
                self.add(int(name))

    def path_of(self, base: int) -> Path:
        """The file of this name."""
        return self.directory / f"{base:0{NAME_DIGITS}d}"


class IndexPosition(NamedTuple):
    """How far the index has come: its newest file, that file's next entry, and the log's byte."""

    name: int
    number: int
    position: int
    end_ms: int


class KeyLookupResult(NamedTuple):
    """Where records lie whose key has a hash; whether nothing in the files was passed over."""

    offsets: list[int]
    is_complete: bool


class KeyIndex:
    """All index files of one store. Belongs to its loop."""

    def __init__(
        self,
        files: Files,
        clock: Clock,
        directory: Path,
        settings: StoreSettings,
        commit_log: CommitLog,
        open_files: OpenFiles,
    ) -> None:
        self._files = files
        self._clock = clock
        self._log = commit_log
        self.is_enabled = settings.message_index_enable
        self._file_layout = IndexFileLayout(settings.max_hash_slot_num, settings.max_index_num)
        self._waiting_max = min(WAITING_MAX, _FILES_WAITING_MAX * settings.max_index_num)
        self._write_at = min(WRITE_AT, self._waiting_max // 2)
        self._mapped_files = IndexFileQueue(
            files, directory, self._file_layout.file_bytes, open_files
        )
        self._record_reader = KeyedRecordReader(commit_log, settings.commit_log_file_bytes)
        self._index_files: list[IndexFile] = []
        self._resumed_at = -1
        self._rest = no_entries()
        """What is still to be put of the records from `position` up to `_rest_end`."""
        self._rest_end = 0
        self.waiting = 0
        """Entries that are in memory only."""
        self.is_paused = False
        """Whether nothing is to be indexed now: what is will be written, and the log first."""
        self.position = 0
        """Every record before this byte of the log is indexed."""
        self._has_reported_length = False

    # ---- opening

    def load(self, checkpoint: Checkpoint, log_end: int, *, was_stopped: bool) -> None:
        """Find out what the files hold, drop what cannot be trusted, and where to go on."""
        if not self.is_enabled:
            return
        self._mapped_files.load()
        paths = {name: self._mapped_files.path_of(name) for name in self._mapped_files.bases}
        view = view_index_files(
            self._files,
            paths,
            self._file_layout,
            checkpoint,
            self._record_reader,
            self._log.first,
            log_end,
            was_stopped=was_stopped,
        )
        for name in view.newer:
            log.info("the index file %s is newer than the checkpoint: built anew", paths[name])
            self._mapped_files.remove(name)
        for name in view.broken:
            log.warning("the index file %s %s: building it anew", paths[name], view.why)
            self._mapped_files.remove(name)
        segments = self._mapped_files.segments
        self._index_files = [
            IndexFile(segments[name], self._file_layout, head) for name, head in view.kept.items()
        ]
        if view.position >= 0:
            self.position = view.position
            self._mend_last(view.number, was_stopped=was_stopped)
        else:
            self._resume_after_last()
        self.position = max(self.position, self._log.first)
        assert 0 <= self.position <= max(log_end, self._log.first)

    def _mend_last(self, count: int, *, was_stopped: bool) -> None:
        """Make the newest file end at this entry, as our own checkpoint says."""
        last = self._index_files[-1] if self._index_files else None
        if last and not (was_stopped and last.count == count):
            last.repair(count)
            last.end_ms = max(last.end_ms, self._log.store_time(last.end_phy))

    def _resume_after_last(self) -> None:
        """Go on with the record that was indexed last, which may not be indexed whole."""
        last = next((file for file in reversed(self._index_files) if file.count > 1), None)
        self.position = self._resumed_at = last.end_phy if last else 0

    async def warm(self, cold_reader: ColdReader) -> None:
        """Bring the slots of the newest file into memory: new entries fall anywhere in them."""
        last = self._index_files[-1] if self._index_files else None
        if last is None or last.is_full or last.count == 1:
            return
        count, table, opened = last.count, last.new_table(), last.segment.pin()
        await cold_reader.run_in_thread(lambda: table.load(opened.fetch, count), last.segment.unpin)
        last.adopt(table, count)

    # ---- filling

    @property
    def is_amid_records(self) -> bool:
        """Whether records were read whose entries are not all put."""
        return self._rest.count > 0

    def advance(self, end: int) -> bool:
        """Index one slice of records below `end`; whether it makes sense to go on at once.

        Raises NotInMemory where the disk would have to be waited for; nothing was indexed then.
        """
        if not self.is_enabled or self.is_paused:
            return False
        if self.position >= end or self.waiting > self._waiting_max:
            return False
        if not self._rest.count:
            entries, self._rest_end = self._record_reader.read(
                self.position, end, BATCH_RECORDS, cached_only=True
            )
            assert self._rest_end >= self.position, "the index never goes back"
            assert not entries.count or entries.phy_offsets[0] >= self.position
            if entries.count and entries.phy_offsets[0] == self._resumed_at:
                entries = entries.part(self._already(self._resumed_at), entries.count)
            self._rest = entries
        if self._rest.count:
            self._put_rest(ENTRIES_AT_ONCE)
        if not self._rest.count:
            self.position = self._rest_end
        return self.position < end

    def _put_rest(self, count: int) -> None:
        """Put up to so many of the entries that were read; the last one ends their records."""
        last = self._index_files[-1] if self._index_files else None
        file = self._roll() if last is None or last.is_full else last
        done = file.put(self._rest.part(0, count))
        self._rest = self._rest.part(done, self._rest.count)
        self.waiting += done

    def _finish_records(self) -> None:
        """Put all of the records that were begun: no write ends within one."""
        while self._rest.count:
            self._put_rest(self._rest.count)
        self.position = max(self.position, self._rest_end)

    def _already(self, phy_offset: int) -> int:
        """How many of a record's entries are in the files already."""
        found = 0
        for file in reversed(self._index_files):
            opened = file.segment.open()
            for number in range(file.written - 1, 0, -1):
                if file.read_entry(opened, number)[1] != phy_offset:
                    return found
                found += 1
        return found

    def _roll(self) -> IndexFile:
        """Begin a file; its times and offsets begin where the last one ends."""
        last = self._index_files[-1] if self._index_files else None
        assert last is None or last.is_full
        name = int(self._clock.local_stamp())
        if last is not None:
            name = max(name, last.name + 1)
        head = IndexFileHeader(0, 0, 0, 0, 0, 1)
        if last is not None:
            head = IndexFileHeader(last.end_ms, last.end_ms, last.end_phy, last.end_phy, 0, 1)
        file = IndexFile(self._mapped_files.segment(name), self._file_layout, head)
        self._index_files.append(file)
        return file

    # ---- writing

    @property
    def is_write_due(self) -> bool:
        """Whether so much waits in memory that it is to be written before its time."""
        return self.waiting > self._write_at

    def mark(self) -> IndexPosition:
        """How far the index has come now."""
        self._finish_records()
        last = self._index_files[-1] if self._index_files else None
        if last is None:
            return IndexPosition(0, 1, self.position, 0)
        return IndexPosition(last.name, last.count, self.position, last.end_ms)

    async def begin_writes(self) -> IndexWrites:
        """All that is to be written now, copied by and by; `is_paused` is set, `flush` follows."""
        assert self.is_paused, "slots must not change while they are copied"
        writes = self._all_writes()
        is_done = False
        try:
            for file, write in writes:
                while file.copy_more(write):
                    await asyncio.sleep(0)
            is_done = True
        finally:
            if not is_done:
                self.cancel_writes(writes)
        return writes

    def _all_writes(self) -> IndexWrites:
        self._finish_records()
        return [
            (file, write) for file in self._index_files if (write := file.begin_write()) is not None
        ]

    async def flush(self, writes: IndexWrites, worker: Worker) -> None:
        """Write them durably, in the worker. OSError: they stay pending."""
        is_done = False
        try:
            opened = pin_segments([file.segment for file, _ in writes])
            await run_job(worker, lambda: self._write(writes, opened), lambda: _unpin(writes))
            is_done = True
        finally:
            self._end_writes(writes, is_done=is_done)

    def cancel_writes(self, writes: IndexWrites) -> None:
        """Give up writes that were begun: what they hold stays pending."""
        self._end_writes(writes, is_done=False)

    def is_ahead_of(self, saved: tuple[int, int, int] | None) -> bool:
        """Whether more is indexed than a mark that was saved says."""
        return self.is_enabled and (saved is None or self.position > saved[2])

    def flush_now(self) -> None:
        """Do as `flush`, here and now, with all there is."""
        writes = self._all_writes()
        is_done = False
        try:
            for file, write in writes:
                while file.copy_more(write):
                    pass
            opened = pin_segments([file.segment for file, _ in writes])
            try:
                self._write(writes, opened)
            finally:
                _unpin(writes)
            is_done = True
        finally:
            self._end_writes(writes, is_done=is_done)

    def _write(self, writes: IndexWrites, opened: list[OpenFile]) -> None:
        if any(not file.is_known for file, _ in writes):
            self._files.sync_dir(self._mapped_files.directory)
            self._files.sync_dir(self._mapped_files.directory.parent)
        for (_, write), file in zip(writes, opened, strict=True):
            write.write_entries(file)
        for (_, write), file in zip(writes, opened, strict=True):
            write.write_slots(file)

    def _end_writes(self, writes: IndexWrites, *, is_done: bool) -> None:
        for file, write in writes:
            if is_done:
                file.commit_write(write)
            else:
                file.cancel_write()
        self.waiting = sum([file.waiting for file in self._index_files])
        assert self.waiting >= 0

    # ---- asking

    async def find(
        self, cold_reader: ColdReader, topic: str, key: str, count: int, begin_ms: int, end_ms: int
    ) -> KeyLookupResult:
        """Where records lie whose key has this key's hash, newest first, at most `count`."""
        hashed = index_file_layout.key_hash(topic, key)
        found: list[int] = []
        is_complete = True
        for file in self._index_files[::-1] if count > 0 else ():
            if file.overlaps(begin_ms, end_ms):
                search = _Search(file, hashed, begin_ms, end_ms, count, found)
                await search.run(cold_reader)
                if search.is_cut:
                    is_complete = False
                    self._report_length(file, topic, key)
            if file.begin_ms < begin_ms or len(found) >= count:
                break
        return KeyLookupResult(found, is_complete)

    def _report_length(self, file: IndexFile, topic: str, key: str) -> None:
        """Say once what becomes of lookups of a key that very many messages have."""
        if not self._has_reported_length:
            self._has_reported_length = True
            log.warning(
                "a lookup of %r in the topic %s passes over messages: it looks at the newest %d "
                "of a chain in an index file, and the chain in %s is longer; the older ones are "
                "found by another of their keys. Other such lookups are not named",
                key[:_KEY_CHARS],
                topic,
                STEPS_MAX,
                self._mapped_files.path_of(file.name),
            )

    @property
    def last_update(self) -> tuple[int, int]:
        """Store time and place of the newest record that is indexed; zeros when none is."""
        last = self._index_files[-1] if self._index_files else None
        return (last.end_ms, last.end_phy) if last else (0, 0)

    # ---- going

    def expired(self, log_first: int) -> list[IndexFile]:
        """The files that speak of nothing that is still in the log; never the newest."""
        gone = []
        for file in self._index_files[:-1]:
            if file.end_phy >= log_first or file.waiting:
                break
            gone.append(file)
        return gone

    def forget(self, file: IndexFile) -> Path:
        """Take a file out; what is left to do is to delete this path."""
        assert file is not self._index_files[-1], "entries are added to the newest file"
        assert not file.waiting, "entries of this file are not written yet"
        self._index_files.remove(file)
        return self._mapped_files.release(file.name)

    def close(self) -> None:
        """Close all files."""
        self._mapped_files.close()


def _unpin(writes: IndexWrites) -> None:
    for file, _ in writes:
        file.segment.unpin()


class _Search:
    """One walk along a chain of one file: first what is in memory, then what is in the file."""

    def __init__(
        self,
        file: IndexFile,
        hashed: int,
        begin_ms: int,
        end_ms: int,
        count: int,
        found: list[int],
    ) -> None:
        self._file = file
        self._hashed = hashed
        self._count = count
        self._found = found
        self._begin_ms = begin_ms
        self._end_ms = end_ms
        self._number = file.head_of(hashed)
        self._steps = 0

    @property
    def is_cut(self) -> bool:
        """Whether it ended before the chain did."""
        return self._number > 0 and self._steps >= STEPS_MAX

    async def run(self, cold_reader: ColdReader) -> None:
        """Collect the offsets that match."""
        file = self._file
        while self._number >= file.written and self._steps < STEPS_MAX:
            self._step(*file.entry(self._number))
            if not self._steps % _STEPS_A_BATCH:
                await asyncio.sleep(0)
        if self._number and file.segment.exists:
            opened = file.segment.pin()
            await cold_reader.run_in_thread(lambda: self._walk(opened), file.segment.unpin)

    def _walk(self, opened: OpenFile) -> None:
        """In a thread: the part of the chain that is in the file."""
        file = self._file
        if self._number < 0:
            self._number = file.read_slot(opened, self._hashed)
        while self._number and self._steps < STEPS_MAX:
            self._step(*file.read_entry(opened, self._number))

    def _step(self, hashed: int, phy_offset: int, seconds: int, before: int) -> None:
        self._steps += 1
        time_ms = self._file.begin_ms + seconds * 1000
        is_wanted = hashed == self._hashed and self._begin_ms <= time_ms <= self._end_ms
        if is_wanted and phy_offset not in self._found:
            self._found.append(phy_offset)
        is_over = len(self._found) >= self._count or time_ms < self._begin_ms
        self._number = before if 0 < before < self._number and not is_over else 0
