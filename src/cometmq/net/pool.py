"""Connections by address: one each, opened when first asked for, opened again when it broke.

Owns the single flight of a connect and the pause after a failed one; refuses to know what is said
on a connection, except that a greeting may be sent first. Invariant: at most one connection and one
attempt per address. One loop owns it.
Java: NettyRemotingClient.channelTables
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.errors import ConnectFailed
from cometmq.net.channel import Channel, connect, refuse_all

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from cometmq.wire.command import Command

_PAUSE_FIRST_S, _PAUSE_MOST_S = 0.05, 0.5


_FAREWELL_S = 0.5
"""How long the end of connections is waited for."""


class ChannelPool:
    """One connection per peer. `greet` is called with each new one before anybody else has it."""

    def __init__(
        self,
        *,
        connect_timeout_s: float = 3.0,
        on_request: Callable[[Command, Channel], None] = refuse_all,
        greet: Callable[[Channel], None] | None = None,
        on_lost: Callable[[str], None] | None = None,
        prepare: Callable[[Command], None] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._on_request, self._prepare, self._tls = on_request, prepare, tls
        self._greet = greet
        self._on_lost = on_lost
        self._channels: dict[str, Channel] = {}
        self._attempts: dict[str, asyncio.Task[Channel]] = {}
        self._refused: dict[str, tuple[float, float, str]] = {}  # addr: until, pause, why
        self._is_closed = False

    async def channel(self, addr: str) -> Channel:
        """Return the open connection to `addr`, made now if need be.

        Raises ConnectFailed; at once during the pause (50 ms growing to 500 ms) after a failure.
        """
        found = self._channels.get(addr)
        if found is not None and found.is_open:
            return found
        attempt = self._attempts.get(addr)
        if attempt is None:
            self._check(addr)
            attempt = asyncio.get_running_loop().create_task(self._open(addr))
            self._attempts[addr] = attempt
            attempt.add_done_callback(lambda task: self._attempted(addr, task))
        return await asyncio.shield(attempt)

    def open_channel(self, addr: str) -> Channel | None:
        """Return the connection to `addr` if it is open now."""
        found = self._channels.get(addr)
        return found if found is not None and found.is_open else None

    def open_channels(self) -> list[Channel]:
        """Return all connections that are open now."""
        return [channel for channel in self._channels.values() if channel.is_open]

    async def close(self) -> None:
        """Close all connections; later calls of `channel` fail."""
        self._is_closed = True
        attempts = list(self._attempts.values())
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
        channels = list(self._channels.values())
        self._channels.clear()
        for channel in channels:
            channel.close()
        if channels:  # TLS says farewell before it closes
            await asyncio.wait([channel.closed for channel in channels], timeout=_FAREWELL_S)

    def _check(self, addr: str) -> None:
        if self._is_closed:
            raise ConnectFailed("this client is closed")
        until, _, why = self._refused.get(addr, (0.0, 0.0, ""))
        if asyncio.get_running_loop().time() < until:
            raise ConnectFailed(why)

    async def _open(self, addr: str) -> Channel:
        try:
            channel = await connect(
                addr,
                self._connect_timeout_s,
                self._on_request,
                prepare=self._prepare,
                tls=self._tls,
            )
        except ConnectFailed as error:
            self._pause(addr, str(error))
            raise
        self._refused.pop(addr, None)
        self._channels[addr] = channel
        channel.closed.add_done_callback(lambda _: self._lost(addr, channel))
        if self._greet:
            self._greet(channel)
        return channel

    def _pause(self, addr: str, why: str) -> None:
        pause_s = min(
            self._refused.get(addr, (0.0, 0.0, ""))[1] * 2 or _PAUSE_FIRST_S, _PAUSE_MOST_S
        )
        self._refused[addr] = (asyncio.get_running_loop().time() + pause_s, pause_s, why)

    def _attempted(self, addr: str, task: asyncio.Task[Channel]) -> None:
        self._attempts.pop(addr, None)
        if not task.cancelled():
            task.exception()  # seen: whoever waited got it, nobody may have waited

    def _lost(self, addr: str, channel: Channel) -> None:
        if self._channels.get(addr) is channel:
            del self._channels[addr]
        if self._on_lost and not self._is_closed:
            self._on_lost(addr)
