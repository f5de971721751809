"""The loop in virtual time: nobody waits, nothing overtakes, and what hangs is an error."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from cometmq.testing.sim_loop import CHUNK_BYTES, SOCKET_BYTES, LoopClock, SimLoop, SimTransport


def run(scenario):
    with asyncio.Runner(loop_factory=SimLoop) as runner:
        return runner.run(scenario)


class Recorder(asyncio.Protocol):
    """Keeps the events and the data that it gets."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.events: list[str] = []
        self.transport: SimTransport

    def connection_made(self, transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.chunks.append(data)

    def eof_received(self) -> None:
        self.events.append("eof")

    def connection_lost(self, _error: Exception | None) -> None:
        self.events.append("lost")

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class Buffered(asyncio.BufferedProtocol):
    """Reads into a small buffer of its own."""

    def __init__(self) -> None:
        self.buffer, self.data = bytearray(7), b""

    def get_buffer(self, _sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, count: int) -> None:
        self.data += self.buffer[:count]


async def pair(factory=Recorder):
    """What a client wrote into, and the server's end of it."""
    accepted: list[asyncio.BaseProtocol] = []

    def accept() -> asyncio.BaseProtocol:
        accepted.append(factory())
        return accepted[-1]

    loop = asyncio.get_running_loop()
    server = await loop.create_server(accept, "127.0.0.1", 0)
    _, client = await loop.create_connection(Recorder, *server.getsockname())
    return client, accepted[0]


def test_an_hour_passes_at_once_and_every_timer_fires_at_its_time() -> None:
    async def scenario() -> list[float]:
        loop = asyncio.get_running_loop()
        clock, began = LoopClock(ms=0), loop.time()

        async def note(delay_s: float) -> float:
            await asyncio.sleep(delay_s)
            return loop.time() - began

        found = await asyncio.gather(note(3600), note(0.5), note(60))
        assert clock.now_ms() // 1000 == 3600
        return found

    began = time.monotonic()
    assert run(scenario()) == pytest.approx([3600, 0.5, 60], abs=0.01)
    assert time.monotonic() - began < 10


def test_a_wait_that_can_never_end_is_an_error_and_not_a_hang() -> None:
    async def scenario() -> None:
        await asyncio.get_running_loop().create_future()

    loop = SimLoop()
    task = loop.create_task(scenario())
    with pytest.raises(RuntimeError, match="nothing can ever wake this loop"):
        loop.run_until_complete(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()


def test_a_task_that_polls_with_sleeps_of_zero_sees_time_pass() -> None:
    async def scenario() -> None:
        clock = LoopClock()
        began = clock.now_ms()
        while clock.now_ms() < began + 5:
            await asyncio.sleep(0)

    run(scenario())


def test_what_would_block_runs_on_the_loop() -> None:
    async def scenario() -> None:
        assert await asyncio.to_thread(threading.current_thread) is threading.main_thread()
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)

    run(scenario())


def test_bytes_arrive_in_order_in_chunks_and_the_end_comes_last() -> None:
    async def scenario() -> None:
        client, server = await pair()
        sent = [bytes([number % 251]) * 5_000 for number in range(40)]
        for piece in sent:
            client.transport.write(piece)
        client.transport.close()
        client.transport.write(b"too late")
        await asyncio.sleep(1)
        assert b"".join(server.chunks) == b"".join(sent)
        assert max(map(len, server.chunks)) == CHUNK_BYTES
        assert server.events == ["eof", "lost"]
        assert client.events == ["lost"]

    run(scenario())


def test_a_protocol_that_owns_its_buffer_is_given_all_of_a_chunk() -> None:
    async def scenario() -> None:
        client, server = await pair(Buffered)
        client.transport.write(bytes(range(100)))
        await asyncio.sleep(1)
        assert server.data == bytes(range(100))

    run(scenario())


def test_a_writer_that_is_faster_than_the_reader_is_paused_and_resumed() -> None:
    async def scenario() -> None:
        client, server = await pair()
        server.transport.pause_reading()
        client.transport.set_write_buffer_limits(high=1_000)
        client.transport.write(bytes(SOCKET_BYTES + 1_000))
        assert client.events == []
        client.transport.write(b"x")
        assert client.events == ["pause"]
        assert client.transport.get_write_buffer_size() == 1_001
        await asyncio.sleep(1)
        assert server.chunks == []
        server.transport.resume_reading()
        await asyncio.sleep(1)
        assert client.events == ["pause", "resume"]
        assert sum(map(len, server.chunks)) == SOCKET_BYTES + 1_001

    run(scenario())


def test_an_abort_loses_what_the_full_socket_held_back() -> None:
    async def scenario() -> None:
        client, server = await pair()
        server.transport.pause_reading()
        client.transport.write(bytes(SOCKET_BYTES + 500))
        client.transport.abort()
        server.transport.resume_reading()
        await asyncio.sleep(1)
        assert sum(map(len, server.chunks)) == SOCKET_BYTES
        assert (client.events, server.events) == (["lost"], ["eof", "lost"])

    run(scenario())


def test_a_port_is_taken_once_and_free_again_after_the_close() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Recorder, "127.0.0.1", 9876)
        with pytest.raises(OSError, match="in use"):
            await loop.create_server(Recorder, "127.0.0.1", 9876)
        server.close()
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Recorder, "127.0.0.1", 9876)
        await loop.create_server(Recorder, "127.0.0.1", 9876)

    run(scenario())
