"""Frames of two parts: many of an iteration leave together, on uvloop without being joined."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.net import connection as of_connection
from cometmq.net.connection import JOINED_BYTES_MAX
from cometmq.net.handler import TwoPartFrame
from cometmq.net.tls_contexts import TlsContexts
from cometmq.settings.net import NetSettings
from cometmq.wire.command import Command, request, response
from net.serving import BOUND_S, serving
from net.tls_serving import connect, settings

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from cometmq.net.connection import Connection

uvloop = pytest.importorskip("uvloop")
SIZED = 1
SIZES = [0, 1, 7_000, 200, 64_000, 300_000, 9_000, 1_200]


@pytest.fixture(params=["uvloop", "asyncio"])
def loops(request: pytest.FixtureRequest) -> Any:
    return uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop


def run_on(loops: Any, scenario: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(asyncio.wait_for(scenario, BOUND_S))


def sized(command: Command, _connection: Connection) -> TwoPartFrame:
    """A body of as many bytes as the request says, each that of its opaque."""
    body = bytes([command.opaque % 251]) * int(command.body)
    frame = Command.encode(response(command.opaque, 0, body=body))
    cut = len(frame) - len(body)
    return TwoPartFrame(frame[:cut], body)


class Watched:
    """A transport that notes each call that writes, and the sizes of what it is given."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.calls: list[tuple[str, list[int]]] = []

    def write(self, data: bytes) -> None:
        self.calls.append(("write", [len(data)]))
        self._transport.write(data)

    def writelines(self, pieces: list[bytes]) -> None:
        self.calls.append(("writelines", list(map(len, pieces))))
        self._transport.writelines(pieces)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


@pytest.mark.parametrize("is_plain", [True, False])
def test_uvloop_gets_the_pieces_as_they_are_and_others_get_blocks(
    loops: Any, *, is_plain: bool
) -> None:
    async def scenario() -> None:
        tls = None if is_plain else TlsContexts(settings())
        async with serving({SIZED: sized}, tls=tls) as served:
            raw = await (served.connect() if is_plain else connect(served))
            await raw.call(SIZED, body=b"1")
            (connection,) = served.connections
            watched = Watched(connection._transport)
            connection._transport = watched  # type: ignore[assignment]
            asked = [request(SIZED, opaque, body=b"7000") for opaque in range(60)]
            frames = [sized(each, connection) for each in asked]
            for frame in frames:
                connection.send_parts(*frame)
            for frame in frames:
                assert (await raw.next()).body == frame.body
            pieces = [len(piece) for frame in frames for piece in frame]
            if loops is uvloop.new_event_loop and is_plain:
                assert watched.calls == [("writelines", pieces)]
            else:
                assert [name for name, _ in watched.calls] == ["write"] * 3
                sizes = [size for _, (size,) in watched.calls]
                assert max(sizes) <= JOINED_BYTES_MAX
                assert sum(sizes) == sum(pieces) > 2 * JOINED_BYTES_MAX

    run_on(loops, scenario())


@pytest.mark.parametrize(
    ("sizes", "blocks"),
    [
        ([], []),
        ([0, 0], [0]),
        ([40, 60], [100]),
        ([40, 60, 1, 99, 1], [100, 100, 1]),
        ([5, 101, 5, 5, 300, 300], [5, 101, 10, 300, 300]),
        ([101], [101]),
    ],
)
def test_pieces_are_joined_to_blocks_and_a_larger_one_is_written_by_itself(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int], blocks: list[int]
) -> None:
    monkeypatch.setattr(of_connection, "JOINED_BYTES_MAX", 100)
    pieces = [bytes([65 + at]) * size for at, size in enumerate(sizes)]
    found = list(of_connection.joined(pieces))
    assert list(map(len, found)) == blocks
    assert b"".join(found) == b"".join(pieces)


@pytest.mark.parametrize("count", [1, 2, 200])
def test_answers_of_many_sizes_come_whole_and_in_order(loops: Any, count: int) -> None:
    async def scenario() -> None:
        async with serving({SIZED: sized}) as served:
            raw = await served.connect()
            sizes = [SIZES[n % len(SIZES)] for n in range(count)]
            raw.send(*[request(SIZED, n, body=b"%d" % size) for n, size in enumerate(sizes)])
            for opaque, size in enumerate(sizes):
                answer = await raw.next()
                assert answer.opaque == opaque
                assert answer.body == bytes([opaque % 251]) * size

    run_on(loops, scenario())


def test_a_client_that_never_reads_is_cut(loops: Any) -> None:
    net = NetSettings(write_buffer_bytes_max=16 * 1024, unsent_bytes_max=1024 * 1024)

    async def scenario() -> None:
        async with serving({SIZED: sized}, net=net) as served:
            raw = await served.connect()
            await raw.call(SIZED, body=b"1")
            raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
            (connection,) = served.connections
            for _ in range(20_000):
                if connection.is_closed:
                    break
                for _ in range(4):
                    connection.send_parts(b"head", bytes(16 * 1024))
                await asyncio.sleep(0)
            assert connection.is_closed

    run_on(loops, scenario())
