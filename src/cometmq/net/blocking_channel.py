"""A channel on a plain blocking socket: the codec of `wire`, no loop, no thread.

Owns one connection, the numbering of its requests, and the answers not yet taken. Does not
reconnect: make a new channel.
Invariant: an answer is handed out once, to the caller that has its number; answers nobody waits for
are dropped; every wait has a deadline; after any RemotingError but a timeout the channel is closed.
Used by one thread at a time: Spark tasks and one-shot tools.
Java: NettyRemotingClient, invokeSync.
"""

from __future__ import annotations

import socket
import ssl
import time
from typing import TYPE_CHECKING, Self

from cometmq.errors import (
    CertificateRefused,
    ConnectFailed,
    ProtocolError,
    RemotingTimeout,
    SendFailed,
    TooManyRequests,
)
from cometmq.net.address import split_address
from cometmq.wire.command import Command, request
from cometmq.wire.frame import FrameDecoder
from cometmq.wire.request_signature import add_signature

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from cometmq.wire.headers.base import Header
    from cometmq.wire.request_signature import Credentials

OUTSTANDING_MAX = 1024
"""Most requests that may wait for their answers at once."""

_CHUNK_BYTES = 256 * 1024


class BlockingChannel:
    """One connection to a name server or a broker, made at once; raises ConnectFailed.

    `timeout_s` is the default for connecting and for each wait. With `credentials` every request
    is signed; with `tls` the connection is encrypted. Usable as a context manager.
    """

    def __init__(
        self,
        addr: str,
        timeout_s: float = 10.0,
        *,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.addr = addr
        self._timeout_s = timeout_s
        self._decoder = FrameDecoder()
        self._opaque = 0
        self._wanted: set[int] = set()
        self._answers: dict[int, Command] = {}
        self._credentials = credentials
        self._socket = open_socket(addr, timeout_s)
        if tls is not None:
            self._socket = _encrypted(self._socket, addr, tls)
        self.is_open = True

    def call(
        self,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        timeout_s: float | None = None,
    ) -> Command:
        """Send a request and wait for its answer, whatever its code; raises RemotingError."""
        return self.wait(self.post(code, header, body), timeout_s)

    def post(self, code: int, header: Header | None = None, body: bytes = b"") -> int:
        """Send a request and return its number, for `wait` or `forget`."""
        (opaque,) = self.post_all(code, [header], body)
        return opaque

    def post_all(
        self, code: int, headers: Sequence[Header | None], body: bytes = b""
    ) -> Sequence[int]:
        """Send several requests of one kind in one write and return their numbers."""
        if len(self._wanted) + len(self._answers) + len(headers) > OUTSTANDING_MAX:
            raise TooManyRequests(f"{OUTSTANDING_MAX} requests to {self.addr} wait for answers")
        opaques = [self._next_opaque() for _ in headers]
        commands = [
            request(code, opaque, header, body)
            for opaque, header in zip(opaques, headers, strict=True)
        ]
        self._send(commands)
        self._wanted.update(opaques)
        return opaques

    def oneway(self, code: int, header: Header | None = None, body: bytes = b"") -> None:
        """Send a request that gets no answer."""
        self._send([request(code, self._next_opaque(), header, body, oneway=True)])

    def wait(self, opaque: int, timeout_s: float | None = None) -> Command:
        """Wait for the answer to the request with this number.

        Raises RemotingTimeout when it does not arrive in time (a later answer is dropped),
        SendFailed when the connection breaks.
        """
        assert opaque in self._wanted or opaque in self._answers, f"no request #{opaque} waits"
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        while opaque not in self._answers:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not self._receive(left_s):
                self._wanted.discard(opaque)
                raise RemotingTimeout(f"{self.addr} did not answer within {limit_s:g} s")
        return self._answers.pop(opaque)

    def fileno(self) -> int:
        """The socket's number, for a selector."""
        return self._socket.fileno()

    def receive(self) -> dict[int, Command]:
        """Once the socket is readable: the answers that have come whole, by their numbers.

        Raises RemotingError when the connection has broken.
        """
        self._receive(0)  # readable may be a part of a frame, or TLS's own news
        answers, self._answers = self._answers, {}
        return answers

    def forget(self, opaque: int) -> None:
        """Give up on an answer; it is dropped when it comes."""
        self._wanted.discard(opaque)
        self._answers.pop(opaque, None)

    def close(self) -> None:
        """Close the connection; unanswered requests are lost."""
        self.is_open = False
        self._socket.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self.close()

    def _next_opaque(self) -> int:
        self._opaque = self._opaque + 1 & 0x7FFFFFFF
        return self._opaque

    def _send(self, commands: Sequence[Command]) -> None:
        if self._credentials is not None:
            for command in commands:
                add_signature(command, self._credentials)
        data = b"".join(command.encode() for command in commands)
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(data)
        except OSError as error:
            self.close()
            raise SendFailed(f"the request to {self.addr} was not sent: {error}") from error

    def _receive(self, timeout_s: float) -> bool:
        """Read one chunk from the socket; False when none arrived in time, at once with 0."""
        try:
            self._socket.settimeout(timeout_s)
            chunk = self._socket.recv(_CHUNK_BYTES)
        except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError as error:
            self.close()
            raise SendFailed(f"the connection to {self.addr} broke: {error}") from error
        if not chunk:
            self.close()
            raise SendFailed(f"{self.addr} closed the connection before it answered")
        try:
            for frame in self._decoder.feed(chunk):
                self._take(Command.decode(frame))
        except ProtocolError:
            self.close()
            raise
        if self._decoder.broken:
            self.close()
            raise ProtocolError(f"{self.addr}: {self._decoder.broken}")
        return True

    def _take(self, command: Command) -> None:
        """Keep an answer that is waited for; drop the peer's own requests."""
        if command.is_response and command.opaque in self._wanted:
            self._wanted.remove(command.opaque)
            self._answers[command.opaque] = command


def open_socket(addr: str, timeout_s: float) -> socket.socket:
    """Connect to "host:port"; raises ConnectFailed."""
    try:
        connection = socket.create_connection(split_address(addr), timeout_s)
    except (OSError, ValueError) as error:
        raise ConnectFailed(f"no connection to {addr}: {error}") from error
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _encrypted(plain: socket.socket, addr: str, tls: ssl.SSLContext) -> ssl.SSLSocket:
    """The connection with TLS; raises ConnectFailed, and closes it."""
    try:
        return tls.wrap_socket(plain, server_hostname=split_address(addr)[0])
    except ssl.SSLCertVerificationError as error:
        plain.close()
        raise certificate_refused(addr, error) from error
    except OSError as error:
        plain.close()
        raise ConnectFailed(f"no connection to {addr}: {error}") from error


def certificate_refused(addr: str, error: ssl.SSLCertVerificationError) -> CertificateRefused:
    """The error of a connection to a server that is not trusted."""
    return CertificateRefused(f"the certificate of {addr} is refused: {error.verify_message}")
