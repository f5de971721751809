"""Connections by address: one each, opened when first asked for, opened again when it broke.

Owns the single flight of a connect and the pause after a failed one; refuses to know what is said
on a connection, except that a greeting may be sent first. Invariant: at most one connection and one
attempt per address, and a pool that was closed has left no socket behind. One loop owns it.
Java: NettyRemotingClient.channelTables
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING
from weakref import WeakSet

from cometmq.errors import ConnectFailed
from cometmq.net.channel import Channel, connect, refuse_all

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from cometmq.wire.command import Command

_PAUSE_FIRST_S, _PAUSE_MOST_S = 0.05, 0.5
_FAREWELL_S = 0.5
"""How long a peer may take to read what was written and to say farewell; then it is cut off."""
_pools: WeakSet[ChannelPool] = WeakSet()
_pools_lock = threading.Lock()


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
        self._alive: set[Channel] = set()
        """All whose sockets are not closed yet, those that nobody uses any more included."""
        self._attempts: dict[str, asyncio.Task[Channel]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
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
            if self._loop is None:
                self._register()
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

    def shut(self) -> None:
        """Begin to close all connections; later calls of `channel` fail."""
        self._is_closed = True
        for attempt in self._attempts.values():
            attempt.cancel()
        self._channels.clear()
        for channel in list(self._alive):
            if channel.is_open:
                channel.close()

    async def close(self) -> None:
        """Close all connections and wait for their end, at most a second; then cut them off."""
        self.shut()
        await asyncio.gather(*self._attempts.values(), return_exceptions=True)
        await self._end_of_all()
        for channel in self._alive:  # it does not read, or says no farewell to TLS
            channel.abort()
        await self._end_of_all()

    async def _end_of_all(self) -> None:
        if self._alive:
            await asyncio.wait([one.ended for one in self._alive], timeout=_FAREWELL_S)

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
        self._alive.add(channel)
        channel.ended.add_done_callback(lambda _: self._alive.discard(channel))
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

    def _register(self) -> None:
        self._loop = asyncio.get_running_loop()
        with _pools_lock:
            _pools.add(self)

    def belongs_to(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether its connections are this loop's."""
        return self._loop is loop


async def close_all() -> None:
    """Close what is left open on the running loop, before the loop is closed."""
    loop = asyncio.get_running_loop()
    with _pools_lock:
        left = [pool for pool in _pools if pool.belongs_to(loop)]
    await asyncio.gather(*(pool.close() for pool in left))


def _forked() -> None:
    """Another thread of the parent may have held the lock; it is not here to let it go."""
    global _pools_lock
    _pools_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
