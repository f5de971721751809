"""Hot. The listening socket: chunks in, frames to `answer`, one write of all answers of a chunk.

Owns accepted connections and their bounds: frame size, connections, silence, unread answers.
Refuses to know what a frame means (`net/dispatcher` does). Invariant: whoever does not read its
answers is not read either; a broken frame ends its own connection only.
Java: NettyRemotingServer, NettyConnectManageHandler.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, cast

from cometmq.errors import SettingsError
from cometmq.net.connection import ANSWER_BYTES, Connection
from cometmq.net.in_flight_limits import InFlightLimits
from cometmq.net.iteration_budget import IterationBudget
from cometmq.net.rate_limited_log import RateLimitedLog
from cometmq.net.read_limit import bound_reads
from cometmq.net.tls_layer import TlsLayer
from cometmq.net.unfinished_frames import COUNTED_BYTES, UnfinishedFrames
from cometmq.net.write_coalescer import WriteCoalescer
from cometmq.wire.frame import Frame, FrameDecoder

if TYPE_CHECKING:
    from cometmq.net.tls_contexts import TlsContexts
    from cometmq.settings.net import NetSettings

log = logging.getLogger(__name__)

FrameHandler = Callable[[Frame, Connection], None]

PIECE_BYTES = 32 * 1024
"""How much of a chunk the fast path gets at once: 100 pulls, or some milliseconds at most."""

_SWEEPS = 6
"""How often within the idle time silent connections are looked for."""

_SLOW_SWEEPS = 3
"""How many sweeps a frame may last that gains less than `COUNTED_BYTES` in all of them."""


class FastPath(Protocol):
    """Asked before `answer`, one per connection; what it takes care of, it answers itself."""

    def chunk(self, data: bytes) -> int:
        """Take care of whole frames at the head of a chunk; say how many bytes they were."""
        ...

    def frame(self, frame: Frame) -> bool:
        """Take care of one frame, or say False."""
        ...


class ServerProtocol(asyncio.Protocol):
    """One accepted socket. Made by `RemotingServer` only."""

    def __init__(self, server: RemotingServer) -> None:
        self._server = server
        self._answer = server.answer
        self._budget = server.budget
        self._now = server.budget.now
        self._fast_path: FastPath | None = None
        self._chunk: Callable[[bytes], int] | None = None  # while nothing waits before the chunk
        self._decoder = FrameDecoder(server.settings.frame_bytes_max)
        self._feed = self._decoder.feed
        self._bytes_max = server.settings.frame_bytes_max
        self._piece_bytes = min(PIECE_BYTES, self._bytes_max)  # so no frame in it is too long
        self._backlog: list[Frame] = []
        self._late = b""  # what came behind the backlog and nobody has looked at
        self._is_waiting = False
        self._is_quiet = False
        self._quiet_sweeps = 0
        self._slow_sweeps = 0
        self._swept = (0, 0)  # which frame was unfinished when it last grew enough, and what it had
        self._counted = 0  # bytes of the unfinished frame, as far as the server counts them
        self._transport: asyncio.Transport
        self.connection: Connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Make the connection; close at once when there are too many."""
        self._transport = cast("asyncio.Transport", transport)
        bound_reads(transport)
        self._transport.set_write_buffer_limits(self._server.settings.write_buffer_bytes_max)
        self.connection = self._server.accept(self, self._transport)
        if self._server.fast_path is not None:
            self._fast_path = self._server.fast_path(self.connection)
            self._chunk = self._fast_path.chunk

    def use_transport(self, transport: asyncio.Transport) -> None:
        """Write to another transport from now on: TLS has turned out not to be spoken."""
        self._transport = transport
        self.connection.use_transport(transport)

    def eof_received(self) -> None:
        """Note that the client has ended the connection; the transport closes it."""
        self.connection.is_ended_by_client = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who cares."""
        if isinstance(exc, ConnectionError):  # reset; but no answer any more is a TimeoutError
            self.connection.is_ended_by_client = True
        self._backlog.clear()
        self._late = b""
        if self._counted:
            self._count_unfinished(0)
        self._server.forget(self)
        self.connection.release()

    @property
    def address(self) -> str:
        """The host that the connection comes from, without its port."""
        return self.connection.address

    def drop(self) -> None:
        """Close at once; who asks for it has said why."""
        self._counted = 0
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Answer all frames that this chunk completes, or those for which there is time."""
        self._is_quiet = False
        if self._now() >= self._budget.until and self._budget.is_over():
            is_new = not (self._backlog or self._late)
            self._late += data
            self._wait(is_new=is_new)
            return
        chunk, size = self._chunk, len(data)
        if chunk is not None and size <= self._piece_bytes:
            taken = chunk(data)
            if taken == size:
                return
            self._decode(data[taken:])
        else:
            self._late += data
        if not self._is_waiting and self._handle(self._budget.until):
            self._wait(is_new=False)

    def go_on(self, until: float) -> bool:
        """Handle what waits until then; whether anything is left for later."""
        self._is_waiting = False
        if self.connection.is_blocked or self._transport.is_closing():
            return False  # whoever unblocks it has it wait again
        self._is_waiting = self._handle(until)
        if not (self._is_waiting or self.connection.is_blocked or self._transport.is_closing()):
            self._transport.resume_reading()
        return self._is_waiting

    def _wait(self, *, is_new: bool) -> None:
        """Go on in a later iteration of the loop; until then nothing more is read."""
        self._transport.pause_reading()
        if not self._is_waiting:
            self._is_waiting = True
            self._budget.wait(self, is_new=is_new, brought=len(self._late))

    def _handle(self, until: float) -> bool:
        """Handle what has come, in order, until then; whether there was no time for all of it."""
        is_over = False
        while not is_over and (self._backlog or self._late):
            if not self._backlog:
                self._cut(until)
            if self._backlog:
                self._run(until)
            if self.connection.is_blocked or self._transport.is_closing():
                break  # the backlog is never looked at when the connection is closing
            is_over = self._now() >= until
        self._choose_path()
        if self._decoder.broken and not (self._backlog or self._transport.is_closing()):
            broken = self._decoder.broken
            self._server.warnings.warning("closing %s: %s", self.connection.addr, broken)
            self.connection.close()
        return is_over and bool(self._backlog or self._late)

    def _cut(self, until: float) -> None:
        """Take what came as far as the fast path does, and make frames of the rest."""
        data, self._late, at = self._late, b"", 0
        self._choose_path()
        while self._chunk is not None and at < len(data):
            size = max(self._piece_bytes, 4 + int.from_bytes(data[at : at + 4], "big"))
            if size > self._bytes_max or not (taken := self._chunk(data[at : at + size])):
                break
            at += taken
            if self._now() >= until:
                self._late = data[at:]
                return
        if at < len(data):
            self._decode(data[at:])

    def _decode(self, data: bytes) -> None:
        self._backlog += self._feed(data)
        unfinished = self._decoder.have if self._decoder.wanted else 0
        if self._counted or unfinished > COUNTED_BYTES:
            self._count_unfinished(unfinished if unfinished > COUNTED_BYTES else 0)

    def _count_unfinished(self, size: int) -> None:
        self._counted = size
        self._server.unfinished.note(self, size)

    def _choose_path(self) -> None:
        """Chunks go the fast path only when no frame, or part of one, stands before them."""
        decoder = self._decoder
        is_clear = not (self._backlog or self._late or decoder.wanted or decoder.broken)
        self._chunk = self._fast_path.chunk if self._fast_path is not None and is_clear else None

    def _run(self, until: float) -> None:
        """Answer frames in hand until then, at least one."""
        connection, answer, fast_path = self.connection, self._answer, self._fast_path
        now, frames, done = self._now, self._backlog, 0
        connection.is_flush_scheduled = True  # what is sent waits for the end
        for frame in frames:
            done += 1
            if fast_path is None or not fast_path.frame(frame):
                answer(frame, connection)
            if now() >= until or connection.unsent_bytes > ANSWER_BYTES:
                break
        connection.flush()
        del frames[:done]

    def pause_writing(self) -> None:
        """Stop reading: whoever does not read our answers is not read either."""
        self.connection.block()
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on where `pause_writing` stopped: first with what is in hand, then the socket."""
        self.connection.unblock()
        self._is_quiet = False
        if self._transport.is_closing():
            return
        if self._backlog or self._late:
            self._wait(is_new=False)
        else:
            self._transport.resume_reading()

    def sweep(self, sweeps_max: int) -> None:
        """Close the connection after so many sweeps without traffic."""
        self._quiet_sweeps = self._quiet_sweeps + 1 if self._is_quiet else 0
        self._is_quiet = True
        if self._quiet_sweeps >= sweeps_max:
            log.info("closing %s: silent for too long", self.connection.addr)
            self._transport.abort()
        elif self._is_too_slow():
            self._server.warnings.warning(
                "closing %s: %d of the %d bytes of its frame have come, and hardly more do",
                self.connection.addr,
                self._decoder.have,
                self._decoder.wanted,
            )
            self._transport.abort()

    def _is_too_slow(self) -> bool:
        """Whether one frame has hardly grown over the last sweeps: bytes alone keep nobody."""
        decoder, (frame, had) = self._decoder, self._swept
        has_grown = decoder.begun != frame or decoder.have - had >= COUNTED_BYTES
        is_ours = self.connection.is_blocked or self._is_waiting  # nothing is read now
        is_waiting = bool(decoder.wanted) and not (has_grown or is_ours)
        self._slow_sweeps = self._slow_sweeps + 1 if is_waiting else 0
        if not is_waiting:  # else it has all of the sweeps to grow by so much
            self._swept = (decoder.begun, decoder.have)
        return self._slow_sweeps >= _SLOW_SWEEPS


class RemotingServer:
    """A listening socket and its connections. Belongs to the loop that starts it."""

    def __init__(
        self,
        answer: FrameHandler,
        settings: NetSettings,
        *,
        fast_path: Callable[[Connection], FastPath] | None = None,
        monotonic_s: Callable[[], float] = monotonic,
        tls: TlsContexts | None = None,
    ) -> None:
        """`monotonic_s` is the clock by which connections share the loop's iterations.

        `tls` says whether they may, or must, be encrypted; None: they are not.
        """
        self.answer = answer
        self.settings = settings
        self.fast_path = fast_path
        self.protocols: set[ServerProtocol] = set()
        self.warnings = RateLimitedLog(log)
        self.unfinished = UnfinishedFrames(settings.unfinished_frame_bytes_max, self.warnings)
        self._by_address: Counter[str] = Counter()
        self._in_flight = InFlightLimits(
            settings.in_flight_max,
            settings.in_flight_total_max,
            settings.unsent_total_bytes_max,
            settings.in_flight_bytes_max,
        )
        self._listener: asyncio.Server | None = None
        self._second: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self.budget: IterationBudget
        """What the connections share; there once it has started."""
        self._monotonic_s = monotonic_s
        self._tls = tls if tls is not None and tls.server is not None else None
        self._coalescer: WriteCoalescer
        self._loop: asyncio.AbstractEventLoop

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port, which the system chooses when `port` is 0.

        Raises SettingsError, one sentence, when the address cannot be had.
        """
        self._loop = asyncio.get_running_loop()
        self._coalescer = WriteCoalescer(self._loop)
        self.budget = IterationBudget(self._loop.call_soon, self._monotonic_s)
        self._listener = await _listen(self._protocol, host, port, backlog=self.settings.backlog)
        self._sweep()
        return int(self._listener.sockets[0].getsockname()[1])

    async def start_second(self, host: str, port: int) -> None:
        """Listen at another port too, once started; warns, and does without, where it is taken."""
        try:
            self._second = await _listen(self._protocol, host, port, backlog=self.settings.backlog)
        except SettingsError as error:
            log.warning("clients with a VIP channel are not served: %s", error)

    def _protocol(self) -> asyncio.Protocol:
        """What speaks with the next socket that is accepted."""
        if self._tls is None:
            return ServerProtocol(self)
        return TlsLayer(ServerProtocol(self), self._tls, self.budget, self.warnings)

    async def stop(self, grace_s: float = 1.0) -> None:
        """Stop listening, write what waits, close all connections; cut them after `grace_s`."""
        if self._listener is None:
            return
        await _accepted()
        self._listener.close()
        if self._second is not None:
            self._second.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._coalescer.flush()
        for protocol in list(self.protocols):
            protocol.connection.close()
        deadline = self._loop.time() + grace_s
        while self.protocols and self._loop.time() < deadline:
            await asyncio.sleep(0.005)
        for protocol in list(self.protocols):
            protocol.connection.abort()
        await asyncio.sleep(0)
        self._listener = self._second = None

    def accept(self, protocol: ServerProtocol, transport: asyncio.Transport) -> Connection:
        """Count a connection in; one too many is cut."""
        connection = Connection(
            transport, self._loop, self._coalescer, self._in_flight, self.settings
        )
        count = len(self.protocols)
        address = connection.address
        if count >= self.settings.connections_max:
            self.warnings.warning("refusing %s: %d connections are open", connection.addr, count)
            transport.abort()
        elif self._by_address[address] >= self.settings.connections_per_address_max:
            self.warnings.warning(
                "refusing %s: %d connections of its address are open (connectionsPerAddressMax)",
                connection.addr,
                self._by_address[address],
            )
            transport.abort()
        self.protocols.add(protocol)
        self._by_address[address] += 1
        return connection

    def forget(self, protocol: ServerProtocol) -> None:
        """Count a connection out, once."""
        self.protocols.discard(protocol)
        self._by_address[protocol.address] -= 1
        if not self._by_address[protocol.address]:
            del self._by_address[protocol.address]

    @property
    def in_flight(self) -> int:
        """How many requests of all connections wait for their answer."""
        return self._in_flight.total

    def _sweep(self) -> None:
        for protocol in list(self.protocols):
            protocol.sweep(_SWEEPS)
        self._sweeper = self._loop.call_later(self.settings.idle_s / _SWEEPS, self._sweep)


