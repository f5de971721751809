"""Hot. One connection to a peer, seen from the caller: requests go out, answers find their caller.

Owns the matching by `opaque`, the deadline of every call and the joining of one tick's frames into
few writes; refuses to know codes, routes and retries. Sends come as whole frames (`post`): their
answers are recognised by `wire/send_answer`, and one timer sweeps their deadlines. What is read
lies in one buffer; who wants a large body reads it there (`fetch`). Invariant: every call ends
exactly once: with its answer, at its deadline (a sweep is at most 20 ms late), or with `SendFailed`
when the connection breaks. One loop owns it.
Java: NettyRemotingClient (one channel of it), ResponseFuture
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar, cast

from cometmq.errors import (
    ConnectFailed,
    ProtocolError,
    RemotingTimeout,
    SendFailed,
    TooManyRequests,
)
from cometmq.wire.codes import ResponseCode
from cometmq.wire.command import Command, response
from cometmq.wire.frame import JSON, Frame
from cometmq.wire.frame_buffer import FrameBuffer
from cometmq.wire.send_answer import SendAnswers

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sized

    from cometmq.wire.frame_buffer import FrameView
    from cometmq.wire.send_answer import SendAnswer

    Read = Callable[[Command, memoryview], object]

T = TypeVar("T")
PENDING_MAX = 65_535
"""Calls without answer that one connection may have."""
UNSENT_BYTES_MAX = 64 * 1024 * 1024
"""Bytes that may wait for a peer that does not read."""
EARLY_PIECES = 96
"""So many pieces of frames, those of 32 sends, are written before the tick is over: the peer works
on them while more are made. Measured: 64 tasks sent 150 k/s to a broker where it had been 75 k/s.
"""
SWEEP_GAP_S = 0.02
"""Least time between two looks for posted frames whose time is over."""


class Channel(asyncio.BufferedProtocol):
    """A connection. Made by `connect`; dead for good once closed."""

    def __init__(
        self,
        addr: str,
        on_request: Callable[[Command, Channel], None],
        prepare: Callable[[Command], None] | None = None,
    ) -> None:
        self.addr = addr
        self._prepare = prepare
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done as soon as the connection is of no more use, from either side."""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when its socket is closed as well: what was written has left, or never will."""
        self.is_dead = False
        """The same as a flag: what is asked before each send."""
        self._loop = asyncio.get_running_loop()
        self._new_future = self._loop.create_future
        self._on_request = on_request
        self._inlet = FrameBuffer()
        self._waiting: dict[int, asyncio.Future[Command]] = {}
        self._readers: dict[int, tuple[asyncio.Future[Any], Read]] = {}
        self._posted: dict[int, tuple[asyncio.Future[SendAnswer | Command], float]] = {}
        self._answers = SendAnswers()
        self._sweep_at = inf
        self._sweeper: asyncio.TimerHandle | None = None
        self._outgoing: list[bytes] = []
        self.is_quiet = True
        """Whether nothing waits to be written at the end of this tick."""
        self.opaque = 0
        """The number of the last request; whoever posts a frame takes the next one."""
        self._transport: asyncio.Transport

    @property
    def is_open(self) -> bool:
        """Whether calls may still be made."""
        return not self.is_dead

    async def call(self, command: Command, timeout_s: float) -> Command:
        """Send a request and wait for its answer, whatever its code.

        Raises RemotingTimeout after `timeout_s` seconds, SendFailed when the connection breaks
        first, TooManyRequests when 65,535 calls are open. The command gets its `opaque` here.
        """
        answer = self.call_nowait(command)
        timer = self._loop.call_later(timeout_s, self._expire, command.opaque, timeout_s)
        try:
            return await answer
        finally:
            timer.cancel()
            self._waiting.pop(command.opaque, None)

    async def fetch(
        self, command: Command, timeout_s: float, read: Callable[[Command, memoryview], T]
    ) -> T:
        """Send a request and return what `read` makes of its answer.

        `read` is called as soon as the answer has come, with a command that has no body and with
        the body, which is gone afterwards. What it raises is raised here; otherwise like `call`.
        """
        self._may_ask(self._readers)
        answer: asyncio.Future[T] = self._loop.create_future()
        opaque = self._ask(command)
        self._readers[opaque] = (answer, read)
        timer = self._loop.call_later(timeout_s, self._expire, opaque, timeout_s)
        try:
            return await answer
        finally:
            timer.cancel()
            self._readers.pop(opaque, None)

    def call_nowait(self, command: Command) -> asyncio.Future[Command]:
        """Send a request and return the future of its answer; it has no deadline of its own."""
        self._may_ask(self._waiting)
        answer = self._loop.create_future()
        self._waiting[self._ask(command)] = answer
        return answer

    def post(
        self, opaque: int, frame: tuple[bytes, ...], deadline: float
    ) -> asyncio.Future[SendAnswer | Command]:
        """Write the frame of a send, given in pieces, and return the future of its answer.

        `deadline` is the loop's time. Fails like `call`.
        """
        posted = self._posted
        if self.is_dead or len(posted) >= PENDING_MAX:
            self._may_ask(posted)
        if self.is_quiet:
            self._begin()
        outgoing = self._outgoing
        outgoing += frame
        if len(outgoing) >= EARLY_PIECES:
            self._write_out()
        answer: asyncio.Future[SendAnswer | Command] = self._new_future()
        posted[opaque] = (answer, deadline)
        if deadline < self._sweep_at:
            self._sweep_when(deadline)
        return answer

    def oneway(self, command: Command) -> None:
        """Send a command that nobody answers. Raises SendFailed when the connection is gone."""
        if self.is_dead:
            raise SendFailed(f"the connection to {self.addr} is closed")
        self._ask(command)

    def answer(self, command: Command) -> None:
        """Send the answer to a request of the peer; dropped when the connection is gone."""
        if self.is_open:
            self._write(command.encode())

    def refuse(self, command: Command) -> None:
        """Answer that this request's code is not known here, unless nobody waits for it."""
        if not command.is_oneway:
            code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            remark = f"request code {command.code} is not supported by this client"
            self.answer(response(command.opaque, code, remark=remark))

    def close(self) -> None:
        """Close the connection after what was written; open calls fail with SendFailed."""
        self._flush()
        self._transport.close()
        self._fail(SendFailed(f"the connection to {self.addr} was closed here"))

    def abort(self) -> None:
        """Close at once after `close`; what was not yet written is lost."""
        self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the connection is gone."""
        await asyncio.shield(self.closed)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport (called by the loop)."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=0)  # else uvloop holds what is written early

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes belong (called by the loop)."""
        del sizehint
        return self._inlet.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Give each answer to its caller and each request to the listener (called by the loop)."""
        inlet = self._inlet
        inlet.came(nbytes)
        if self._posted:
            inlet.skip(self._answers.tell(inlet.chunk(), self._posted))
        try:
            while (frame := inlet.next()) is not None:
                self._receive(frame)
        except ProtocolError as error:
            inlet.broken = inlet.broken or error
        if inlet.broken:
            self._transport.abort()
            self._fail(SendFailed(f"{self.addr} broke the protocol: {inlet.broken}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what is open (called by the loop)."""
        cause = f": {exc}" if exc else ""
        self._fail(SendFailed(f"the connection to {self.addr} broke{cause}"))
        if not self.ended.done():
            self.ended.set_result(None)

    def _receive(self, frame: FrameView) -> None:
        kind, header, body = frame
        if self._readers:
            command = Command.decode(Frame(kind, header, b""))
            reader = self._readers.pop(command.opaque, None) if command.is_response else None
            if reader is not None:
                _read(reader, command, body)
                return
            command.body = bytes(body)
        else:
            command = Command.decode(Frame(kind, header, bytes(body)))
        if not command.is_response:
            self._on_request(command, self)
            return
        waiter = self._waiting.pop(command.opaque, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(command)
        posted = self._posted.pop(command.opaque, None)
        if posted is not None:
            if kind == JSON:
                self._answers.learn(header, command)
            if not posted[0].done():
                posted[0].set_result(command)

    def _may_ask(self, waiting: Sized) -> None:
        if self.is_dead:
            raise SendFailed(f"the connection to {self.addr} is closed")
        if len(waiting) >= PENDING_MAX:
            raise TooManyRequests(f"{PENDING_MAX} requests to {self.addr} wait for their answers")

    def _ask(self, command: Command) -> int:
        """Write a request under the next number, which is returned."""
        self.opaque = command.opaque = (self.opaque + 1) & 0x7FFFFFFF
        if self._prepare is not None:
            self._prepare(command)
        self._write(command.encode())
        return self.opaque

    def _write(self, data: bytes) -> None:
        if self.is_quiet:
            self._begin()
        self._outgoing.append(data)

    def _begin(self) -> None:
        """See to it that what is written from now on leaves at the end of this tick at the latest.

        Raises TooManyRequests when the peer does not read.
        """
        if self._transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            raise TooManyRequests(f"{self.addr} does not read what is sent to it")
        self._loop.call_soon(self._flush)
        self.is_quiet = False

    def _flush(self) -> None:
        self.is_quiet = True
        self._write_out()

    def _write_out(self) -> None:
        if self._outgoing and self.is_open:
            parts, self._outgoing = self._outgoing, []
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def _expire(self, opaque: int, timeout_s: float) -> None:
        reader = self._readers.pop(opaque, None)
        waiter: asyncio.Future[Any] | None = self._waiting.pop(opaque, None)
        waiter = reader[0] if reader else waiter
        if waiter is not None and not waiter.done():
            waiter.set_exception(
                RemotingTimeout(f"no answer from {self.addr} within {timeout_s:.3g} s")
            )

    def _sweep_when(self, deadline: float) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._sweep_at = deadline
        self._sweeper = self._loop.call_at(deadline, self._sweep)

    def _sweep(self) -> None:
        """Fail the posted frames whose time is over, and come back for the next of them."""
        now = self._loop.time()
        over = [opaque for opaque, (_, deadline) in self._posted.items() if deadline <= now]
        for opaque in over:
            answer, _ = self._posted.pop(opaque)
            if not answer.done():
                answer.set_exception(RemotingTimeout(f"no answer from {self.addr} in time"))
        self._sweeper, self._sweep_at = None, inf
        if self._posted:
            first = min(deadline for _, deadline in self._posted.values())
            self._sweep_when(max(first, now + SWEEP_GAP_S))

    def _fail(self, error: SendFailed) -> None:
        waiting, self._waiting = self._waiting, {}
        others = [answer for answer, _ in (*self._posted.values(), *self._readers.values())]
        self._posted.clear()
        self._readers.clear()
        failed: list[asyncio.Future[Any]] = [*waiting.values(), *others]
        for waiter in failed:
            if not waiter.done():
                waiter.set_exception(error)
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        self.is_dead = True
        if not self.closed.done():
            self.closed.set_result(None)


def _read(reader: tuple[asyncio.Future[Any], Read], answer: Command, body: memoryview) -> None:
    """Have an answer read by whoever asked, if that still waits; its errors are the asker's."""
    waiter, read = reader
    if waiter.done():
        return
    try:
        found = read(answer, body)
    except Exception as error:  # noqa: BLE001 - raised where the answer is waited for
        waiter.set_exception(error)
    else:
        waiter.set_result(found)


def refuse_all(command: Command, channel: Channel) -> None:
    """The listener of a caller that takes no requests: each is answered 'not supported'."""
    channel.refuse(command)


async def connect(
    addr: str,
    timeout_s: float = 3.0,
    on_request: Callable[[Command, Channel], None] = refuse_all,
    *,
    prepare: Callable[[Command], None] | None = None,
    tls: ssl.SSLContext | None = None,
) -> Channel:
    """Open a connection to "host:port".

    `on_request` gets every request the peer makes, on the loop. `prepare` may change each request
    before it is written: to sign it, for instance. Raises ConnectFailed.
    """
    host, port = split_addr(addr)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            _, channel = await loop.create_connection(
                lambda: Channel(addr, on_request, prepare), host, port, ssl=tls
            )
    except TimeoutError as error:
        raise ConnectFailed(f"no connection to {addr} within {timeout_s:.3g} s") from error
    except (OSError, ValueError) as error:  # ValueError: a name that cannot even be asked for
        raise ConnectFailed(f"no connection to {addr}: {error}") from error
    return channel


def split_addr(addr: str) -> tuple[str, int]:
    """Split "host:port" or "[ipv6]:port". Raises ConnectFailed when it is neither."""
    host, _, port = addr.strip().rpartition(":")
    if not host or not port.isascii() or not port.isdecimal() or int(port) > 65_535:
        raise ConnectFailed(f"{addr!r} is no address; write host:port")
    return host.strip("[]"), int(port)
