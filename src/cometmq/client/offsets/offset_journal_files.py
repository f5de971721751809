"""Journals of finished messages on this machine's disk, one file per queue.

Owns names, files and their size; knows nothing of what the bytes mean
(`rules.queues.offset_journal`). Invariants: a file never grows beyond `FILE_BYTES`; what was
written is with the operating system when the call returns, so the death of the process loses
nothing; after a power cut messages may be repeated. When the disk fails, only the record of what is
done is lost. Layout of a file: a journal, then zeros. Old files of a group are removed after
`KEEP_DAYS`.
Java: LocalFileOffsetStore (there: one offset a queue, and for broadcasting only)
"""

from __future__ import annotations

import logging
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import quote

from cometmq.rules.queues.offset_journal import OffsetJournal

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.model.queue import MessageQueue
    from cometmq.runtime.clock_and_file_protocols import Files, OpenFile

log = logging.getLogger(__name__)

FILE_BYTES = 131_072
KEEP_DAYS = 14
_DAY_MS = 86_400_000
_SUFFIX = ".done"
_NEW_SUFFIX = ".new"
_NAME_CHARS = 80


class OffsetJournalFile:
    """The journal of one queue, open for writing. One loop owns it."""

    def __init__(self, files: Files, path: Path, journal: OffsetJournal) -> None:
        self.journal = journal
        self._files = files
        self._path = path
        self._file: OpenFile | None = None
        self._at = 0
        self._has_failed = False
        self._rewrite()

    def append(self, record: bytes) -> None:
        """Append one record of the journal; after an error, which is logged, nothing is written."""
        if not record or self._has_failed:
            return
        if self._at + len(record) > FILE_BYTES:
            self._rewrite()
            return  # the journal has what the record says, and so has the new file
        self._write(record)

    def close(self) -> None:
        """Close the file; nothing is written any more."""
        self._has_failed = True
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _rewrite(self) -> None:
        """Write a new, small file and replace the old one with it."""
        new = self._path.with_suffix(_NEW_SUFFIX)
        try:
            if self._file is not None:
                self._file.close()
                self._file = None
            self._files.delete(new)
            self._file = self._files.open(new, FILE_BYTES)
            self._at = 0
        except OSError as error:
            self._give_up(error)
            return
        self._write(self.journal.opening_records())
        if self._file is not None:
            try:
                self._file.close()  # Windows renames no file that is open
                self._file = None
                self._files.rename(new, self._path)
                self._file = self._files.open(self._path, FILE_BYTES)
            except OSError as error:
                self._give_up(error)

    def _write(self, record: bytes) -> None:
        if self._file is None:
            return
        try:
            self._file.write(self._at, record)
        except OSError as error:
            self._give_up(error)
        else:
            self._at += len(record)
            assert self._at <= FILE_BYTES, "a journal never grows beyond its file"

    def _give_up(self, error: OSError) -> None:
        log.warning(
            "what is done cannot be written to %s: %s; after a restart messages of the queue that "
            "are done may come again",
            self._path,
            error,
        )
        self.close()


class OffsetJournalFiles:
    """The journals of one group on this machine."""

    def __init__(self, files: Files, root: Path, group: str, namesrv: tuple[str, ...]) -> None:
        self._files = files
        self._group = group
        self._namesrv = ";".join(sorted(namesrv))
        digest = sha256(f"{group}\0{self._namesrv}".encode()).hexdigest()[:12]
        self._directory = root / f"{quote(group, safe='')[:_NAME_CHARS]}-{digest}"

    def open(self, queue: MessageQueue, start: int, *, is_reset: bool) -> OffsetJournalFile:
        """Open the journal of a queue that starts at the offset `start`."""
        owner = sha256("\0".join((self._group, self._namesrv, str(queue))).encode()).hexdigest()
        path = (
            self._directory / f"{quote(queue.topic, safe='')[:_NAME_CHARS]}-{owner[:16]}{_SUFFIX}"
        )
        found: bytes | None = None
        try:
            self._files.make_dir(self._directory, durable=False)
            found = self._files.read(path)
        except OSError as error:
            log.warning("%s cannot be read: %s", path, error)
        return OffsetJournalFile(
            self._files, path, OffsetJournal(owner, start, found, is_reset=is_reset)
        )

    def delete_old_files(self, now_ms: int) -> None:
        """Remove the files that nobody has written for `KEEP_DAYS`."""
        try:
            for name in self._files.names(self._directory):
                path = self._directory / name
                stat = self._files.stat(path)
                if stat and now_ms - stat.modified_ms > KEEP_DAYS * _DAY_MS:
                    self._files.delete(path)
        except OSError as error:
            log.warning("%s cannot be cleared of old files: %s", self._directory, error)
