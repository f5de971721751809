"""How a command that copies a store and the broker that uses it agree, by files of the store.

The command holds the lock on `snapshot` as long as it copies and asks in `snapshot.request`; the
broker answers in `snapshot.answer`. While the lock is held, the broker deletes no files for their
age. The system releases the lock of a process that dies, so nothing has to expire.
Java: none.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files

LOCK = "snapshot"
_REQUEST = "snapshot.request"
_ANSWER = "snapshot.answer"
NAMES = frozenset([LOCK, _REQUEST, _ANSWER, f"{_REQUEST}.tmp", f"{_ANSWER}.tmp"])
"""The files of this agreement: no part of the store."""


class SnapshotAnswer(NamedTuple):
    """What the broker says of the store at the moment of its answer."""

    request: str
    """What it answers."""
    log_end: int
    """The byte up to which the log is written, with whole records."""
    commit_log: str
    """The directory of the log."""
    problem: str = ""
    """Why consumer offsets could not be written; empty: they are on disk."""


class SnapshotFiles:
    """The files of one store by which the two talk. Each side uses its own methods."""

    def __init__(self, files: Files, root: Path) -> None:
        self._files = files
        self._root = root
        self.lock_path = root / LOCK

    def ask(self, request: str) -> None:
        """The command's question; `request` is unlike any earlier one."""
        self._write(_REQUEST, {"request": request})

    def answer(self, request: str) -> SnapshotAnswer | None:
        """The broker's answer to this question; None: not yet."""
        found = self._read(_ANSWER)
        if found is None or found.get("request") != request:
            return None
        end, problem = int(str(found["log_end"])), str(found["problem"])
        return SnapshotAnswer(request, end, str(found["commit_log"]), problem)

    def asked(self) -> str | None:
        """The broker's side: what is asked now; None: nobody takes a snapshot."""
        found = self._read(_REQUEST) if self._files.stat(self._root / _REQUEST) else None
        return None if found is None else str(found.get("request"))

    def reply(self, answer: SnapshotAnswer) -> None:
        """The broker's side: answer."""
        self._write(_ANSWER, answer._asdict())

    def is_held(self) -> bool:
        """The broker's side: whether the process that asks is still there.

        Where it is gone, what it asked is deleted.
        """
        lock = self._files.lock(self.lock_path)
        if lock is None:
            return True
        self.clear()  # before the next one can take the lock and ask
        lock.release()
        return False

    def clear(self) -> None:
        """Delete what was asked and answered; whoever holds the lock may."""
        for name in (_REQUEST, _ANSWER):
            self._files.delete(self._root / name)

    def _read(self, name: str) -> dict[str, object] | None:
        data = self._files.read(self._root / name)
        try:
            found = None if data is None else json.loads(data)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def _write(self, name: str, fields: dict[str, object]) -> None:
        fresh = self._root / f"{name}.tmp"
        self._files.write(fresh, json.dumps(fields).encode())
        self._files.rename(fresh, self._root / name)
