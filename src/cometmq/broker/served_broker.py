"""A broker whose role may change while its process goes on: it is stopped and opened anew.

A promotion makes a slave the master; a newer master makes an old one a slave, whose log is cut
where the histories part. So each role is composed once, from what is on disk, as at any start.
Invariants: an epoch is on disk before its master serves; what is cut was copied before; a change
that fails is tried again, and nothing is served meanwhile.
Java: ReplicasManager.changeBrokerRole, which changes the running parts.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cometmq.broker.app import Broker
from cometmq.broker.replication.epoch_keeper import NewerMaster, RoleChange, role_after
from cometmq.broker.replication.role_file import RoleFile
from cometmq.errors import CometError
from cometmq.runtime.system_clock_and_files import SystemClock, SystemFiles, expand_user_path
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.store import StoreSettings
from cometmq.store.recovery.store_directory import StoreDirectory
from cometmq.store.recovery.unreplicated import cut_log

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files

log = logging.getLogger(__name__)

PAUSE_S, PAUSE_MAX_S = 1.0, 30.0
"""Pauses before a change that failed is tried again."""


class ServedBroker:
    """One broker after another on one store. Belongs to the loop that starts it."""

    def __init__(
        self, settings: BrokerSettings, store: StoreSettings, more: dict[str, Any]
    ) -> None:
        """For `open`, which is the way to a broker."""
        self._settings = settings
        self._store_settings = store
        self._more = more
        self._changing: asyncio.Task[None] | None = None
        self._is_stopping = asyncio.Event()
        self.broker = self._open()
        """The broker in its present role; another object after a change."""

    @classmethod
    def open(
        cls,
        settings: BrokerSettings | None = None,
        store: StoreSettings | None = None,
        **more: Any,
    ) -> ServedBroker:
        """Make a broker that does not listen yet; takes and raises what `Broker.open` does."""
        return cls(settings or BrokerSettings(), store or StoreSettings(), more)

    @property
    def address(self) -> str:
        """Where clients reach the broker, "host:port"; the same in each role."""
        return self.broker.address

    def _open(self) -> Broker:
        broker = Broker.open(self._settings, self._store_settings, **self._more)
        broker.epochs.on_change = self._change_soon
        return broker

    async def start(self) -> None:
        """Start the broker: as a slave where another one was promoted to master meanwhile.

        Raises what `Broker.start` does.
        """
        try:
            await self.broker.start()
        except NewerMaster as found:
            log.warning("%s", found)
            self._apply(found.change, self.broker.settings.broker_id, self._log_end())
            self.broker = self._open()
            await self.broker.start()
        self._settings = replace(self._settings, listen_port=self.broker.port)

    async def stop(self) -> None:
        """Stop the broker, after a change that has begun. A second call does nothing."""
        self._is_stopping.set()
        if self._changing is not None:
            await asyncio.wait((self._changing,))
        await self.broker.stop()

    def _change_soon(self, change: RoleChange) -> None:
        self._changing = asyncio.ensure_future(self._change(change))

    async def _change(self, change: RoleChange) -> None:
        """Stop the broker and start it in its new role, however often that takes."""
        broker_id = self.broker.settings.broker_id
        try:
            await self.broker.stop()
        except Exception:  # its parts have stopped; nobody else would go on from here
            log.exception("the broker did not stop in order")
        log_end, pause_s = self._log_end(), PAUSE_S
        while not self._is_stopping.is_set():
            try:
                self._apply(change, broker_id, log_end)
                self.broker = self._open()
                await self.start()
            except Exception as problem:  # nobody else would start it
                is_known = isinstance(problem, (CometError, OSError))
                log.error(
                    "the broker cannot be started in its new role: %s",
                    problem,
                    exc_info=None if is_known else problem,
                )
                await self._pause(pause_s)
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
            else:
                return

    async def _pause(self, pause_s: float) -> None:
        try:
            async with asyncio.timeout(pause_s):
                await self._is_stopping.wait()
        except TimeoutError:
            pass

    def _log_end(self) -> int:
        return self.broker.store.max_phy_offset

    def _apply(self, change: RoleChange, broker_id: int, log_end: int) -> None:
        settings, root = self._store_settings, self._root()
        given = settings.store_path_commit_log
        commit_log = expand_user_path("storePathCommitLog", given).absolute() if given else None
        files = self._more.get("files") or SystemFiles()
        apply_change(
            files,
            StoreDirectory(files, root, commit_log),
            settings.commit_log_file_bytes,
            change,
            broker_id,
            log_end,
            (self._more.get("clock") or SystemClock()).local_stamp(),
        )

    def _root(self) -> Path:
        return expand_user_path("storePathRootDir", self._settings.store_path_root_dir)


def apply_change(
    files: Files,
    directory: StoreDirectory,
    log_file_bytes: int,
    change: RoleChange,
    broker_id: int,
    log_end: int,
    stamp: str,
) -> None:
    """Bring the store of a stopped broker into its new role; a second time changes nothing.

    `broker_id` and `log_end` are those of the broker before the change. OSError: do it again.
    """
    if 0 <= change.cut_at < log_end:
        path = cut_log(files, directory, log_file_bytes, change.cut_at, stamp)
        log.warning("what only this broker had is in %s", path)
    role = RoleFile(directory.root, files)
    if not change.new_epoch or role.kept.epochs[-1].number < change.new_epoch:
        role.keep(role_after(role.kept, change, broker_id, log_end, secrets.token_hex(8)))
