"""A wire between client and server that can be cut: what it carries is not looked into."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_RESET = struct.pack("ii", 1, 0)
_LONGEST = 1 << 20


class Relay:
    """Carries connections to a server; `rename` replaces texts of equal length in its answers."""

    def __init__(self, target: str, rename: Mapping[str, str] | None = None) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._rename = {old.encode(): new.encode() for old, new in (rename or {}).items()}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.addr = f"127.0.0.1:{self._listener.getsockname()[1]}"
        assert len(self.addr) == len(target), "the system gave a port of another length"
        self.is_away = False
        """Whether connections are broken as soon as they are made."""
        self.is_mute = False
        """Whether answers are kept back for ever."""
        self.loses_answers = False
        """Whether a connection breaks when the server answers: the request was carried out."""
        self.refused = 0
        """Connections broken because it was away, and answers lost."""
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self) -> None:
        """Break all connections of now, as a network does."""
        for one in list(self._open):
            self._break(one)

    def leave(self) -> None:
        """Break all connections, and all that come."""
        self.is_away = True
        self.cut()

    def close(self) -> None:
        """End everything."""
        self.is_away = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for one in self._threads:
            one.join(10)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._open.add(near)
            if self.is_away:
                self.refused += 1
                self._break(near)
                continue
            try:
                far = socket.create_connection(self._target, 10)
            except OSError:
                self._break(near)
                continue
            self._open.add(far)
            for job in ((near, far, False), (far, near, True)):
                self._threads.append(threading.Thread(target=self._carry, args=job))
                self._threads[-1].start()

    def _carry(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            source.settimeout(None)
            while data := source.recv(_LONGEST):
                if is_answer and self.is_mute:
                    continue
                if is_answer and self.loses_answers:
                    self.refused += 1
                    break
                for old, new in self._rename.items() if is_answer else ():
                    data = data.replace(old, new)
                sink.sendall(data)
        self._break(source)
        self._break(sink)

    def _break(self, one: socket.socket) -> None:
        self._open.discard(one)
        with contextlib.suppress(OSError):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            one.shutdown(socket.SHUT_RDWR)
        one.close()
