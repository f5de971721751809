"""A table that is on disk before a change of it is answered, written where the loop does not wait.

Changes count in memory at once; a thread writes the file, once for all changes that came while the
last write was under way, so any number of them costs two writes. `saved` says when they are safe.
Invariants: writes follow the order of the changes, one at a time; what the disk refuses is taken
back, newest first, and whoever waits for it is told.
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


class _Group:
    """Changes that one write makes durable; `outcome` is what the disk said, None for yes."""

    def __init__(self) -> None:
        self.undo: list[Callable[[], None]] = []
        self.names: set[str] = set()
        self.outcome: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()


class Keep:
    """Writes one table. Belongs to the broker's loop."""

    def __init__(
        self, file: JsonFile, what: str, snapshot: Callable[[], Callable[[], bytes]]
    ) -> None:
        """`snapshot()`, called on the loop, gives what makes the file's bytes in any thread."""
        self._file, self._what, self._snapshot = file, what, snapshot
        self.is_aside = False
        """Whether a thread writes. Until the broker runs there is nobody to hold up."""
        self.on_saved: list[Callable[[], None]] = []
        """Called after a write that succeeded."""
        self._next: _Group | None = None
        self._now: _Group | None = None
        self._writing: asyncio.Task[None] | None = None

    @property
    def is_behind(self) -> bool:
        """Whether some change is not on disk yet."""
        return self._writing is not None

    def is_unsaved(self, name: str) -> bool:
        """Whether a change of this name is not on disk yet."""
        groups = (self._now, self._next)
        return any(name in group.names for group in groups if group is not None)

    def changed(self, name: str, undo: Callable[[], None]) -> None:
        """Have a change of `name` written; `undo` takes it back.

        Raises Reject, with the change taken back, where no thread writes and the disk refuses.
        """
        if self.is_aside:
            if self._next is None:
                self._next = _Group()
            self._next.names.add(name)
            self._next.undo.append(undo)
            if self._writing is None:
                self._writing = asyncio.ensure_future(self._write_all())
            return
        try:
            self.save()
        except OSError as error:
            undo()
            raise not_written(self._what, error) from error

    def save(self) -> None:
        """Write the table here and now, before any thread does; raises OSError."""
        self._write(self._snapshot())

    async def saved(self) -> None:
        """Wait until all changes made so far are on disk; raises Reject when one was refused."""
        group = self._next or self._now
        if group is not None and (error := await asyncio.shield(group.outcome)) is not None:
            raise not_written(self._what, error)

    async def written(self) -> None:
        """Wait until nothing is written any more."""
        while self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write_all(self) -> None:
        try:
            while self._next is not None:
                group, self._now, self._next = self._next, self._next, None
                error: OSError | None = None
                try:
                    await asyncio.to_thread(self._write, self._snapshot())
                except OSError as problem:
                    error = problem
                self._end(group, error)
        finally:
            self._now = self._writing = None

    def _write(self, make: Callable[[], bytes]) -> None:
        self._file.write(make())

    def _end(self, group: _Group, error: OSError | None) -> None:
        self._now = None
        ended = [group]
        if error is not None:
            log.warning("the %s of this broker cannot be written: %s", self._what, error)
            if self._next is not None:  # made on top of what is taken back now
                ended, self._next = [self._next, group], None
            for each in ended:
                for undo in reversed(each.undo):
                    undo()
        for each in ended:
            each.outcome.set_result(error)
        if error is None:
            for tell in self.on_saved:
                tell()


def not_written(what: str, error: OSError) -> Reject:
    """The refusal of a change that the disk does not take."""
    return Reject(
        ResponseCode.SERVICE_NOT_AVAILABLE,
        f"the {what} of this broker cannot be written: {error.strerror or error}",
    )