async def require_free(host: str, port: int) -> None:
    """Raise SettingsError, one sentence, when the address cannot be listened on now.

    For whoever wants to know before it changes anything else.
    """
    listener = await _listen(asyncio.Protocol, host, port, start_serving=False)
    listener.close()


async def _listen(
    protocol: Callable[[], asyncio.Protocol], host: str, port: int, **options: Any
) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    try:
        return await loop.create_server(protocol, host, port, **options)
    except (OSError, OverflowError, ValueError) as error:
        raise _listen_error(host, port, error) from error


async def _accepted() -> None:
    """Wait until all that the loop has accepted are connections; its listener may be closed then.

    asyncio forgets the others without closing them (cpython#109564), and their clients wait.
    """
    while accepting := [
        each
        for each in asyncio.all_tasks()
        if getattr(each.get_coro(), "__name__", "") == "_accept_connection2"
    ]:
        await asyncio.wait(accepting)


def _listen_error(host: str, port: int, error: Exception) -> SettingsError:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return SettingsError(
            f"{host}:{port} is in use: stop the program that listens there or choose another port"
        )
    number: int = getattr(error, "errno", None) or 0
    # a name that is unknown has a number below 0 and a text of its own
    reason = os.strerror(number) if number > 0 else getattr(error, "strerror", None) or error
    return SettingsError(f"cannot listen on {host}:{port}: {reason}")
