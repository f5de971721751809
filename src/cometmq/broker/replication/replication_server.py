"""The master's haListenPort: which slaves are connected, and what wakes them.

Owns the listening socket and the connections. New bytes of the log go out in the iteration of the
loop that wrote them, or, where nobody waits for slaves, `GATHER_S` after the transfer before.
Bounds: `SLAVES_MAX` connections; silent ones are closed.
Java: DefaultHAService, AcceptSocketService.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from cometmq.broker.replication.replica_quorum import SlaveRange
from cometmq.broker.replication.slave_connection import SlaveConnection
from cometmq.broker.replication.slave_feed import FeedLimits, LogRange
from cometmq.errors import SettingsError
from cometmq.model.replication import SlaveStatus
from cometmq.net.iteration_budget import IterationBudget
from cometmq.net.rate_limited_log import RateLimitedLog
from cometmq.net.tls_layer import TlsLayer

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.broker.replication.replica_quorum import ReplicaQuorum
    from cometmq.net.tls_contexts import TlsContexts
    from cometmq.settings.broker import BrokerSettings
    from cometmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

SLAVES_MAX = 16
"""Connections of slaves at a time."""
GATHER_S = 0.01
"""Time between two transfers to a slave that nobody waits for: each costs a system call here, the
slave's report another, and both wake this loop. At 5,000 sends a second they took 14 to 24 % of the
master's CPU with 5 ms, 4 % with 10 (2026-11-23, bench/replication.py)."""
_LOOKS = 5
"""Looks for what is due in the time between two heartbeats."""


class ReplicationServer:
    """Feeds slaves with the log of a store. Belongs to its loop."""

    def __init__(
        self,
        store: MessageStore,
        settings: BrokerSettings,
        quorum: ReplicaQuorum | None,
        tls: TlsContexts | None = None,
    ) -> None:
        """`quorum` hears of what slaves acknowledge; None: nobody waits for them.

        `tls` says whether slaves may, or must, encrypt; None: they do not.
        """
        self._tls = tls if tls is not None and tls.server is not None else None
        self._store = store
        self._quorum = quorum
        self._listener: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.cold_reader = store.cold_reader
        self.warnings = RateLimitedLog(log)
        self.slaves: list[SlaveConnection] = []
        """The connected slaves, the oldest first."""
        self._gap_max = settings.ha_max_gap_not_in_sync_bytes
        heartbeat_s = settings.ha_send_heartbeat_interval_ms / 1000
        self._look_s = heartbeat_s / _LOOKS
        self.limits = FeedLimits(
            heartbeat_s=heartbeat_s,
            silence_max_s=settings.ha_housekeeping_interval_ms / 1000,
            transfer_bytes_max=settings.ha_transfer_batch_bytes,
            bytes_per_second_max=(
                settings.max_ha_transfer_bytes_per_second
                if settings.ha_flow_control_enable
                else None
            ),
            gather_s=0.0 if quorum is not None else GATHER_S,
        )

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, which the system chooses when `port` is 0.

        Raises SettingsError where the address cannot be had.
        """
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(self._protocol_maker(), host, port)
        except OSError as problem:
            raise SettingsError(
                f"the broker cannot listen for slaves at {host}:{port}: {problem}; "
                "set haListenPort to a free port"
            ) from problem
        self._store.on_log_end.append(self._wake)
        self._look()
        return int(self._listener.sockets[0].getsockname()[1])

    def _protocol_maker(self) -> Callable[[], asyncio.Protocol]:
        """What makes the protocol of each slave that connects."""
        if (tls := self._tls) is None:
            return lambda: SlaveConnection(self)
        loop = asyncio.get_running_loop()
        budget = IterationBudget(loop.call_soon, loop.time)
        return lambda: TlsLayer(SlaveConnection(self), tls, budget, self.warnings)

    async def stop(self) -> None:
        """Accept nobody any more and close all connections; what was written still leaves."""
        if self._listener is None:
            return
        self._listener.close()
        self._listener = None
        self._store.on_log_end.remove(self._wake)
        if self._timer is not None:
            self._timer.cancel()
        for slave in self.slaves:
            slave.close()
        await asyncio.sleep(0)

    def log_range(self) -> LogRange:
        """Which bytes of the log can be sent."""
        store = self._store
        return LogRange(store.min_phy_offset, store.readable_phy_offset, store.log_file_bytes)

    def log_end(self) -> int:
        """Where the log ends for its readers."""
        return self._store.readable_phy_offset

    def accept(self, connection: SlaveConnection) -> bool:
        """Count a connection in; False: there are too many."""
        if len(self.slaves) >= SLAVES_MAX:
            return False
        self.slaves.append(connection)
        return True

    def forget(self, connection: SlaveConnection) -> None:
        """A connection has ended."""
        if connection in self.slaves:
            self.slaves.remove(connection)
            if connection.feed.has_begun:
                log.info("the slave at %s has left", connection.address)
            self.acknowledge()

    def acknowledge(self) -> None:
        """A slave has said how far it is."""
        if self._quorum is not None:
            feeds = [slave.feed for slave in self.slaves]
            self._quorum.acknowledged(
                [SlaveRange(feed.first_offset, feed.acknowledged) for feed in feeds]
            )

    def _wake(self) -> None:
        for slave in self.slaves:
            slave.send_more()

    def status(self) -> tuple[SlaveStatus, ...]:
        """What is known of each slave that has asked for bytes."""
        end, now_s = self._store.max_phy_offset, asyncio.get_running_loop().time()
        return tuple(
            SlaveStatus(
                addr=slave.address,
                acknowledged=slave.feed.acknowledged,
                next_offset=slave.feed.next_offset,
                lag_bytes=end - slave.feed.acknowledged,
                lag_ms=int(slave.feed.lag_s(now_s) * 1000),
                bytes_per_second=slave.feed.bytes_per_second,
                is_in_sync=end - slave.feed.acknowledged < self._gap_max,
            )
            for slave in self.slaves
            if slave.feed.has_begun
        )

    def _look(self) -> None:
        end, now_s = self._store.max_phy_offset, asyncio.get_running_loop().time()
        for slave in list(self.slaves):
            slave.feed.note_end(end, now_s)
            slave.look()
        self._timer = asyncio.get_running_loop().call_later(self._look_s, self._look)
