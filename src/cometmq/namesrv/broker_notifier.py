"""Commands from a name server to brokers, which nobody answers.

Each goes over a connection of its own. While one is being opened, a newer command for the same
address takes the place of the older one, so a broker hears of the last change last.
Bound: the addresses that are connected to at once; what is for further ones is left out, and
logged. Apache's brokers ask every second, too, for what they were to hear.
Java: RouteInfoManager.notifyMinBrokerIdChanged, NettyRemotingClient.invokeOneway.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cometmq.errors import CometError
from cometmq.net.channel import connect
from cometmq.net.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from cometmq.net.tls_contexts import TlsContexts
    from cometmq.runtime.background import BackgroundTasks
    from cometmq.wire.command import Command

CONNECT_S = 3.0
"""How long it may take to connect to a broker, seconds."""

NOTIFIED_MAX = 256
"""Addresses that are connected to at once."""


class BrokerNotifier:
    """Sends one-way commands to the addresses of brokers. Belongs to the name server's loop."""

    def __init__(self, background: BackgroundTasks, tls: TlsContexts | None = None) -> None:
        """`tls` says whether brokers are connected to with it; None: they are not."""
        self._background = background
        self._tls = tls
        self._newest: dict[str, Command] = {}
        """By address that is being connected to: what to send there."""
        self._log = RateLimitedLog(logging.getLogger(__name__))

    def send(self, addr: str, command: Command) -> None:
        """Send a command to an address, in the background; what fails is logged."""
        if addr not in self._newest:
            if len(self._newest) >= NOTIFIED_MAX:
                self._log.warning(
                    "the broker at %s is not notified of its lowest broker id: connections to %d "
                    "others are being opened",
                    addr,
                    NOTIFIED_MAX,
                )
                return
            self._background.spawn(self._notify(addr), name=f"command to {addr}")
        self._newest[addr] = command

    async def _notify(self, addr: str) -> None:
        try:
            context = self._tls.client if self._tls else None
            channel = await connect(addr, CONNECT_S, tls=context)
            channel.oneway(self._newest[addr])
            channel.close()
        except CometError as error:
            self._log.warning(
                "cannot notify the broker at %s of its lowest broker id: %s", addr, error
            )
        finally:
            del self._newest[addr]
