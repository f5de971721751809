"""One connection per address, opened when first asked for and reopened after it broke.

Shares one connect among all who wait for it, and pauses after a failed one. Does not know what is
sent on a connection, except that `greet` may send first. Invariant: at most one connection and one
attempt per address; a closed pool leaves no socket behind. One loop owns it.
Java: NettyRemotingClient.channelTables
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING
from weakref import WeakSet

from cometmq.errors import ClientStopped, ConnectFailed
from cometmq.net.channel import Channel, connect, refuse_requests

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from cometmq.wire.command import Command

_PAUSE_FIRST_S, _PAUSE_MOST_S = 0.05, 0.5
_CLOSE_TIMEOUT_S = 0.5
"""How long a peer may take to read what was written and to close; then the socket is aborted."""
_pools: WeakSet[ChannelPool] = WeakSet()
_pools_lock = threading.Lock()


class ChannelPool:
    """One connection per peer. `greet` is called with each new one before anybody else has it."""

    def __init__(
        self,
        *,
        connect_timeout_s: float = 3.0,
        on_request: Callable[[Command, Channel], None] = refuse_requests,
        greet: Callable[[Channel], None] | None = None,
        on_lost: Callable[[str], None] | None = None,
        prepare: Callable[[Command], None] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._on_request = on_request
        self._prepare = prepare
        self._tls = tls
        self._greet = greet
        self._on_lost = on_lost
        self._channels: dict[str, Channel] = {}
        self._alive: set[Channel] = set()
        """All whose sockets are not closed yet, including those no longer in use."""
        self._attempts: dict[str, asyncio.Task[Channel]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._refused: dict[str, tuple[float, float, ConnectFailed]] = {}  # until, pause, why
        self._is_closed = False

    def use_tls(self, tls: ssl.SSLContext | None) -> None:
        """Open connections with another context from now on; those that are open stay."""
        self._tls = tls

    def in_flight(self, addr: str) -> int:
        """How many requests to this address have no answer yet."""
        found = self._channels.get(addr)
        return found.in_flight if found is not None else 0

    async def channel(self, addr: str) -> Channel:
        """Return the open connection to `addr`, made now if need be.

        Raises ConnectFailed; at once during the pause (50 ms growing to 500 ms) after a failure.
        Raises ClientStopped when the pool is closed, or is closed meanwhile.
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
        try:
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            if attempt.cancelled() and self._is_closed:  # not the caller's task was cancelled
                raise ClientStopped from None
            raise

    def open_channel(self, addr: str) -> Channel | None:
        """Return the connection to `addr` if it is open now."""
        found = self._channels.get(addr)
        return found if found is not None and found.is_open else None

    def open_channels(self) -> list[Channel]:
        """Return all connections that are open now."""
        return [channel for channel in self._channels.values() if channel.is_open]

    def begin_close(self) -> None:
        """Begin to close all connections; later calls of `channel` fail."""
        self._is_closed = True
        for attempt in self._attempts.values():
            attempt.cancel()
        self._channels.clear()
        for channel in list(self._alive):
            if channel.is_open:
                channel.close()

    async def close(self) -> None:
        """Close all connections and wait for their sockets, at most a second; abort the rest."""
        self.begin_close()
        await asyncio.gather(*self._attempts.values(), return_exceptions=True)
        await self._wait_for_sockets()
        for channel in self._alive:  # the peer does not read, or does not finish TLS
            channel.abort()
        await self._wait_for_sockets()

    async def _wait_for_sockets(self) -> None:
        if self._alive:
            await asyncio.wait([one.socket_closed for one in self._alive], timeout=_CLOSE_TIMEOUT_S)

    def _check(self, addr: str) -> None:
        if self._is_closed:
            raise ClientStopped
        refused = self._refused.get(addr)
        if refused is not None and asyncio.get_running_loop().time() < refused[0]:
            raise type(refused[2])(str(refused[2]))

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
            self._pause(addr, error)
            raise
        self._refused.pop(addr, None)
        self._channels[addr] = channel
        self._alive.add(channel)
        channel.socket_closed.add_done_callback(lambda _: self._alive.discard(channel))
        channel.closed.add_done_callback(lambda _: self._lost(addr, channel))
        if self._greet:
            self._greet(channel)
        return channel

    def _pause(self, addr: str, error: ConnectFailed) -> None:
        last = self._refused.get(addr)
        pause_s = _PAUSE_FIRST_S if last is None else min(last[1] * 2, _PAUSE_MOST_S)
        why = type(error)(str(error))  # without the frames that a raised one holds
        self._refused[addr] = (asyncio.get_running_loop().time() + pause_s, pause_s, why)

    def _attempted(self, addr: str, task: asyncio.Task[Channel]) -> None:
        self._attempts.pop(addr, None)
        if not task.cancelled():
            task.exception()  # marks it as retrieved: perhaps nobody waits for it any more

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


async def close_pools_of_loop() -> None:
    """Close the pools left open on the running loop, before the loop is closed."""
    loop = asyncio.get_running_loop()
    with _pools_lock:
        left = [pool for pool in _pools if pool.belongs_to(loop)]
    await asyncio.gather(*(pool.close() for pool in left))


def _forked() -> None:
    """Replace the lock: a thread of the parent process may have held it during the fork."""
    global _pools_lock
    _pools_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
