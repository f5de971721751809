"""A table that is on disk before a change of it is answered, written by a thread.

Changes count in memory at once. One write carries all changes that came while the last one was
under way, so any number of changes costs two writes. `flushed` waits until they are on disk.
Invariants: writes follow the order of the changes, one at a time; changes that are not written,
whatever the reason, are undone, newest first, and those who wait for them get the error.
Java: ConfigManager.persist, which its threads wait for one after the other.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from cometmq.errors import Reject
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.store.json_file import JsonFile

log = logging.getLogger(__name__)


class _WriteBatch:
    """Changes that one write makes durable; `outcome` is the error of the write, or None."""

    def __init__(self) -> None:
        self.undo: list[Callable[[], None]] = []
        self.names: set[str] = set()
        self.outcome: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()


class TableWriter:
    """Writes one table. Belongs to the broker's loop."""

    def __init__(
        self, file: JsonFile, what: str, snapshot: Callable[[], Callable[[], bytes]]
    ) -> None:
        """`snapshot()`, called on the loop, returns what makes the file's bytes in any thread."""
        self._file = file
        self._what = what
        self._snapshot = snapshot
        self.uses_thread = False
        """Whether a thread writes; before the broker runs, the loop may wait for the disk."""
        self.on_flushed: list[Callable[[], None]] = []
        """Called after a write that succeeded."""
        self._next: _WriteBatch | None = None
        self._current: _WriteBatch | None = None
        self._writing: asyncio.Task[None] | None = None

    @property
    def has_pending(self) -> bool:
        """Whether some change is not on disk yet."""
        return self._writing is not None

    def is_pending(self, name: str) -> bool:
        """Whether a change of this name is not on disk yet."""
        batches = (self._current, self._next)
        return any(name in batch.names for batch in batches if batch is not None)

    def record_change(self, name: str, undo: Callable[[], None]) -> None:
        """Have a change of `name` written; `undo` takes it back.

        Raises Reject, with the change undone, where no thread writes and the disk refuses.
        """
        if self.uses_thread:
            if self._next is None:
                self._next = _WriteBatch()
            self._next.names.add(name)
            self._next.undo.append(undo)
            if self._writing is None:
                self._writing = asyncio.ensure_future(self._write_all())
            return
        try:
            self.write_now()
        except OSError as error:
            undo()
            raise not_written(self._what, error) from error

    def write_now(self) -> None:
        """Write the table before any thread does; raises OSError."""
        assert self._writing is None, "two writes of one table at a time"
        self._write(self._snapshot())

    async def flushed(self) -> None:
        """Wait until all changes made so far are on disk; raises Reject when one was refused."""
        batch = self._next or self._current
        if batch is not None and (error := await asyncio.shield(batch.outcome)) is not None:
            raise not_written(self._what, error)

    async def wait_idle(self) -> None:
        """Wait until no write is under way and none is due."""
        while self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write_all(self) -> None:
        try:
            while self._next is not None:
                assert self._current is None, "two writes of one table at a time"
                batch, self._current, self._next = self._next, self._next, None
                error: Exception | None = None
                try:
                    await asyncio.to_thread(self._write, self._snapshot())
                except Exception as problem:  # noqa: BLE001 - no thread to be had, say
                    error = problem
                self._finish(batch, error)
        finally:
            self._current = self._writing = None

    def _write(self, make: Callable[[], bytes]) -> None:
        self._file.write(make())

    def _finish(self, batch: _WriteBatch, error: Exception | None) -> None:
        self._current = None
        finished = [batch]
        if error is not None:
            bug = None if isinstance(error, OSError) else error
            text = "the %s of this broker cannot be written: %s"
            log.warning(text, self._what, error, exc_info=bug)
            if self._next is not None:  # it was made on top of what is undone now
                finished, self._next = [self._next, batch], None
            for each in finished:
                for undo in reversed(each.undo):
                    undo()
        for each in finished:
            each.outcome.set_result(error)
        if error is None:
            for notify in self.on_flushed:
                notify()


def not_written(what: str, error: Exception) -> Reject:
    """The refusal of a change that the disk does not take."""
    reason = getattr(error, "strerror", None) or error
    return Reject(
        ResponseCode.SERVICE_NOT_AVAILABLE, f"the {what} of this broker cannot be written: {reason}"
    )
