"""What a former master had alone: copied before its log is cut where another history goes on.

`cut_log` copies the whole records behind a byte into a file of `unreplicated/`, makes that durable,
and then cuts a stopped store there: queues and key index are built anew by the next start, timers
come from the master. Broken off, it is run again, and copies nothing twice. `UnreplicatedFiles`
finds and reads such files. Invariant: no byte of the log is cut before its record is in a file.
Java: none; AutoSwitchHAClient truncates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cometmq.errors import ProtocolError, StoreCorrupt, StoreError
from cometmq.store.log.log_reader import LogReader
from cometmq.store.log.mapped_file_queue import MappedFileQueue, OpenFiles
from cometmq.store.recovery.checkpoint import Checkpoint
from cometmq.store.recovery.store_repair import StoreRepair
from cometmq.wire.records import log_record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files
    from cometmq.store.recovery.store_directory import StoreDirectory
    from cometmq.wire.records.log_record import StoredRecord

NAME = "unreplicated"
_RESENT = ".resent"
_OPEN_FILES = 8
_CHUNK_BYTES = 1 << 20


class UnreplicatedFile(NamedTuple):
    """One file of messages that were cut out of a log."""

    name: str
    size: int
    is_resent: bool


def cut_log(files: Files, directory: StoreDirectory, file_bytes: int, at: int, stamp: str) -> Path:
    """Copy what the log of a stopped store has from byte `at` on, and cut it there.

    Returns the file, which is not there where nothing was. Raises StoreLocked while a broker uses
    the store; OSError: run it again.
    """
    directory.check()
    directory.take()
    log_files = MappedFileQueue(
        files, directory.commit_log, file_bytes, OpenFiles(_OPEN_FILES), mapped=False
    )
    try:
        log_files.load()
        checkpoint = Checkpoint(files, directory.checkpoint)
        checkpoint.load()
        reader = LogReader(log_files, check_crc=True, with_checksum=checkpoint.with_checksum)
        path = _copy(files, directory.root / NAME, reader, log_files, at, stamp)
        StoreRepair(files, directory, log_files).run(())
        for name in ("timerlog", "timerwheel"):
            _delete_all(files, directory.root / name)
        files.delete(directory.config / "timercheck")
        log_files.mapped = True  # each deletion is durable before the one before it in the log
        log_files.cut(at)
        for segment in log_files.segments.values():
            segment.open().sync()
    finally:
        log_files.close()
        directory.release()
    return path


def _copy(
    files: Files,
    target: Path,
    reader: LogReader,
    log_files: MappedFileQueue,
    start: int,
    stamp: str,
) -> Path:
    path = target / f"{start:020}-{stamp}"
    records = [(record.phy_offset, record.size) for record in _records(reader, start)]
    if not records or _is_copied(files, target, start, log_files.read(*records[0])):
        return path
    files.make_dir(target)
    fresh = path.with_name(path.name + ".tmp")
    files.delete(fresh)
    file, place = files.open(fresh, sum(size for _, size in records)), 0
    try:
        for phy_offset, size in records:
            file.write(place, log_files.read(phy_offset, size))
            place += size
        file.sync()
    finally:
        file.close()
    files.rename(fresh, path)
    files.sync_dir(target)
    return path


def _records(reader: LogReader, at: int) -> Iterator[StoredRecord]:
    while True:
        record = reader.at(at)
        if record is not None:
            yield record
            at = record.phy_offset + record.size
        elif (following := reader.next_file(at)) >= 0:
            at = following
        else:
            return


def _is_copied(files: Files, target: Path, start: int, first: bytes) -> bool:
    """Whether a run that was broken off has made the file already."""
    for name in files.names(target):
        if name.startswith(f"{start:020}-") and not name.endswith(".tmp"):
            file = files.open(target / name, 0)
            try:
                if file.read(0, len(first)) == first:
                    return True
            finally:
                file.close()
    return False


def _delete_all(files: Files, path: Path) -> None:
    for name in files.names(path):
        files.delete(path / name)
    stat = files.stat(path)
    if stat is not None and stat.size >= 0:
        files.delete(path)


class UnreplicatedFiles:
    """The files of one store; its broker may run meanwhile."""

    def __init__(self, files: Files, root: Path) -> None:
        self._files = files
        self._directory = root / NAME

    def all(self) -> list[UnreplicatedFile]:
        """The files, the oldest places of the log first."""
        found = []
        for name in self._files.names(self._directory):
            stat = self._files.stat(self._directory / name)
            if stat is not None and not name.endswith(".tmp"):
                plain = name.removesuffix(_RESENT)
                found.append(UnreplicatedFile(plain, stat.size, plain != name))
        return found

    def records(self, one: UnreplicatedFile) -> Iterator[StoredRecord]:
        """Its messages in the order of the log. StoreCorrupt: it cannot be read on."""
        path = self._path(one)
        file = self._files.open(path, 0)
        at, unread = 0, b""
        try:
            while at < one.size:
                head = log_record.BLANK_SIZE
                if len(unread) < head or len(unread) < int.from_bytes(unread[:4]):
                    unread = file.read(at, max(_CHUNK_BYTES, int.from_bytes(unread[:4])))
                try:
                    record = log_record.decode(unread)
                except ProtocolError as problem:
                    raise StoreCorrupt(f"{path} is damaged at byte {at}: {problem}") from problem
                yield record
                at, unread = at + record.size, unread[record.size :]
        finally:
            file.close()

    def mark_resent(self, one: UnreplicatedFile) -> None:
        """Remember that its messages were sent again."""
        self._files.rename(self._path(one), self._path(one._replace(is_resent=True)))
        self._files.sync_dir(self._directory)

    def find(self, name: str) -> UnreplicatedFile:
        """The file of this name; StoreError: there is none."""
        for one in self.all():
            if one.name == name:
                return one
        known = ", ".join(each.name for each in self.all()) or "none"
        raise StoreError(f"{self._directory} has no file {name}; there are: {known}")

    def _path(self, one: UnreplicatedFile) -> Path:
        return self._directory / (one.name + (_RESENT if one.is_resent else ""))
