"""Hosts in virtual time: each with an event loop of its own, on one clock and one network.

A host can stand still while the others go on, die, lose a connection, or have one stall. Nothing
waits for real: time jumps to the next timer of a host that runs. The same calls give the same run.
"""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Any, TypeVar

from cometmq.testing.sim_loop import ITERATION_S, SimLoop, SimServer, SimTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")
STEPS_MAX = 2_000_000
_FIRST_PORT = 20_001


class Host(SimLoop):
    """The loop of one host. Made by `Network.host`."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network
        self.is_paused = False
        self._servers = network.servers

    def time(self) -> float:
        return self.network.now_s

    def pass_time(self, wait_s: float | None) -> None:
        """Only the network lets time pass."""

    def next_at(self) -> float | None:
        """When it has something to do: now, at its first timer, or (None) never."""
        if self._ready:
            return self.network.now_s
        return self._scheduled[0].when() if self._scheduled else None

    def step(self) -> None:
        """Run one iteration."""
        asyncio._set_running_loop(self)
        try:
            self._run_once()
        finally:
            asyncio._set_running_loop(None)

    def _free_port(self) -> int:
        return self.network.free_port()

    async def create_server(self, protocol_factory, host, port, **_: Any) -> SimServer:
        server = await super().create_server(protocol_factory, host, port)
        self.network.host_of[server] = self
        return server

    async def create_connection(self, protocol_factory, host, port, **_: Any):
        server = self._servers.get(port)
        if server is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        ours = SimTransport(self, protocol_factory(), (host, port))
        there = self.network.host_of[server]
        theirs = SimTransport(there, server.factory(), (host, self._free_port()))
        ours.other, theirs.other = theirs, ours
        there.call_soon(theirs.protocol.connection_made, theirs)
        ours.protocol.connection_made(ours)
        self.network.connections.append((self, ours))
        return ours, ours.protocol


class Network:
    """All hosts, their clock, and what joins them."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.hosts: list[Host] = []
        self._all: list[Host] = []
        self.servers: dict[int, SimServer] = {}
        self.host_of: dict[SimServer, Host] = {}
        self.connections: list[tuple[Host, SimTransport]] = []
        """Each by who made it, and their end of it."""
        self._port = _FIRST_PORT
        self._later: list[tuple[float, Callable[[], None]]] = []

    def host(self) -> Host:
        """A new host that runs."""
        self.hosts.append(Host(self))
        self._all.append(self.hosts[-1])
        return self.hosts[-1]

    def free_port(self) -> int:
        self._port += 1
        return self._port - 1

    def later(self, after_s: float, action: Callable[[], None]) -> None:
        """Do something to the hosts after a while."""
        self._later.append((self.now_s + after_s, action))

    def run(self, host: Host, work: Coroutine[Any, Any, T], limit_s: float = 300.0) -> T:
        """Run something on a host to its end, while all others go on."""
        task = host.create_task(work)
        self.run_until(task.done, limit_s)
        return task.result()

    def run_until(self, condition: Callable[[], object], limit_s: float) -> None:
        """Let time pass until a condition holds; AssertionError when it does not in time."""
        deadline = self.now_s + limit_s
        for _ in range(STEPS_MAX):
            if condition():
                return
            assert self.now_s < deadline, f"not within {limit_s} s"
            self._step(deadline)
        raise AssertionError("the hosts never come to rest")

    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        until = self.now_s + seconds
        self.run_until(lambda: self.now_s >= until, seconds + 1)

    def kill(self, host: Host) -> None:
        """End a host at once, with all that it had to do; the kernel ends its connections."""
        self.hosts.remove(host)
        host.is_paused = True
        for owner, transport in self.connections:
            if owner is host and not transport.is_closing():
                transport.abort()

    def close(self) -> None:
        """Cancel what is left on all hosts, the dead ones too, and close their loops."""
        for host in self._all:
            for task in asyncio.all_tasks(host):
                task.cancel()
        for _ in range(STEPS_MAX):
            busy = [host for host in self._all if host._ready]
            if not busy:
                break
            for host in busy:
                host.step()
        for host in self._all:
            host.close()

    def open_connections(self, host: Host) -> list[SimTransport]:
        """The connections that a host has made and that are open."""
        return [at for owner, at in self.connections if owner is host and not at.is_closing()]

    def _step(self, deadline: float) -> None:
        """One iteration of each host that has something to do, at the time of the first of them."""
        times = [(at, host) for host in self.hosts if not host.is_paused
                 if (at := host.next_at()) is not None]  # fmt: skip
        first = min([deadline, *(at for at, _ in times), *(at for at, _ in self._later)])
        self.now_s = max(self.now_s, first)
        due = [action for at, action in self._later if at <= self.now_s]
        self._later = [one for one in self._later if one[0] > self.now_s]
        for action in due:
            action()
        for at, host in times:
            if at <= self.now_s and not host.is_paused:
                host.step()
        self.now_s += ITERATION_S
