"""Hot. One accepted connection, as handlers see it.

Owns the bytes waiting to be written, the requests not yet answered, and our own requests to the
client (an opaque space apart from the client's, never 0). Refuses to know handlers and codes.
Invariant: after `is_closed` nothing is written and every call of ours has failed.
Java: Channel, NettyRemotingAbstract.invokeSync/invokeOneway on the server's side.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cometmq.errors import RemotingTimeout, SendFailed, TooManyRequests
from cometmq.net.address import peer_address

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator, Sequence

    from cometmq.net.in_flight_limits import InFlightLimits
    from cometmq.net.write_coalescer import WriteCoalescer
    from cometmq.settings.net import NetSettings
    from cometmq.wire.command import Command

log = logging.getLogger(__name__)

_OPAQUE_MASK = 0x7FFFFFFF

ANSWER_BYTES = 1 << 20
"""Answers of one chunk are written out when they exceed this, before more frames are looked at."""

JOINED_BYTES_MAX = 160 * 1024
"""More is not joined: the C library gives so large a block back to the system after each use and
faults it in again. Measured for 256 KiB on 3.11: 290 -> 54 us an answer; with `writelines` 281 on
3.11, which joins, and 45 on 3.12, which does not."""

GATHERED_BYTES_MIN = 1024
"""Pieces that are longer in the mean are handed to uvloop as they are, which writes them by one
system call: 4 us of 31 less for a pull of 32. Not to asyncio: up to Python 3.11 it joins them too,
and 3.12.0 to 3.12.8, 3.13.0 and 3.13.1 then never say that a socket is full (CPython 127655)."""

HeldAnswerer = Callable[["Connection", "Command", Any], None]
"""What sends the answer to a held request."""


def joined(pieces: Sequence[bytes]) -> Iterator[bytes]:
    """The same bytes in few blocks of up to JOINED_BYTES_MAX; a larger piece is one by itself.

    Measured for 64 answers of 4 KiB without uvloop, each: 7 -> 3.2 us; with TLS 18 -> 6.
    """
    block, size = list[bytes](), 0
    for piece in pieces:
        size += len(piece)
        if size > JOINED_BYTES_MAX and block:
            yield b"".join(block)
            block, size = [], len(piece)
        block.append(piece)
    if block:
        yield b"".join(block)


class Connection:
    """One accepted connection. All methods belong to the server's loop."""

    __slots__ = (
        "_calls",
        "_calls_max",
        "_close_callbacks",
        "_coalescer",
        "_gathers_writes",
        "_in_flight",
        "_loop",
        "_opaque",
        "_pending",
        "_transport",
        "_unread",
        "_unsent_max",
        "_waiting_bytes",
        "addr",
        "address",
        "held",
        "host",
        "is_blocked",
        "is_closed",
        "is_ended_by_client",
        "is_flush_scheduled",
        "language",
        "open_requests",
        "unsent_bytes",
        "user",
        "version",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        coalescer: WriteCoalescer,
        in_flight: InFlightLimits,
        settings: NetSettings,
    ) -> None:
        self.addr, self.address, self.host = peer_address(transport.get_extra_info("peername"))
        """Where the client is, "ip:port"; the same without the port; and as records hold it."""
        self.language = 0
        self.version = 0
        self.user = ""
        """Who signed the last request that was admitted and not taken by a fast path; empty: nobody
        had to."""
        self.is_closed = self.is_blocked = self.is_flush_scheduled = False
        self.is_ended_by_client = False
        """Whether the client's side ended it: its process has closed it, or has died."""
        self.open_requests = 0
        self.unsent_bytes = 0
        self._unread = 0
        self._waiting_bytes = 0
        self.held: dict[int, tuple[Command, HeldAnswerer]] = {}
        self.use_transport(transport)
        self._loop = loop
        self._coalescer = coalescer
        self._in_flight = in_flight
        self._pending: list[bytes] = []
        self._unsent_max = settings.unsent_bytes_max
        self._calls_max = settings.calls_max
        self._calls: dict[int, tuple[asyncio.Future[Command], asyncio.TimerHandle]] = {}
        self._opaque = 0
        self._close_callbacks: list[Callable[[Connection], None]] = []

    def send(self, data: bytes) -> None:
        """Write a whole frame, joined with others of this loop iteration; dropped when closed."""
        self._pending.append(data)
        self._count_unsent(len(data))

    def send_parts(self, head: bytes, body: bytes) -> None:
        """Write a whole frame of two parts as `send` does, without joining them here."""
        self._pending += (head, body)
        self._count_unsent(len(head) + len(body))

    def _count_unsent(self, size: int) -> None:
        self.unsent_bytes += size
        if not self.is_flush_scheduled:
            self.is_flush_scheduled = True
            self._coalescer.schedule(self)

    def flush(self) -> None:
        """Write what waits. A connection that stops reading while answers pile up is cut."""
        self.is_flush_scheduled = False
        out = self._pending
        if not out:
            return
        transport = self._transport
        if not transport.is_closing():
            if len(out) == 1:
                transport.write(out[0])
            elif self._gathers_writes and self.unsent_bytes >= GATHERED_BYTES_MIN * len(out):
                transport.writelines(out)
            elif self.unsent_bytes <= JOINED_BYTES_MAX:
                transport.write(b"".join(out))
            else:
                for piece in joined(out):
                    if transport.is_closing():
                        break  # it was lost with the piece before
                    transport.write(piece)
            if self.is_blocked:
                self._count_unread()
        out.clear()
        self.unsent_bytes = 0

    def use_transport(self, transport: asyncio.Transport) -> None:
        """Write to another transport from now on."""
        self._transport = transport
        self._gathers_writes = type(transport).__module__ == "uvloop.loop"

    def block(self) -> None:
        """The connection does not read: what is written for it counts from now on."""
        self.is_blocked = True
        self._count_unread()

    def unblock(self) -> None:
        """The connection reads again."""
        self.is_blocked = False
        self._in_flight.unread -= self._unread
        self._unread = 0

    def _count_unread(self) -> None:
        """Count unread bytes; cut the connection when it, or all together, have too many."""
        size, bounds = self._transport.get_write_buffer_size(), self._in_flight
        bounds.unread += size - self._unread
        self._unread = size
        if size > self._unsent_max or bounds.unread > bounds.unread_max:
            log.warning("cutting %s: it does not read its answers", self.addr)
            self._transport.abort()

    def begin_request(self, count: int = 1) -> None:
        """Count requests that will be answered later."""
        self.open_requests += count
        self._in_flight.total += count

    def end_request(self) -> None:
        """Take back one `begin_request`; nothing after the close, which took back all."""
        if not self.is_closed:
            assert self.open_requests > 0, "a request ends that was never begun"
            self.open_requests -= 1
            self._in_flight.total -= 1

    def end_requests(self, answers: list[bytes]) -> None:
        """Write the answers to so many requests that were begun; nothing when closed."""
        if not self.is_closed:
            count = len(answers)
            assert count <= self.open_requests, "requests end that were never begun"
            self.open_requests -= count
            self._in_flight.total -= count
            self.write(answers)

    def write(self, answers: list[bytes]) -> None:
        """Write answers to requests that nobody counted, at once; nothing when closed."""
        if self._pending or self.is_flush_scheduled or self.is_blocked or self.is_closed:
            if self.is_closed:
                return
            self._pending += answers
            if not self.is_flush_scheduled:  # else whoever scheduled it flushes it soon
                self.flush()
        elif not self._transport.is_closing():
            self._transport.write(answers[0] if len(answers) == 1 else b"".join(answers))

    @property
    def is_full(self) -> bool:
        """Whether a request that may stay open must be refused."""
        bounds = self._in_flight
        return self.open_requests >= bounds.connection_max or bounds.total >= bounds.total_max

    def has_room_for(self, size: int) -> bool:
        """Whether one more request of this size may wait; a connection has a quarter of all."""
        bounds, own = self._in_flight, self._waiting_bytes
        return not size or (
            bounds.waiting_bytes + size <= bounds.bytes_max
            and own + size <= max(bounds.bytes_max // 4, size)
        )

    def keep_waiting(self, size: int) -> None:
        """Count the bytes of a request that waits to be handled; negative: it waits no longer."""
        self._waiting_bytes += size
        self._in_flight.waiting_bytes += size
        assert self._in_flight.waiting_bytes >= 0, "bytes were taken back twice"

    def request(self, command: Command, timeout_s: float) -> asyncio.Future[Command]:
        """Ask the client; its opaque is chosen here.

        The future fails with RemotingTimeout after `timeout_s` seconds, with SendFailed when the
        connection closes, with TooManyRequests when too many of ours are unanswered.
        """
        future: asyncio.Future[Command] = self._loop.create_future()
        if self.is_closed:
            future.set_exception(SendFailed(f"the connection from {self.addr} is closed"))
            return future
        if len(self._calls) >= self._calls_max:
            sentence = f"{len(self._calls)} requests to {self.addr} are unanswered"
            future.set_exception(TooManyRequests(sentence))
            return future
        command.opaque = opaque = self._next_opaque()
        timer = self._loop.call_later(timeout_s, self._expire, opaque, timeout_s)
        self._calls[opaque] = (future, timer)
        self.send(command.encode())
        return future

    def oneway(self, command: Command) -> None:
        """Tell the client; nobody waits for an answer. The caller sets the one-way flag."""
        if not self.is_closed:
            command.opaque = self._next_opaque()
            self.send(command.encode())

    def take_response(self, response: Command) -> None:
        """Hand a response of the client to whoever asked; a late or stray one is dropped."""
        call = self._calls.pop(response.opaque, None)
        if call is None:
            return
        future, timer = call
        timer.cancel()
        if not future.done():
            future.set_result(response)

    def on_close(self, callback: Callable[[Connection], None]) -> None:
        """Have `callback(connection)` called once, soon after the connection is gone."""
        if self.is_closed:
            self._loop.call_soon(callback, self)
        else:
            self._close_callbacks.append(callback)

    def close(self) -> None:
        """Write what waits, then close; frames that came behind this one are not looked at."""
        if not self.is_closed:
            self.flush()
            self._transport.close()
            self.unsent_bytes = ANSWER_BYTES + 1

    def abort(self) -> None:
        """Close at once; what was not yet written is lost."""
        self._transport.abort()

    @property
    def is_closing(self) -> bool:
        """Whether the connection is closed or about to be."""
        return self._transport.is_closing()

    def release(self) -> None:
        """Release all that the connection held; the protocol calls it once, when it is gone."""
        assert 0 <= self.open_requests <= self._in_flight.total, "a request was counted twice"
        self._in_flight.total -= self.open_requests
        self.open_requests = 0
        self.is_closed = True
        self.unblock()
        self._pending.clear()
        self.unsent_bytes = 0
        self.held.clear()
        for future, timer in self._calls.values():
            timer.cancel()
            if not future.done():
                future.set_exception(SendFailed(f"{self.addr} closed the connection"))
        self._calls.clear()
        for callback in self._close_callbacks:
            self._loop.call_soon(callback, self)
        self._close_callbacks.clear()

    def _next_opaque(self) -> int:
        self._opaque = (self._opaque & _OPAQUE_MASK) % _OPAQUE_MASK + 1
        return self._opaque

    def _expire(self, opaque: int, timeout_s: float) -> None:
        future, _ = self._calls.pop(opaque)
        if not future.done():
            sentence = f"{self.addr} did not answer within {timeout_s:g} s"
            future.set_exception(RemotingTimeout(sentence))

    def __repr__(self) -> str:
        """Return one line for logs and failing tests."""
        state = "closed" if self.is_closed else "blocked" if self.is_blocked else "open"
        return f"<connection {self.addr} {state}, {self.open_requests} unanswered>"
