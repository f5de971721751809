"""The slave's way to its master: connect, follow, and again after a pause.

Owns the one connection and the pauses between attempts, which grow up to `PAUSE_MAX_S`; a log whose
history differs asks again only every `DIFFERENT_S`. Each problem is logged once, until another one
or a success comes. Refuses to know how the master's address is found. Java: DefaultHAClient.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from cometmq.broker.replication.log_follower import (
    HistoryDiffers,
    LogFollower,
    compared_from,
)
from cometmq.broker.replication.master_connection import MasterConnection
from cometmq.errors import CometError, StoreError
from cometmq.net.address import split_address
from cometmq.store.put_result import PutStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cometmq.net.tls_contexts import TlsContexts
    from cometmq.settings.broker import BrokerSettings
    from cometmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

PAUSE_S = 0.5
"""Pause before the second attempt to reach a master; it doubles with each further one."""
PAUSE_MAX_S = 5.0
DIFFERENT_S = 30.0
"""Pause of a slave whose history is not its master's: an administrator has to do something."""
CONNECT_S = 5.0
_LOOKS = 5


class ReplicationClient:
    """Follows one master at a time. Belongs to the store's loop."""

    def __init__(
        self, store: MessageStore, settings: BrokerSettings, tls: TlsContexts | None = None
    ) -> None:
        """`tls` says whether the connection to the master is encrypted; None: it is not."""
        self._store = store
        self._tls = tls
        self._heartbeat_s = settings.ha_send_heartbeat_interval_ms / 1000
        self._silence_s = settings.ha_housekeeping_interval_ms / 1000
        self._wake = asyncio.Event()
        self._connection: MasterConnection | None = None
        self._looks = 0
        """How often the master was to be checked anew: what began before that is not followed."""
        self._logged = ""
        self.address = settings.ha_master_address
        """The master's haListenPort, "host:port"; empty: not known yet."""
        self._problem = "the master's address is not known yet"
        self.is_different = False
        """Whether the log holds other bytes than the master's: the slave must be rebuilt."""
        self.check_master: Callable[[], Awaitable[str]] = _no_check
        """Awaited before each connection: the replication address of the master that it checked.

        Empty: `address` holds. A CometError says why the master is not followed.
        """
        self.on_need: Callable[[], None] = _no_need
        """Called where the master cannot be reached: perhaps there is another one by now."""

    @property
    def connection(self) -> MasterConnection | None:
        """The connection to the master, where there is one."""
        return self._connection

    @property
    def is_following(self) -> bool:
        """Whether the master's log is copied now: all that this log has was found equal."""
        if self._connection is None:
            return False
        follower = self._connection.follower
        return follower.master_end >= 0 and not follower.is_comparing

    @property
    def problem(self) -> str:
        """Why nothing is copied now; empty while it is."""
        return "" if self.is_following else self._problem

    def follow(self, address: str) -> None:
        """Follow the master there from now on; the same address changes nothing."""
        if address == self.address:
            return
        log.info("the master's replication address is %s now", address or "not known")
        self.address = address
        self.look_again()

    def look_again(self) -> None:
        """Check and follow the master anew: it may be another one."""
        self._looks += 1
        self._wake.set()
        if self._connection is not None:
            self._connection.close()

    async def run(self) -> None:
        """Follow the master, for ever; ends when it is cancelled."""
        pause_s = PAUSE_S
        while True:
            self._wake.clear()
            problem = await self._follow_once()
            self.is_different = isinstance(problem, HistoryDiffers)
            self._note(problem)
            if self._has_progressed:
                pause_s = PAUSE_S
            self.on_need()
            try:
                async with asyncio.timeout(DIFFERENT_S if self.is_different else pause_s):
                    await self._wake.wait()
            except TimeoutError:
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
            else:
                pause_s = PAUSE_S

    async def _follow_once(self) -> Exception | None:
        """Connect and follow until that ends; returns what ended it."""
        self._has_progressed = False
        looks = self._looks
        if not self.address:
            return StoreError("the master's address is not known yet")
        try:
            self.address = await self.check_master() or self.address
            follower = await self._new_follower()
            host, port = split_address(self.address)
            loop = asyncio.get_running_loop()
            context = self._tls.client if self._tls else None
            async with asyncio.timeout(CONNECT_S):
                _, connection = await loop.create_connection(
                    lambda: self._new_connection(follower, looks), host, port, ssl=context
                )
        except (CometError, OSError, TimeoutError) as problem:
            self._connection = None
            return problem
        try:
            return await self._watch(connection)
        finally:
            self._connection = None
            self._has_progressed = not follower.is_comparing
            connection.close()

    def _new_connection(self, follower: LogFollower, looks: int) -> MasterConnection:
        connection = MasterConnection(self._store, follower)
        self._connection = connection  # from here on `look_again` ends it
        if looks != self._looks:
            connection.close()
        return connection

    async def _new_follower(self) -> LogFollower:
        """A follower that goes on at the end of what is safe of this log."""
        store = self._store
        store.raw_log.forget_partial()
        safe: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()
        store.on_durable(lambda status: None if safe.done() else safe.set_result(status))
        if (status := await safe) is not PutStatus.PUT_OK:
            raise StoreError(f"this broker's disk does not keep up ({status.name})")
        end = store.readable_phy_offset
        start = compared_from(store.min_phy_offset, end, store.log_file_bytes)
        if store.is_log_empty:  # the disk lost its files; it goes on behind them
            start = end
        own_end = await store.cold_reader.run(lambda context: context.read_raw(start, end - start))
        return LogFollower(own_end, end, store.append_raw)

    async def _watch(self, connection: MasterConnection) -> Exception | None:
        ended = connection.ended
        while not ended.done():
            await asyncio.wait([ended], timeout=self._heartbeat_s / _LOOKS)
            if not ended.done():
                connection.look(self._heartbeat_s, self._silence_s)
                self._note_following()
        return ended.result()

    def _note_following(self) -> None:
        if self.is_following and self._logged != "following":
            self._logged = "following"
            self._problem = "the connection has just ended"
            log.info("copying the log of the master at %s", self.address)

    def _note(self, problem: Exception | None) -> None:
        self._problem = str(problem or "the master closed the connection") or repr(problem)
        text = f"{self.address} {self._problem}"
        if text != self._logged and self.address:
            self._logged = text
            if self.is_different:
                text += "; rebuild it with: cometmq store rebuild-slave"
            log.warning("the master is not followed: %s", text)


async def _no_check() -> str:
    """Any master is followed."""
    return ""


def _no_need() -> None:
    """Nobody can find another master."""
