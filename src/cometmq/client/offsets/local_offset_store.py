"""Offsets of one member of a group that is broadcast to: kept in a file of its own.

Owns the file `<folder>/<clientId>/<group>/offsets.json` with its `.bak`, in RocketMQ's format;
knows nothing of windows. Invariants: one write at a time, and at every instant a reader finds the
file or its `.bak` whole; a queue once in the file stays in it.
Java: LocalFileOffsetStore
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from cometmq.client.offsets.offset_store import OffsetStore
from cometmq.errors import ClientError, ProtocolError
from cometmq.wire.bodies.offset import decode_reset_offset, encode_reset_offset

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from cometmq.client.consumer.consumer_options import ConsumerOptions
    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.queue import MessageQueue
    from cometmq.runtime.clock_and_file_protocols import Files

log = logging.getLogger(__name__)


class LocalOffsetStore(OffsetStore):
    """Offsets of one member that gets every message. One loop owns it."""

    def __init__(
        self, session: ClientSession, options: ConsumerOptions, folder: Path, files: Files
    ) -> None:
        super().__init__(session, options.group, options.consume_from, options.consume_timestamp_ms)
        self._path = folder / session.client_id / options.group / "offsets.json"
        self._backup = self._path.with_name("offsets.json.bak")
        self._files = files
        self._kept = self._load()
        self._saved: dict[MessageQueue, int] = dict(self._kept)
        self._saving = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def committed(self, queue: MessageQueue) -> int | None:
        """The offset in the file, or None."""
        return self._kept.get(queue)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Write an offset to the file and wait until it is there. Raises ClientError."""
        self._kept[queue] = offset
        await self._save()

    def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Begin to write the noted offsets of these queues, if any has changed."""
        self._kept |= {queue: self._memory[queue] for queue in queues if queue in self._memory}
        if self._kept != self._saved and not self._tasks:
            task = asyncio.get_running_loop().create_task(self._save(), name="local offsets")
            self._tasks.add(task)
            task.add_done_callback(self._written)

    def _written(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.warning("%s", error)

    async def _save(self) -> None:
        async with self._saving:
            if self._kept == self._saved:
                return  # another write included it
            table = dict(self._kept)
            try:
                await asyncio.to_thread(self._write, encode_reset_offset(table))
            except OSError as error:
                raise ClientError(f"the offsets cannot be kept in {self._path}: {error}") from error
            self._saved = table

    def _write(self, data: bytes) -> None:
        fresh = self._path.with_name("offsets.json.tmp")
        self._files.make_dir(self._path.parent)
        self._files.write(fresh, data)
        if self._files.stat(self._path) is not None:
            self._files.rename(self._path, self._backup)
        self._files.rename(fresh, self._path)
        self._files.sync_dir(self._path.parent)

    def _load(self) -> dict[MessageQueue, int]:
        broken: Exception | None = None
        for path in (self._path, self._backup):
            try:
                raw = self._files.read(path)
                found = decode_reset_offset(raw) if raw and raw.strip() else None
            except (OSError, ProtocolError) as error:
                broken = error
                continue
            if found is not None:
                if path is self._backup:
                    log.warning(
                        "%s %s: the older offsets in %s are used, and messages may come again",
                        self._path,
                        "is missing or empty" if broken is None else f"cannot be read ({broken})",
                        path,
                    )
                return found
        if broken is not None:
            raise ClientError(f"{self._path} and its .bak cannot be read: {broken}")
        return {}
