"""The slave's socket to its master: transfers in, reports out.

Does what `LogFollower` decides. A report says how far the log is as safe as this broker's
flushDiskType promises, so a master that waits for it can rely on that. Anything that cannot be true
ends the connection; `ended` then says why. Java: DefaultHAClient.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from cometmq.errors import CometError, ConnectFailed, StoreError
from cometmq.store.put_result import PutStatus
from cometmq.wire.replication import TransferDecoder, encode_report

if TYPE_CHECKING:
    from cometmq.broker.replication.log_follower import LogFollower
    from cometmq.store.message_store import MessageStore


class MasterConnection(asyncio.Protocol):
    """One connection to a master. Belongs to the store's loop."""

    def __init__(self, store: MessageStore, follower: LogFollower) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._decoder = TransferDecoder()
        self._reported = -1
        self._reported_s = self._heard_s = self._loop.time()
        self._is_asked = False
        self._problem: Exception | None = None
        self._transport: asyncio.Transport
        self._is_made = self._is_closed = False
        self.follower = follower
        """What is decided about what the master sends."""
        self.ended: asyncio.Future[Exception | None] = self._loop.create_future()
        """Why the connection ended; None: one of both closed it."""

    @property
    def heard_s(self) -> float:
        """When the master sent something last, loop time in seconds."""
        return self._heard_s

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for bytes: Apache's master sends nothing before."""
        self._transport = cast("asyncio.Transport", transport)
        self._is_made = True
        if self._is_closed:
            self._transport.abort()
        else:
            self._report(self.follower.next_offset)

    def connection_lost(self, exc: Exception | None) -> None:
        """Say why it ended."""
        if not self.ended.done():
            self.ended.set_result(self._problem or exc)

    def data_received(self, data: bytes) -> None:
        """Compare or append what came; report it once it is safe."""
        if self._is_closed:
            return
        self._heard_s = self._loop.time()
        try:
            self.follower.take(self._decoder.feed(data))
        except (CometError, OSError) as problem:
            self._end(problem)
            return
        if not self.follower.is_comparing:
            self._report_when_safe()

    def look(self, heartbeat_s: float, silence_max_s: float) -> None:
        """Do what is due at this time: a report, or the end of a silent connection."""
        now_s = self._loop.time()
        if now_s - self._heard_s > silence_max_s:
            self._end(ConnectFailed(f"the master has sent nothing for {silence_max_s:g} s"))
        elif now_s - self._reported_s >= heartbeat_s:
            self._report(self._reported)

    def close(self) -> None:
        """Take and report nothing more: this broker stops, or follows another master."""
        self._is_closed = True
        if self._is_made:
            self._transport.close()

    def _end(self, problem: Exception) -> None:
        self._problem = self._problem or problem
        self._transport.abort()

    def _report(self, log_end: int) -> None:
        self._transport.write(encode_report(log_end))
        self._reported = log_end
        self._reported_s = self._loop.time()

    def _report_when_safe(self) -> None:
        if not self._is_asked and self._reported < self._store.max_phy_offset:
            self._is_asked = True
            self._store.on_durable(self._is_safe)

    def _is_safe(self, status: PutStatus) -> None:
        self._is_asked = False
        if self._is_closed or self._transport.is_closing():
            return
        if status is PutStatus.SERVICE_NOT_AVAILABLE:
            self._end(StoreError("this broker's disk does not take what its master sends"))
            return
        safe = self._store.readable_phy_offset
        if safe > self._reported:
            self._report(safe)
        self._report_when_safe()  # for what came meanwhile, or where the disk was too slow
