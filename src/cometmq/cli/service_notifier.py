"""What systemd wants to hear of a service: that it is ready, that it lives, that it stops.

Owns the datagrams of `Type=notify` and the watchdog; does nothing where nobody listens
(NOTIFY_SOCKET is not set). Refuses to know roles. Java: none.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from cometmq.runtime.background import BackgroundTasks

if TYPE_CHECKING:
    from collections.abc import Mapping

_BEATS = 2
"""Signs of life within the time after which systemd thinks that the service hangs."""


class ServiceNotifier:
    """Tells the service manager. Belongs to the loop that `ready` is called on."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """`environment` is the process's unless given."""
        found = os.environ if environment is None else environment
        self._address = found.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):  # a name that is no file
            self._address = "\0" + self._address[1:]
        self._watchdog_s = 0.0
        if found.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid()):
            usec = found.get("WATCHDOG_USEC", "")
            self._watchdog_s = int(usec) / 1e6 if usec.isascii() and usec.isdecimal() else 0.0
        self._background = BackgroundTasks("service manager")

    def ready(self) -> None:
        """Everything serves; from now on the watchdog hears that the loop runs."""
        self._send("READY=1")
        if self._address and self._watchdog_s > 0:
            interval_s = self._watchdog_s / _BEATS
            self._background.every(interval_s, self._live, name="watchdog", first_s=0)

    async def stopping(self) -> None:
        """It stops; the watchdog hears no more."""
        await self._background.stop()
        self._send("STOPPING=1")

    def _live(self) -> None:
        self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            try:
                sender.sendto(text.encode(), self._address)
            except OSError:
                return  # the manager is gone or busy; the next sign of life may reach it
