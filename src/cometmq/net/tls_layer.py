"""TLS between an accepted socket and its protocol; plain bytes take their way without it.

The first byte decides, once: a TLS handshake begins with 22, and no frame of a permitted length
does. Then a plain connection has its socket to itself, and this object is gone. With TLS it is the
protocol of the socket and the transport of the connection: what is read in one go is decrypted in
one go, and what is written is encrypted and written at once, so that the bounds of reads and of
unread answers are those of the socket. Owns the handshake: its time, and its turn among others.
Invariant: nothing reaches the connection before the handshake has ended well.
Java: NettyRemotingServer.TlsModeHandler, Netty's SslHandler.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, cast

from cometmq.net.read_limit import bound_reads

if TYPE_CHECKING:
    from cometmq.net.iteration_budget import IterationBudget
    from cometmq.net.rate_limited_log import RateLimitedLog
    from cometmq.net.tls_contexts import TlsContexts

HANDSHAKE = 22
"""The first byte of a TLS connection."""

HANDSHAKE_S = 10.0
"""How long a handshake may take, seconds; Netty's bound."""

_RECORD_BYTES = 16 * 1024
"""The largest record of TLS."""

_PIECE_BYTES = 128 * 1024
"""So much of an answer is encrypted before it is written: the copies of a large one stay small."""


class InnerProtocol(Protocol):
    """The protocol of an accepted connection, as far as it matters here."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        ...

    def use_transport(self, transport: asyncio.Transport) -> None:
        """Write to another transport from now on."""
        ...

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        ...

    def eof_received(self) -> bool | None:
        """The client has ended the connection."""
        ...

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        ...

    def pause_writing(self) -> None:
        """The client does not read."""
        ...

    def resume_writing(self) -> None:
        """The client reads again."""
        ...


class TlsLayer(asyncio.Protocol):
    """One accepted socket of a server with TLS. Made by `RemotingServer` only; of its loop."""

    def __init__(
        self,
        inner: InnerProtocol,
        contexts: TlsContexts,
        budget: IterationBudget,
        warnings: RateLimitedLog,
    ) -> None:
        self._inner = inner
        self._contexts = contexts
        self._budget = budget
        self._warnings = warnings
        self._socket: asyncio.Transport
        self._tls: ssl.SSLObject | None = None
        self._incoming = self._outgoing = cast("ssl.MemoryBIO", None)  # made with the first byte
        self._is_open = False
        self._timer: asyncio.TimerHandle | None = None

    # --- the protocol of the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Have the connection counted, whatever it will speak."""
        self._socket = cast("asyncio.Transport", transport)
        bound_reads(transport)
        self._inner.connection_made(cast("asyncio.Transport", self))

    def data_received(self, data: bytes) -> None:
        """Decrypt a chunk, go on with the handshake, or find out that there is none."""
        if self._is_open:
            self._decrypt(data)
        elif self._tls is not None or self._is_handshake(data):
            self._incoming.write(data)
            if self._budget.now() >= self._budget.until and self._budget.is_over():
                self._socket.pause_reading()
                self._budget.wait(self, is_new=True)
            else:
                self._shake_hands()

    def go_on(self, until: float) -> bool:
        """Go on with the handshake, in its turn; there is nothing left for later."""
        del until
        if not self._socket.is_closing():
            self._socket.resume_reading()
            self._shake_hands()
        return False

    def eof_received(self) -> None:
        """Tell the connection; the socket closes."""
        self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the connection, and let go of it: each of the two holds the other."""
        self._end_timer()
        self._inner.connection_lost(exc)
        self._tls = None
        del self._inner

    def pause_writing(self) -> None:
        """Tell the connection."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Tell the connection."""
        self._inner.resume_writing()

    # --- the transport of the connection

    def write(self, data: bytes) -> None:
        """Encrypt and write at once."""
        assert self._tls is not None, "an answer before the handshake"
        view = memoryview(data)
        while view and not self._socket.is_closing():
            view = view[self._tls.write(view[:_PIECE_BYTES]) :]
            if self._outgoing.pending >= _PIECE_BYTES or not view:
                self._socket.write(self._outgoing.read())

    def close(self) -> None:
        """Say that no more will come, and close when that is written."""
        if self._is_open and not self._socket.is_closing():
            with suppress(ssl.SSLError):  # the other side has not said so; nobody waits for it
                cast("ssl.SSLObject", self._tls).unwrap()
            self._write_own()
        self._socket.close()

    def abort(self) -> None:
        """Close at once."""
        self._socket.abort()

    def is_closing(self) -> bool:
        """Whether the socket is closed or about to be."""
        return self._socket.is_closing()

    def pause_reading(self) -> None:
        """Read nothing more from the socket."""
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        """Read from the socket again."""
        self._socket.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Bound the socket's buffer: nothing is kept here."""
        self._socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Bytes that the socket could not take yet."""
        return self._socket.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What the socket's transport says."""
        return self._socket.get_extra_info(name, default)

    # --- TLS

    def _is_handshake(self, data: bytes) -> bool:
        """Whether a connection begins with TLS; else it is plain from now on, or refused."""
        if data[0] == HANDSHAKE and self._contexts.server is not None:
            self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            self._tls = self._contexts.server.wrap_bio(
                self._incoming, self._outgoing, server_side=True
            )
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(HANDSHAKE_S, self._give_up)
            return True
        if self._contexts.is_enforcing:
            self._refuse("it does not begin with TLS, which tls.server.mode=enforcing demands")
        else:
            self._socket.set_protocol(cast("asyncio.Protocol", self._inner))
            self._inner.use_transport(self._socket)
            self._inner.data_received(data)
        return False

    def _shake_hands(self) -> None:
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._write_own()
        except ssl.SSLError as error:
            self._write_own()  # the alert that says why
            self._warnings.warning("closing %s: no TLS: %s", self._addr, error)
            self._socket.close()
        else:
            self._end_timer()
            self._write_own()
            self._is_open = True
            self._decrypt(b"")

    def _decrypt(self, data: bytes) -> None:
        """Give the connection what a chunk holds, all at once."""
        tls, incoming = cast("ssl.SSLObject", self._tls), self._incoming
        incoming.write(data)
        found: list[bytes] = []
        is_ended = False
        try:
            while not is_ended and (incoming.pending or tls.pending()):
                found.append(tls.read(_RECORD_BYTES))
                is_ended = not found[-1]
        except ssl.SSLWantReadError:
            pass  # a part of a record
        except ssl.SSLError as error:
            self._refuse(f"its TLS is broken: {error}")
            return
        self._write_own()
        if text := found[0] if len(found) == 1 else b"".join(found):
            self._inner.data_received(text)
        if is_ended and not self._socket.is_closing():
            self._inner.eof_received()
            self.close()

    def _write_own(self) -> None:
        """Write what TLS itself has to say."""
        if self._outgoing.pending and not self._socket.is_closing():
            self._socket.write(self._outgoing.read())

    def _give_up(self) -> None:
        self._timer = None
        self._refuse(f"its TLS handshake takes longer than {HANDSHAKE_S:g} s")

    def _refuse(self, why: str) -> None:
        self._warnings.warning("closing %s: %s", self._addr, why)
        self._socket.abort()

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def _addr(self) -> str:
        return str(self._socket.get_extra_info("peername"))
