"""Frames that never end, connections of one address, and requests that wait: each has a bound."""

from __future__ import annotations

import asyncio
import tracemalloc
from random import Random
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from cometmq.net.handler import Reply
from cometmq.net.unfinished_frames import COUNTED_BYTES
from cometmq.settings.net import NetSettings
from cometmq.wire.codes import ResponseCode
from cometmq.wire.command import Command, request
from cometmq.wire.frame import FrameDecoder, encode_frame
from net.serving import Raw, Served, run, serving, until

if TYPE_CHECKING:
    import pytest

    from cometmq.net.connection import Connection

ECHO, WAIT = 1, 2
KIB, MIB = 1024, 1024 * 1024
BODY = 260 * KIB


def echo(command: Command, _connection: Connection) -> Reply:
    return Reply(body=command.body)


async def begin(served: Served, size: int, opaque: int = 1) -> tuple[Raw, bytes]:
    """A connection with so many bytes of a frame of 260 KiB; also, the rest of it."""
    raw = await served.connect()
    frame = request(ECHO, opaque, body=bytes(BODY)).encode()
    raw.writer.write(frame[:size])
    await raw.writer.drain()
    return raw, frame[size:]


def test_the_oldest_unfinished_frame_goes_when_all_hold_too_much(
    caplog: pytest.LogCaptureFixture,
) -> None:
    net = NetSettings(frame_bytes_max=300 * KIB, unfinished_frame_bytes_max=1_100 * KIB)

    async def scenario() -> None:
        async with serving({ECHO: echo}, net=net) as served:
            good = await served.connect()
            begun = []
            for at in range(30):
                begun.append(await begin(served, 200 * KIB))
                total = min(at + 1, 5) * 200 * KIB
                await until(lambda total=total: served.server.unfinished.total == total)  # type: ignore[misc]
                await until(lambda at=at: len(served.server.protocols) == min(at + 2, 6))  # type: ignore[misc]
                assert (await good.call(ECHO, body=b"alive")).body == b"alive"
            assert len(served.server.protocols) == 6  # the five last ones and the good one
            for raw, _ in begun[:-5]:
                assert await raw.end() == b""
            for raw, rest in begun[-5:]:
                raw.writer.write(rest)
                assert len((await raw.next()).body) == BODY
            assert served.server.unfinished.total == 0

    run(scenario())
    assert "closing the oldest of 127.0.0.1" in caplog.messages[0]
    assert len(caplog.messages) <= 21  # a rate, not one for each


def test_a_frame_that_hardly_grows_does_not_keep_its_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with serving({ECHO: echo}, net=NetSettings(idle_s=0.6)) as served:
            slow, _ = await begin(served, 100)
            busy = await served.connect()
            while not (
                slow.reader.at_eof() or slow.reader.exception()
            ):  # a reset, where it had more
                slow.writer.write(b"x")
                busy.ask(ECHO, 1)
                await asyncio.sleep(0.02)
            assert len(served.server.protocols) == 1

    run(scenario())
    assert "hardly more do" in caplog.text


def test_a_frame_may_take_its_time_while_it_grows() -> None:
    async def scenario() -> None:
        async with serving({ECHO: echo}, net=NetSettings(idle_s=0.3)) as served:
            raw, rest = await begin(served, 10)
            for at in range(0, len(rest), COUNTED_BYTES):
                raw.writer.write(rest[at : at + COUNTED_BYTES])
                await asyncio.sleep(0.04)
            assert len((await raw.next()).body) == BODY

    run(scenario())


def test_a_frame_may_take_all_of_half_the_idle_time_to_grow_by_what_it_must() -> None:
    async def scenario() -> None:
        async with serving({ECHO: echo}, net=NetSettings(idle_s=3600)) as served:
            raw, rest = await begin(served, 10)
            (protocol,) = served.server.protocols
            for at in range(0, len(rest), 30 * KIB):  # three of these are more than 64 KiB
                raw.writer.write(rest[at : at + 30 * KIB])
                have = 10 + at + 30 * KIB
                if have < 10 + len(rest):
                    await until(lambda have=have: protocol._decoder.have == have)  # type: ignore[misc]
                    protocol.sweep(6)
            assert len((await raw.next()).body) == BODY

    run(scenario())


def test_one_address_has_no_more_connections_than_its_share() -> None:
    net = NetSettings(connections_per_address_max=3)

    async def scenario() -> None:
        async with serving({ECHO: echo}, net=net) as served:
            kept = [await served.connect() for _ in range(3)]
            for each in kept:
                await each.call(ECHO)
            refused = await served.connect()
            assert await refused.end() == b""
            await kept[0].close()
            await until(lambda: len(served.server.protocols) == 2)
            again = await served.connect()
            assert (await again.call(ECHO)).code == 0

    run(scenario())


def test_requests_that_wait_hold_no_more_bytes_than_allowed() -> None:
    gate = asyncio.Event()

    async def wait(_command: Command, _connection: Connection) -> Reply:
        await gate.wait()
        return Reply()

    net = NetSettings(in_flight_bytes_max=400 * KIB)

    async def scenario() -> None:
        async with serving({WAIT: wait}, net=net, unthrottled=[WAIT]) as served:
            raws = [await served.connect() for _ in range(5)]
            for opaque, raw in enumerate(raws):
                raw.ask(WAIT, opaque, bytes(95 * KIB))
                raw.ask(WAIT, 10 + opaque, bytes(95 * KIB))
            busy = [await raw.next() for raw in raws]
            assert {each.code for each in busy} == {ResponseCode.SYSTEM_BUSY}
            assert [each.opaque for each in busy[:4]] == [10, 11, 12, 13]
            gate.set()
            assert [(await raw.next()).code for raw in raws[:4]] == [0] * 4
            assert (await raws[0].call(WAIT, 99, bytes(95 * KIB))).code == 0

    run(scenario())


@given(st.integers(0, 2**32), st.integers(0, 3))
def test_a_frame_in_bits_comes_whole_and_costs_little_more_than_its_bytes(
    seed: int, extra: int
) -> None:
    random = Random(seed)
    frame = encode_frame(b"{}", random.randbytes(5_000)) * 2 + bytes(extra)
    decoder, at, found = FrameDecoder(), 0, []
    while at < len(frame):
        step = random.choice((1, 1, 2, 3, 700))
        found += decoder.feed(frame[at : at + step])
        at += step
    assert [each.body for each in found] == [found[0].body] * 2
    assert decoder.wanted == (8 if extra else 0)


def test_trickled_bytes_cost_no_list_of_objects() -> None:
    decoder, size = FrameDecoder(), 200 * KIB
    pieces = [bytes(2) for _ in range(size // 2)]
    decoder.feed(encode_frame(b"{}", bytes(MIB))[:8])
    tracemalloc.start()
    for _ in pieces:
        decoder.feed(b"%c%c" % (7, 8))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert decoder.have == size + 8
    assert used < size * 1.3
