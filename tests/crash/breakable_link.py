"""A TCP proxy between a slave and its master that can be cut."""

from __future__ import annotations

import contextlib
import socket
from threading import Lock, Thread


class BreakableLink:
    """Passes connections on from one address to another; `cut` ends them and lets none through."""

    def __init__(self, at: tuple[str, int], to: tuple[str, int]) -> None:
        self._to = to
        self._lock = Lock()
        self._ends: list[socket.socket] = []
        self._is_cut = False
        self._listener = socket.create_server(at)
        Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        with self._lock:
            self._is_cut = True
            ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        with self._lock:
            self._is_cut = False

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                with self._lock:
                    is_cut = self._is_cut
                if is_cut:
                    near.close()
                    continue
                try:
                    far = socket.create_connection(self._to)
                except OSError:
                    near.close()
                    continue
                with self._lock:
                    self._ends += [near, far]
                for one, other in ((near, far), (far, near)):
                    Thread(target=_pass_on, args=(one, other), daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        source.close()
