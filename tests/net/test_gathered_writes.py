"""Frames of two parts: many of an iteration leave together, on uvloop without being joined."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.net.handler import TwoPartFrame
from cometmq.settings.net import NetSettings
from cometmq.wire.command import Command, request, response
from net.serving import BOUND_S, serving

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
