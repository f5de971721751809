"""A real server on a free port and raw connections to it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from cometmq.net.dispatcher import RequestDispatcher
from cometmq.net.endpoint import Endpoint, RequestEffect
from cometmq.net.server import FastPath, RemotingServer
from cometmq.settings.net import NetSettings
from cometmq.wire.command import Command, request
from cometmq.wire.frame import FrameDecoder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Coroutine

    from cometmq.net.connection import Connection
    from cometmq.net.handler import Handler
    from cometmq.net.tls_contexts import TlsContexts

BOUND_S = 20


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run one test's coroutine, with a bound."""
    asyncio.run(asyncio.wait_for(coroutine, BOUND_S))


async def until(fact: Callable[[], object]) -> None:
    """Let the loop turn until a fact holds; the test's bound ends it otherwise."""
    while not fact():
        await asyncio.sleep(0.002)


class Raw:
    """A connection that speaks frames, or anything else."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._decoder = FrameDecoder()
        self._got: list[Command] = []

    def send(self, *commands: Command) -> None:
        self.writer.write(b"".join(command.encode() for command in commands))

    def ask(self, code: int, opaque: int, body: bytes = b"", *, oneway: bool = False) -> None:
        self.send(request(code, opaque, body=body, oneway=oneway))

    async def next(self) -> Command:
        while not self._got:
            data = await self.reader.read(1 << 18)
            assert data, "the server closed the connection"
            self._got += map(Command.decode, self._decoder.feed(data))
        return self._got.pop(0)

    async def call(self, code: int, opaque: int = 1, body: bytes = b"") -> Command:
        self.ask(code, opaque, body)
        return await self.next()

    async def end(self) -> bytes:
        """Everything until the server closes."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


@dataclass
class Served:
    """A running server, what it has seen, and the connections to it."""

    server: RemotingServer
    dispatcher: RequestDispatcher
    port: int
    connections: list[Connection] = field(default_factory=list)
    raws: list[Raw] = field(default_factory=list)

    async def connect(self) -> Raw:
        raw = Raw(*await asyncio.open_connection("127.0.0.1", self.port))
        self.raws.append(raw)
        return raw


@asynccontextmanager
async def serving(
    table: dict[int, Handler],
    *,
    net: NetSettings | None = None,
    fast_path: Callable[[Connection], FastPath] | None = None,
    unthrottled: Collection[int] = (),
    monotonic_s: Callable[[], float] = monotonic,
    tls: TlsContexts | None = None,
    **options: Any,
) -> AsyncIterator[Served]:
    """Serve a table of handlers; `connections` gets everyone who asked something."""
    connections: list[Connection] = []

    def noting(handler: Handler) -> Handler:
        def noted(command: Command, connection: Connection) -> Any:
            if connection not in connections:
                connections.append(connection)
            return handler(command, connection)

        return noted

    endpoints = [
        Endpoint(
            code,
            noting(handler),
            RequestEffect.DURABLE
            | (RequestEffect.UNTHROTTLED if code in unthrottled else RequestEffect.NONE),
        )
        for code, handler in table.items()
    ]
    made = RequestDispatcher(endpoints, **options)
    server = RemotingServer(
        made, net or NetSettings(), fast_path=fast_path, monotonic_s=monotonic_s, tls=tls
    )
    served = Served(server, made, await server.start("127.0.0.1", 0), connections)
    try:
        yield served
    finally:
        for raw in served.raws:
            await raw.close()
        made.stop()
        await server.stop()
