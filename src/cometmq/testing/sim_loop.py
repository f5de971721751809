"""An event loop with a clock and a network of its own: no waiting, no sockets, no threads.

An iteration takes ten microseconds of its time, and where nothing can run time jumps to the next
timer: an hour of heartbeats takes milliseconds and every run is the same. `create_server` and
`create_connection` join protocols in memory. What would run in a thread (`asyncio.to_thread`) runs
on the loop, one iteration later.
Invariant: bytes arrive in the order in which they were written, the end of a connection last.
"""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Any, TypeVar, cast

from cometmq.testing.sim_files import SimClock

if TYPE_CHECKING:
    from collections.abc import Callable

ITERATION_S = 0.000_01
"""What an iteration takes, so that whoever waits by `sleep(0)` for a later time sees it come."""
CHUNK_BYTES = 64 * 1024
"""One read brings so much at most."""
SOCKET_BYTES = 256 * 1024
"""What is on its way beyond this counts as unwritten, as behind a full socket buffer."""
_HOST = "127.0.0.1"
_FIRST_PORT = 20_001
_T = TypeVar("_T")


class SimLoop(asyncio.BaseEventLoop):
    """A loop in virtual time. Give it to `asyncio.Runner(loop_factory=SimLoop)`.

    Raises RuntimeError where nothing could ever wake it: the test would hang.
    """

    def __init__(self) -> None:
        super().__init__()
        self.clock = LoopClock()
        """What clients that run here go by."""
        self._now_s = 0.0
        self._selector = _Timers(self)
        self._servers: dict[int, SimServer] = {}
        self._port = _FIRST_PORT

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now_s

    def pass_time(self, wait_s: float | None) -> None:
        """Let time pass: one iteration, or until the next timer instead of waiting for it."""
        if wait_s is None:
            raise RuntimeError("nothing can ever wake this loop: no timer, no bytes on their way")
        self._now_s += wait_s or ITERATION_S

    def run_in_executor(  # type: ignore[override]
        self, _executor: object, func: Callable[..., _T], *args: Any
    ) -> asyncio.Future[_T]:
        """Call `func` on the loop, one iteration later."""

        async def call() -> _T:
            return func(*args)

        return self.create_task(call())

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **_: Any
    ) -> SimServer:
        """Listen in memory; port 0 takes a free one. Raises OSError where it is taken."""
        if port in self._servers:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        port = port or self._free_port()
        self._servers[port] = server = SimServer(protocol_factory, host, port, self._servers)
        return server

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **_: Any
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        """Connect to a listener of this loop. Raises ConnectionRefusedError where none listens."""
        server = self._servers.get(port)
        if server is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        ours = SimTransport(self, protocol_factory(), (host, port))
        theirs = SimTransport(self, server.factory(), (_HOST, self._free_port()))
        ours.other = theirs
        theirs.other = ours
        theirs.protocol.connection_made(theirs)
        ours.protocol.connection_made(ours)
        return ours, ours.protocol

    def _free_port(self) -> int:
        self._port += 1
        return self._port - 1

    def _process_events(self, event_list: list[object]) -> None:
        """There are no sockets whose events could be handled."""

    def _write_to_self(self) -> None:
        """There is no other thread, so the loop never has to be woken."""


class _Timers:
    """What the loop asks for sockets' events; it passes time instead."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def select(self, timeout_s: float | None) -> list[object]:
        self._loop.pass_time(timeout_s)
        return []


class LoopClock(SimClock):
    """A clock that goes with the running SimLoop; `ms` is when that began, `step` sets it."""

    def __init__(self, ms: int = 1_700_000_000_123) -> None:
        super().__init__(ms)

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        return super().now_ms() + int(asyncio.get_running_loop().time() * 1000)

    def monotonic_ms(self) -> int:
        """Milliseconds of the loop's own time."""
        return int(asyncio.get_running_loop().time() * 1000)


