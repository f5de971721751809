"""Hot. One blocking connection for sends, one at a time: write a frame, read its answer.

For threads that send: each uses a connection of its own while it sends, so no thread waits for
another and no loop is in between. Refuses to know what is sent and who is next. Invariant: after
any error the connection is closed; nothing is ever left unread between two exchanges but requests
of the peer, which are dropped.
Java: none; NettyRemotingClient hands each answer from its own threads to the waiting one.
"""

from __future__ import annotations

import socket
import sys
import time
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING

from cometmq import native
from cometmq.errors import ProtocolError, RemotingTimeout, SendFailed
from cometmq.net.blocking_channel import open_socket
from cometmq.wire.command import Command
from cometmq.wire.frame import JSON, FrameDecoder
from cometmq.wire.templates.send_response import SendResponseLayouts

if TYPE_CHECKING:
    from cometmq.wire.templates.send_response import SendAnswer

_CHUNK_BYTES = 16 * 1024
_FOREVER_S = 1e9
_UNBOUND_S = float("nan")
"""Equal to the time of no exchange."""
_pack_time = Struct("@ll").pack
_IS_POSIX = sys.platform != "win32"


class SendSocket:
    """A connection to one broker, made at once; raises ConnectFailed. One thread at a time."""

    __slots__ = ("_answers", "_decoder", "_opaque", "_socket", "_timeout_s", "addr", "used_at")

    def __init__(self, addr: str, timeout_s: float) -> None:
        self.addr = addr
        self._socket = open_socket(addr, timeout_s)
        self._socket.setblocking(True)
        self._timeout_s = _UNBOUND_S
        self._answers = SendResponseLayouts()
        self._decoder = FrameDecoder()
        self._opaque = 0
        self.used_at = 0.0
        """When it was last put back (monotonic seconds); its owner's."""

    def next_opaque(self) -> int:
        """The number of the next frame."""
        self._opaque = opaque = (self._opaque + 1) & 0x7FFFFFFF
        return opaque

    def exchange(self, opaque: int, frame: bytes, timeout_s: float) -> SendAnswer | Command:
        """Write the frame and wait for its answer at most `timeout_s`; raises RemotingError."""
        answer: SendAnswer | Command | None = None
        deadline = time.monotonic() + timeout_s
        try:
            if timeout_s != self._timeout_s:
                self._bound(timeout_s)
            done = self._write_and_read(frame)
            data = self._go_on(frame, done, deadline) if isinstance(done, int) else done
            answer = self._answers.answer_in(data, opaque)
            if answer is None:
                answer = self._read_on(data, opaque, deadline)
        except (BlockingIOError, TimeoutError):
            raise RemotingTimeout(f"no answer from {self.addr} in time") from None
        except OSError as error:
            raise SendFailed(f"the connection to {self.addr} broke: {error}") from error
        finally:
            if answer is None:  # after an interrupt too: what comes next would answer another send
                self.close()
        return answer

    def _write_and_read(self, frame: bytes) -> bytes | int:
        """Write the frame and read once; or how much was written, where the socket is full.

        Measured with four threads and batches of 32: written and read by one call, with one release
        of the interpreter's lock, 0.92 of the client's CPU a message. C gives up the wait for each
        signal, so that its handler runs and the time is looked at. The form in Python begins the
        time that a read may take again with each signal: else each would need a poll before it.
        """
        if not _IS_POSIX:
            return 0
        if native.c is not None:
            return native.c.exchange(self._socket.fileno(), frame)
        try:
            written = self._socket.send(frame, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        return self._socket.recv(_CHUNK_BYTES) if written == len(frame) else written

    def _go_on(self, frame: bytes, written: int, deadline: float) -> bytes:
        """Write the rest of a frame and read once, all of it until the deadline."""
        if written < len(frame):
            self._bound_until(deadline)
            self._socket.sendall(memoryview(frame)[written:])
        self._bound_until(deadline)
        return self._socket.recv(_CHUNK_BYTES)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def abort(self) -> None:
        """From another thread: have the exchange under way, or the next one, fail at once."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _bound(self, timeout_s: float) -> None:
        """Let the system bound each read: a socket with a Python timeout polls before each."""
        if _IS_POSIX:
            whole = max(int(min(timeout_s, _FOREVER_S) * 1e6), 1)
            packed = _pack_time(whole // 1_000_000, whole % 1_000_000)
            self._socket.setblocking(True)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, packed)
        self._timeout_s = timeout_s

    def _bound_until(self, deadline: float) -> None:
        """Have Python bound the next call as a whole, whatever is sent and signalled meanwhile."""
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise RemotingTimeout(f"no answer from {self.addr} in time")
        self._socket.settimeout(min(left_s, _FOREVER_S))
        self._timeout_s = _UNBOUND_S  # the next exchange needs the bound of `_bound` again

    def _read_on(self, data: bytes, opaque: int, deadline: float) -> Command:
        """Decode frames until the answer is among them, and learn its form."""
        while True:
            if not data:
                raise SendFailed(f"{self.addr} closed the connection before it answered")
            answer = None
            for frame in self._decoder.feed(data):
                command = Command.decode(frame)
                if command.is_response and command.opaque == opaque:
                    answer = command
                    if frame.serialize_type == JSON:
                        self._answers.learn(frame.header, command)
            if self._decoder.broken:
                raise ProtocolError(f"{self.addr}: {self._decoder.broken}")
            if answer is not None:
                return answer
            self._bound_until(deadline)
            data = self._socket.recv(_CHUNK_BYTES)
