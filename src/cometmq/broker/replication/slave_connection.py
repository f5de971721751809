"""The master's socket to one slave: reports in, transfers out, no faster than both can bear.

Does what `SlaveFeed` decides. Bounds: what the slave does not read stays in the log, not in memory;
one turn of the loop sends `TURN_BYTES`, so sends and pulls come in between; bytes that are no
longer in memory are read by a thread. Anything that cannot be true ends the connection, with one
line in the log. Java: DefaultHAConnection.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, cast

from cometmq.broker.replication.slave_feed import SlaveFeed
from cometmq.errors import CometError
from cometmq.net.address import join_address
from cometmq.store.log.mapped_file_queue import NotInMemory
from cometmq.wire.replication import ReportDecoder, encode_transfer_head

if TYPE_CHECKING:
    from cometmq.broker.replication.slave_feed import FeedLimits, LogRange
    from cometmq.net.rate_limited_log import RateLimitedLog
    from cometmq.store.cold_reads import ColdReader

TURN_BYTES = 128 * 1024
"""Bytes that one slave gets in one iteration of the loop, so that clients are served meanwhile."""
UNREAD_BYTES_MAX = 512 * 1024
"""Bytes written to the socket that the slave has not taken, above which it gets no more."""


class SlaveOwner(Protocol):
    """Who accepts slaves: `ReplicationServer`."""

    limits: FeedLimits
    warnings: RateLimitedLog
    cold_reader: ColdReader

    def log_range(self) -> LogRange:
        """Which bytes of the log can be sent."""
        ...

    def log_end(self) -> int:
        """Where the log ends for its readers."""
        ...

    def accept(self, connection: SlaveConnection) -> bool:
        """Count a connection in; False: there are too many."""
        ...

    def forget(self, connection: SlaveConnection) -> None:
        """A connection has ended."""
        ...

    def acknowledge(self) -> None:
        """A slave has said how far it is."""
        ...


class SlaveConnection(asyncio.Protocol):
    """One accepted slave. Belongs to the store's loop."""

    def __init__(self, owner: SlaveOwner) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._reports = ReportDecoder()
        self._is_paused = self._is_scheduled = self._is_leaving = False
        self._reading: asyncio.Future[None] | None = None
        self._later: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport
        self.feed = SlaveFeed(owner.limits, self._loop.time())
        """What is decided about this slave."""
        self.address = ""
        """Where it connects from, "host:port"."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the slave's first report."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(UNREAD_BYTES_MAX)
        host, port = transport.get_extra_info("peername")[:2]
        self.address = join_address(host, port)
        if not self._owner.accept(self):
            self.end("this master has as many slaves as it takes")

    def use_transport(self, transport: asyncio.Transport) -> None:
        """Write to another transport from now on: the slave does not speak TLS."""
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Feed it no more."""
        del exc
        if self._later is not None:
            self._later.cancel()
        self._owner.forget(self)

    def data_received(self, data: bytes) -> None:
        """Take the slave's reports."""
        try:
            reports = self._reports.feed(data)
            if reports is None:
                return
            first, last = reports
            if not self.feed.has_begun:
                self.feed.begin(first, self._owner.log_range())
            self.feed.reported(last, self._loop.time())
        except CometError as problem:
            self.end(str(problem))
            return
        self._owner.acknowledge()
        self.send_more()

    def pause_writing(self) -> None:
        """The slave does not keep up: what it lacks stays in the log."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Go on."""
        self._is_paused = False
        self.send_more()

    def end(self, why: str) -> None:
        """Close the connection, with a line in the log."""
        if not self._transport.is_closing():
            self._owner.warnings.warning("closing the slave at %s: %s", self.address, why)
            self._transport.abort()

    def close(self) -> None:
        """Close the connection: this broker stops. What was gathered still leaves."""
        self._is_leaving = True
        if self._later is not None:
            self._later.cancel()
            self._later = None
        self.send_more()
        self._transport.close()

    def look(self) -> None:
        """Do what is due at this time: a heartbeat, or the end of a silent slave."""
        now_s = self._loop.time()
        if self.feed.is_silent(now_s):
            self.end("it has reported nothing for too long")
        elif self.feed.is_heartbeat_due(now_s) and not self._is_paused and not self._reading:
            self._transport.write(encode_transfer_head(self.feed.next_offset, 0))
            self.feed.sent(0, now_s)

    def send_more(self) -> None:
        """Send what the slave lacks, one turn of it."""
        if not self._is_scheduled and self._later is None:
            self._send_turn()

    def _send_turn(self) -> None:
        self._is_scheduled = False
        feed, log_end, left = self.feed, self._owner.log_end(), TURN_BYTES
        while feed.next_offset < log_end:
            if self._is_paused or self._reading or self._later or self._transport.is_closing():
                return
            if left <= 0:
                self._is_scheduled = True
                self._loop.call_soon(self._send_turn)
                return
            sent = self._send_one(log_end, left)
            if not sent:
                return
            left -= sent

    def _send_one(self, log_end: int, bytes_max: int) -> int:
        """Send one transfer; returns its bytes, 0 when nothing may be sent now."""
        feed, now_s = self.feed, self._loop.time()
        length = min(feed.length(log_end, now_s), bytes_max)
        if not length:
            if feed.has_begun:
                self._later = self._loop.call_later(feed.pause_s(now_s), self._go_on)
            return 0
        hold_s = feed.hold_s(log_end, now_s)
        if hold_s and not self._is_leaving:
            self._later = self._loop.call_later(hold_s, self._go_on)
            return 0
        try:
            data = self._owner.cold_reader.cached.read_raw(feed.next_offset, length)
        except NotInMemory as missing:
            self._reading = asyncio.ensure_future(self._read_ahead(missing))
            return 0
        except (CometError, OSError) as problem:
            self.end(f"the log cannot be read for it: {problem}")
            return 0
        assert data, "nothing was read where the log goes on"
        self._transport.write(encode_transfer_head(feed.next_offset, len(data)) + data)
        feed.sent(len(data), now_s)
        return len(data)

    def _go_on(self) -> None:
        self._later = None
        self.send_more()

    async def _read_ahead(self, missing: NotInMemory) -> None:
        """Have a thread bring bytes of the log into memory, then go on."""
        try:
            await self._owner.cold_reader.fetch(missing)
        except OSError as problem:
            self.end(f"the log cannot be read for it: {problem}")
        finally:
            self._reading = None
        self.send_more()