class SimServer:
    """A listener in memory."""

    def __init__(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        servers: dict[int, SimServer],
    ) -> None:
        self.factory = factory
        self._address = (host, port)
        self._servers = servers

    @property
    def sockets(self) -> list[SimServer]:
        """One that knows its name, as a socket does."""
        return [self]

    def getsockname(self) -> tuple[str, int]:
        """Host and port."""
        return self._address

    def close(self) -> None:
        """Accept nobody any more; connections stay."""
        self._servers.pop(self._address[1], None)

    async def wait_closed(self) -> None:
        """Return at once."""


class SimTransport(asyncio.Transport):
    """One end of a connection in memory."""

    def __init__(
        self, loop: SimLoop, protocol: asyncio.BaseProtocol, peername: tuple[str, int]
    ) -> None:
        super().__init__({"peername": peername})
        self.protocol = protocol
        self.other: SimTransport
        self._loop = loop
        self._inbox = bytearray()
        """What the other end wrote and this one's protocol has not been given."""
        self._high = 64 * 1024
        self._low = 16 * 1024
        self._is_reading = True
        self._is_closing = self._is_lost = self._is_pumping = self._is_writing_paused = False

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Give bytes to the other end, which reads them in a later iteration."""
        if self._is_closing or not data:
            return
        self.other.arrive(data)
        if self.get_write_buffer_size() > self._high and not self._is_writing_paused:
            self._is_writing_paused = True
            cast("asyncio.Protocol", self.protocol).pause_writing()

    def get_write_buffer_size(self) -> int:
        """How many bytes a full socket buffer would hold back."""
        return max(0, self.other.unread_bytes - SOCKET_BYTES)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Say when to pause the writer and when to let it go on."""
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low

    @property
    def unread_bytes(self) -> int:
        """What arrived and was not read."""
        return len(self._inbox)

    def pause_reading(self) -> None:
        """Leave what arrives where it is."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Read on."""
        self._is_reading = True
        self._pump_soon()

    def is_reading(self) -> bool:
        """Whether it reads."""
        return self._is_reading and not self._is_closing

    def is_closing(self) -> bool:
        """Whether it is closed or about to be."""
        return self._is_closing

    def close(self) -> None:
        """End the connection; what was written arrives first."""
        if not self._is_closing:
            self._is_closing = True
            self.other.arrive(b"")
            self.see_what_left()

    def abort(self) -> None:
        """End the connection at once; what a full socket buffer held back is lost."""
        held_back = self.get_write_buffer_size()
        if held_back:
            self.other.lose(held_back)
        self.close()
        self.see_what_left()

    def arrive(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Take bytes from the other end."""
        if not self._is_closing:
            self._inbox += data
        self._pump_soon()

    def lose(self, count: int) -> None:
        """Forget the last bytes that are on their way here."""
        del self._inbox[-count:]

    def see_what_left(self) -> None:
        """Let the writer go on, or end, once the other end has read enough."""
        size = self.get_write_buffer_size()
        if self._is_closing:
            if not size and not self._is_lost:
                self._is_lost = True
                self._loop.call_soon(self.protocol.connection_lost, None)
                self._inbox.clear()
        elif self._is_writing_paused and size <= self._low:
            self._is_writing_paused = False
            cast("asyncio.Protocol", self.protocol).resume_writing()

    def _pump_soon(self) -> None:
        if not self._is_pumping:
            self._is_pumping = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Read one chunk, or see that the other end has closed."""
        self._is_pumping = False
        if self._is_closing or not self._is_reading:
            return
        if self._inbox:
            chunk = bytes(self._inbox[:CHUNK_BYTES])
            del self._inbox[: len(chunk)]
            self._read(chunk)
            self.other.see_what_left()
            if self._inbox or self.other.is_closing():
                self._pump_soon()
        elif self.other.is_closing():
            cast("asyncio.Protocol", self.protocol).eof_received()
            self.close()

    def _read(self, chunk: bytes) -> None:
        protocol = self.protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            view = memoryview(chunk)
            while view and not self._is_closing:
                room = memoryview(protocol.get_buffer(len(view)))
                count = min(len(room), len(view))
                room[:count] = view[:count]
                protocol.buffer_updated(count)
                view = view[count:]
        else:
            cast("asyncio.Protocol", protocol).data_received(chunk)
