"""A proxy between a client and a name server with its broker that hears every frame.

Routes are rewritten so that clients reach the broker through it too. Owns the two listening
sockets and the loop they run on, in a thread; `heard` may be read once it is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from cometmq.wire.command import Command
from cometmq.wire.frame import FrameDecoder, encode_frame

if TYPE_CHECKING:
    from cometmq.wire.frame import Frame


@dataclass
class Heard:
    """One request and its answer, if there was one; `way` is like "client to broker"."""

    way: str
    request: Command
    answer: Command | None = None


class Tap:
    """`with Tap(namesrv, broker) as tap:` clients use `tap.namesrv`."""

    def __init__(self, namesrv: str, broker: str) -> None:
        self._behind = {"name server": namesrv, "broker": broker}
        self._front: dict[str, str] = {}
        self.heard: list[Heard] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._servers: dict[str, asyncio.Server] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def namesrv(self) -> str:
        return self._front["name server"]

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def away(self) -> None:
        """Refuse connections to the broker, as while it does not run, and end those there are."""
        asyncio.run_coroutine_threadsafe(self._close("broker"), self._loop).result(10)

    def back(self) -> None:
        """Take connections to the broker again, at the same address."""
        asyncio.run_coroutine_threadsafe(self._listen("broker"), self._loop).result(10)

    async def _listen(self, *only: str) -> None:
        for name in only or self._behind:

            def serve(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str = name
            ) -> None:
                task = self._loop.create_task(self._serve(name, reader, writer), name=name)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

            port = int(self._front.get(name, ":0").rpartition(":")[2])
            self._servers[name] = await asyncio.start_server(serve, "127.0.0.1", port)
            self._front[name] = f"127.0.0.1:{self._servers[name].sockets[0].getsockname()[1]}"

    async def _close(self, *only: str) -> None:
        for name in only or list(self._servers):
            self._servers.pop(name).close()
        ending = [task for task in self._tasks if not only or task.get_name() in only]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def _serve(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        host, _, port = self._behind[name].rpartition(":")
        try:
            behind, onward = await asyncio.open_connection(host, int(port))
        except BaseException:  # nobody is there, or the tap is closed meanwhile
            writer.close()
            raise
        waiting: dict[tuple[str, int], Heard] = {}
        there, back = f"client to {name}", f"{name} to client"
        halves = [
            asyncio.ensure_future(self._pump(reader, onward, there, back, waiting)),
            asyncio.ensure_future(self._pump(behind, writer, back, there, waiting)),
        ]
        try:
            await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for half in halves:
                half.cancel()
            for each in (writer, onward):
                each.close()
            for each in (writer, onward):
                with contextlib.suppress(ConnectionError):
                    await each.wait_closed()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        way: str,
        other: str,
        waiting: dict[tuple[str, int], Heard],
    ) -> None:
        decoder = FrameDecoder()
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(1 << 16):
                for frame in decoder.feed(chunk):
                    writer.write(self._hear(frame, way, other, waiting))
                await writer.drain()

    def _hear(
        self, frame: Frame, way: str, other: str, waiting: dict[tuple[str, int], Heard]
    ) -> bytes:
        header, body = bytes(frame.header), bytes(frame.body)
        command = Command.decode(frame)
        if not command.is_response:
            heard = Heard(way, command)
            self.heard.append(heard)
            if not command.is_oneway:
                waiting[other, command.opaque] = heard
        elif (asked := waiting.pop((way, command.opaque), None)) is not None:
            asked.answer = command
            if asked.request.code == 105:
                real, front = (self._behind["broker"], self._front["broker"])
                body = body.replace(real.encode(), front.encode())
        return encode_frame(header, body, frame.serialize_type)
