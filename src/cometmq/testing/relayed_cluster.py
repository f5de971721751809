"""A cluster whose clients reach it through relays, so that the network between them can fail.

The servers listen on 127.0.0.1, the relays on 127.0.0.2 at the same ports, and that is the address
the broker gives to clients. Linux has it as it is; elsewhere it must be set up.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any

from cometmq.testing.cluster import ClusterError, LocalCluster

if TYPE_CHECKING:
    from pathlib import Path

_RELAYS, _SERVERS = "127.0.0.2", "127.0.0.1"
_CHUNK_BYTES = 64 * 1024
_TRIES = 5


class Relay:
    """Carries connections to the same port of the servers' address; has a thread of its own."""

    def __init__(self) -> None:
        """Listen on a free port; raises OSError where the relays' address is not there."""
        self._listener = socket.create_server((_RELAYS, 0))
        self.port: int = self._listener.getsockname()[1]
        self._carrying: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop
        self._may_pass: asyncio.Event
        self._is_stopped: asyncio.Event
        self._has_started = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), name="cometmq-relay", daemon=True
        )
        self._thread.start()
        self._has_started.wait()

    def hold(self) -> None:
        """Let nothing pass; connections stay, and new ones are taken and wait."""
        self._loop.call_soon_threadsafe(self._may_pass.clear)

    def release(self) -> None:
        """Let everything pass, what has waited first."""
        self._loop.call_soon_threadsafe(self._may_pass.set)

    def cut(self) -> None:
        """Break all connections of now."""
        self._loop.call_soon_threadsafe(self._cut)

    def close(self) -> None:
        """End everything."""
        self._loop.call_soon_threadsafe(self._is_stopped.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._may_pass, self._is_stopped = asyncio.Event(), asyncio.Event()
        self._may_pass.set()
        server = await asyncio.start_server(self._carry, sock=self._listener)
        self._has_started.set()
        await self._is_stopped.wait()
        server.close()
        self._cut()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    def _cut(self) -> None:
        for task in self._carrying:
            task.cancel()

    async def _carry(self, near: asyncio.StreamReader, to_near: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection is carried by a task"
        self._carrying.add(task)
        with contextlib.ExitStack() as ends:
            ends.callback(self._carrying.discard, task)
            ends.callback(to_near.close)
            with contextlib.suppress(OSError, asyncio.CancelledError):
                far, to_far = await asyncio.open_connection(_SERVERS, self.port)
                ends.callback(to_far.close)
                await asyncio.gather(self._copy(near, to_far), self._copy(far, to_near))

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(_CHUNK_BYTES):
            await self._may_pass.wait()
            target.write(data)
            await target.drain()
        await self._may_pass.wait()
        raise ConnectionResetError  # one end has closed: so does the other


class RelayedCluster(LocalCluster):
    """A LocalCluster behind relays: `hold` and `release` all that passes, or `cut` connections.

    `namesrv` and `broker` are the relays' addresses.
    """

    def __init__(
        self, store: Path | str | None = None, *, timeout_s: float = 30.0, **settings: object
    ) -> None:
        given: dict[str, Any] = {"broker_ip1": _RELAYS, **settings}
        super().__init__(store, timeout_s=timeout_s, **given)
        self._relays: list[Relay] = []

    def start(self) -> None:
        """Start what does not run; raises ClusterError, also where there is no 127.0.0.2."""
        is_first = not self._relays
        for attempt in range(_TRIES if is_first else 1):
            if is_first:
                self._open_relays()
            try:
                super().start()
            except ClusterError:
                if is_first:
                    self._close_relays()
                if not is_first or attempt == _TRIES - 1:
                    raise  # else a port was free for the relay and taken where servers listen
            else:
                break
        self._name_relays()

    def _open_relays(self) -> None:
        try:
            self._relays = [Relay(), Relay()]
        except OSError as error:
            raise ClusterError(f"no relay can listen on {_RELAYS}: {error.strerror}") from error
        self._name_relays()

    def _name_relays(self) -> None:
        self.namesrv, self.broker = (f"{_RELAYS}:{relay.port}" for relay in self._relays)

    def _close_relays(self) -> None:
        for relay in self._relays:
            relay.close()
        self._relays = []

    def hold(self) -> None:
        """Let nothing pass between clients and servers, in either direction."""
        for relay in self._relays:
            relay.hold()

    def release(self) -> None:
        """Let everything pass, what has waited first."""
        for relay in self._relays:
            relay.release()

    def cut(self) -> None:
        """Break all connections between clients and servers."""
        for relay in self._relays:
            relay.cut()

    def stop(self) -> None:
        """Stop everything cleanly."""
        self.release()
        super().stop()
        self._close_relays()
