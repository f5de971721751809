"""The listening socket under friendly, slow and hostile clients."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.errors import RemotingTimeout, SendFailed, SettingsError, TooManyRequests
from cometmq.net.dispatcher import RequestDispatcher
from cometmq.net.endpoint import Endpoint
from cometmq.net.handler import HELD, Reply
from cometmq.net.rate_limited_log import WARNINGS_MAX
from cometmq.net.server import RemotingServer
from cometmq.settings.net import NetSettings
from cometmq.wire.command import Command, request, response
from cometmq.wire.frame import HEADER_BYTES_MAX
from net.serving import run, serving, until

if TYPE_CHECKING:
    from cometmq.net.connection import Connection

ECHO, BIG, HOLD = 1, 2, 3
GARBAGE = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"\xff" * 64,
    b"\x00\x00\x00\x04\x00\x00\xff\xff",
    b"\x00\x00\x00\x06\x00\x00\x00\x02{]",
    b"\x00\x00\x00\x06\x07\x00\x00\x02{}",
]


def echo(command: Command, _connection: Connection) -> Reply:
    return Reply(body=command.body)


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_malformed_frame_ends_its_connection_and_no_other(garbage: bytes) -> None:
    async def scenario() -> None:
        async with serving({ECHO: echo}) as served:
            good, bad = await served.connect(), await served.connect()
            bad.ask(ECHO, 5, b"before")
            bad.writer.write(garbage)
            assert (await bad.next()).body == b"before"
            assert await bad.end() == b""
            assert (await good.call(ECHO, body=b"alive")).body == b"alive"
            await until(lambda: len(served.server.protocols) == 1)

    run(scenario())


def test_responses_to_a_closed_connection_are_dropped_without_a_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def long(_command: Command, _connection: Connection) -> Reply:
        return Reply(body=bytes(10_000))

    async def scenario() -> None:
        async with serving({BIG: long}) as served:
            with socket.create_connection(("127.0.0.1", served.port)) as link:
                link.sendall(request(BIG, 1).encode() * 200)
            await until(lambda: served.connections and not served.server.protocols)

    run(scenario())
    assert caplog.messages == []


def test_frames_behind_a_malformed_one_are_not_looked_at() -> None:
    seen: list[int] = []

    def note(command: Command, _connection: Connection) -> Reply:
        seen.append(command.opaque)
        return Reply()

    async def scenario() -> None:
        async with serving({ECHO: note}) as served:
            raw = await served.connect()
            frames = [request(ECHO, 1).encode(), GARBAGE[4], request(ECHO, 2).encode()]
            raw.writer.write(b"".join(frames))
            assert (await raw.next()).opaque == 1
            assert await raw.end() == b""
        assert seen == [1]

    run(scenario())


@settings(max_examples=25)
@given(st.lists(st.integers(1, 200), max_size=8), st.binary(max_size=300))
def test_however_the_stream_is_cut_the_answers_are_the_same(cuts: list[int], body: bytes) -> None:
    stream = b"".join(request(ECHO, opaque, body=body).encode() for opaque in (1, 2, 3))

    async def scenario() -> None:
        async with serving({ECHO: echo}) as served:
            raw = await served.connect()
            at = 0
            for cut in [*cuts, len(stream)]:
                raw.writer.write(stream[at : at + cut])
                at += cut
                await asyncio.sleep(0)
            got = [await raw.next() for _ in range(3)]
            assert [(one.opaque, one.body) for one in got] == [(i, body) for i in (1, 2, 3)]

    run(scenario())


def test_a_frame_above_the_bound_ends_the_connection_before_it_is_read() -> None:
    async def scenario() -> None:
        async with serving({ECHO: echo}, net=NetSettings(frame_bytes_max=2048)) as served:
            raw = await served.connect()
            assert len((await raw.call(ECHO, body=bytes(1500))).body) == 1500
            raw.writer.write(request(ECHO, 2, body=bytes(4000)).encode()[:64])
            assert await raw.end() == b""

    run(scenario())


def test_a_client_that_does_not_read_its_responses_is_not_read_from() -> None:
    net = NetSettings(write_buffer_bytes_max=64 * 1024)
    handled = 0

    def big(_command: Command, _connection: Connection) -> Reply:
        nonlocal handled
        handled += 1
        return Reply(body=bytes(256 * 1024))

    async def scenario() -> None:
        async with serving({BIG: big, ECHO: echo}, net=net) as served:
            slow, quick = await served.connect(), await served.connect()
            slow.writer.transport.pause_reading()
            small = [request(BIG, opaque) for opaque in range(200)]
            large = [request(BIG, opaque, body=bytes(64 * 1024)) for opaque in range(200, 600)]
            slow.send(*small)  # one write, so one chunk: its frames wait in hand
            slow.send(*large)  # these wait in the socket and at the sender
            await until(lambda: served.connections and served.connections[0].is_blocked)
            at_rest = -1
            while at_rest != handled:
                at_rest = handled
                assert (await quick.call(ECHO, body=b"x")).body == b"x"
                await asyncio.sleep(0.02)
            assert handled < len(small), "frames in hand went on although nobody reads answers"
            unsent = slow.writer.transport.get_write_buffer_size()
            assert unsent > 10 * 1024 * 1024, "the server goes on reading"
            slow.writer.transport.resume_reading()
            got = [(await slow.next()).opaque for _ in range(600)]
            assert got == list(range(600))

    run(scenario())


def test_a_client_that_never_reads_is_disconnected_above_the_bound_of_unread_responses() -> None:
    net = NetSettings(write_buffer_bytes_max=16 * 1024, unsent_bytes_max=1024 * 1024)

    async def scenario() -> None:
        async with serving({HOLD: echo}, net=net) as served:
            raw = await served.connect()
            await raw.call(HOLD)
            raw.writer.transport.pause_reading()
            (connection,) = served.connections
            for _ in range(100_000):
                if connection.is_closed:
                    break
                connection.oneway(request(40, 0, body=bytes(64 * 1024), oneway=True))
                await asyncio.sleep(0)
            assert connection.is_closed

    run(scenario())


def test_unread_answers_are_bounded_over_all_connections() -> None:
    net = NetSettings(write_buffer_bytes_max=16 * 1024, unsent_total_bytes_max=4 * 1024 * 1024)

    async def scenario() -> None:
        async with serving({ECHO: echo}, net=net) as served:
            deaf = [await served.connect() for _ in range(4)]
            for raw in deaf:
                await raw.call(ECHO)
                raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for turn in range(4_000):
                served.connections[turn % 4].oneway(request(40, 0, body=bytes(16_384), oneway=True))
                await asyncio.sleep(0)
                if any(connection.is_closed for connection in served.connections):
                    break
            assert 0 < sum(connection.is_closed for connection in served.connections) < 4
            good = await served.connect()
            assert (await good.call(ECHO, body=b"alive")).body == b"alive"

    run(scenario())


def test_a_header_above_the_bound_ends_the_connection_before_it_is_read() -> None:
    async def scenario() -> None:
        async with serving({ECHO: echo}) as served:
            raw = await served.connect()
            length = HEADER_BYTES_MAX + 1
            raw.writer.write((length + 4).to_bytes(4, "big") + length.to_bytes(4, "big"))
            assert await raw.end() == b""

    run(scenario())


def test_log_lines_that_malformed_clients_cause_are_bounded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with serving({ECHO: echo}) as served:
            for _ in range(3 * WARNINGS_MAX):
                raw = await served.connect()
                raw.writer.write(b"\xff" * 16)
                assert await raw.end() == b""
                await raw.close()

    with caplog.at_level(logging.WARNING, "cometmq.net"):
        run(scenario())
    assert len(caplog.records) == WARNINGS_MAX


def test_frames_of_a_long_chunk_are_all_answered_and_others_come_in_between() -> None:
    seen: list[bytes] = []

    def note(command: Command, _connection: Connection) -> Reply:
        seen.append(command.body)
        return Reply(body=command.body)

    async def scenario() -> None:
        async with serving({ECHO: note}) as served:
            many, one = await served.connect(), await served.connect()
            await one.call(ECHO)
            frames = [request(ECHO, opaque, body=b"%d" % opaque) for opaque in range(1_000)]
            many.writer.write(b"".join(frame.encode() for frame in frames))
            one.ask(ECHO, 1, b"between")
            assert (await one.next()).body == b"between"
            for opaque in range(1_000):
                assert (await many.next()).opaque == opaque
            assert (await many.call(ECHO, 5_000)).opaque == 5_000
            assert seen.index(b"between") < seen.index(b"999")

    run(scenario())


def test_silent_connections_are_closed_and_talking_ones_are_not() -> None:
    async def scenario() -> None:
        async with serving({ECHO: echo}, net=NetSettings(idle_s=0.3)) as served:
            silent, talking = await served.connect(), await served.connect()
            ended = asyncio.ensure_future(silent.end())
            while not ended.done():
                assert (await talking.call(ECHO, body=b"x")).body == b"x"
                await asyncio.sleep(0.02)
            assert (await talking.call(ECHO, body=b"y")).body == b"y"

    run(scenario())


def test_one_connection_too_many_is_refused_and_the_others_stay() -> None:
    async def scenario() -> None:
        async with serving({ECHO: echo}, net=NetSettings(connections_max=2)) as served:
            raws = [await served.connect() for _ in range(2)]
            await raws[0].call(ECHO)
            await raws[1].call(ECHO)
            third = await served.connect()
            assert await third.end() == b""
            assert (await raws[0].call(ECHO, body=b"x")).body == b"x"

    run(scenario())


def test_a_port_in_use_is_a_one_sentence_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=rf"127\.0\.0\.1:{port} is in use: stop"):
            run(_start("127.0.0.1", port))


def test_an_address_of_another_host_is_a_one_sentence_error() -> None:
    with pytest.raises(SettingsError, match=r"cannot listen on 192\.0\.2\.1:0"):
        run(_start("192.0.2.1", 0))


async def _start(host: str, port: int) -> None:
    await RemotingServer(RequestDispatcher([]), NetSettings()).start(host, port)


def test_the_server_may_send_requests_over_a_clients_connection() -> None:
    async def scenario() -> None:
        async with serving({ECHO: echo}) as served:
            raw = await served.connect()
            await raw.call(ECHO, opaque=1)
            (connection,) = served.connections
            asked = [connection.request(request(220, 0), 5), connection.request(request(221, 0), 5)]
            first, second = await raw.next(), await raw.next()
            assert (first.code, second.code) == (220, 221)
            assert 0 not in {first.opaque, second.opaque}
            assert first.opaque != second.opaque
            raw.send(response(second.opaque, 7), response(first.opaque, 6), response(999, 1))
            assert [answer.code for answer in await asyncio.gather(*asked)] == [6, 7]

    run(scenario())


def test_requests_of_the_server_fail_in_time_at_the_close_and_above_the_bound() -> None:
    async def scenario() -> None:
        async with serving({ECHO: echo}, net=NetSettings(calls_max=1)) as served:
            raw = await served.connect()
            await raw.call(ECHO)
            (connection,) = served.connections
            slow = connection.request(request(220, 0), 0.05)
            with pytest.raises(TooManyRequests):
                await connection.request(request(220, 0), 5)
            with pytest.raises(RemotingTimeout):
                await slow
            pending = connection.request(request(220, 0), 5)
            await raw.close()
            with pytest.raises(SendFailed):
                await pending
            with pytest.raises(SendFailed):
                await connection.request(request(220, 0), 5)

    run(scenario())


def test_each_close_callback_is_called_once_even_a_late_one() -> None:
    closed: list[Any] = []

    async def scenario() -> None:
        async with serving({ECHO: echo}) as served:
            raw = await served.connect()
            await raw.call(ECHO)
            (connection,) = served.connections
            connection.on_close(closed.append)
            await raw.close()
            await until(lambda: closed)
            connection.on_close(closed.append)
            await until(lambda: len(closed) == 2)
            connection.send(b"nobody hears this")
            connection.oneway(request(40, 0, oneway=True))
            connection.close()
        assert closed == [connection, connection]

    run(scenario())


def test_a_connection_knows_its_remote_address() -> None:
    async def scenario() -> None:
        async with serving({ECHO: echo}) as served:
            raw = await served.connect()
            await raw.call(ECHO)
            (connection,) = served.connections
            port = raw.writer.get_extra_info("sockname")[1]
            assert connection.addr == f"127.0.0.1:{port}"
            assert connection.host == bytes([127, 0, 0, 1]) + port.to_bytes(4, "big")
            assert (connection.language, connection.version) == (3, 479)

    run(scenario())


def test_a_connection_from_an_ipv6_address_has_twenty_bytes_of_host() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")

    async def scenario() -> None:
        seen: list[Connection] = []
        dispatcher = RequestDispatcher(
            [Endpoint(ECHO, lambda _c, connection: seen.append(connection) or Reply())]  # type: ignore[func-returns-value]
        )
        server = RemotingServer(dispatcher, NetSettings())
        try:
            port = await server.start("::1", 0)
        except SettingsError:
            pytest.skip("no IPv6 here")
        reader, writer = await asyncio.open_connection("::1", port)
        writer.write(request(ECHO, 1).encode())
        await reader.read(1)
        own_port = writer.get_extra_info("sockname")[1]
        assert seen[0].addr == f"[::1]:{own_port}"
        assert seen[0].host == bytes(15) + b"\1" + own_port.to_bytes(4, "big")
        writer.close()
        await writer.wait_closed()
        await server.stop()

    run(scenario())


def test_a_stop_closes_all_connections_after_their_responses_are_written() -> None:
    async def scenario() -> None:
        server = RemotingServer(
            RequestDispatcher([Endpoint(BIG, _big), Endpoint(HOLD, lambda _c, _p: HELD)]),
            NetSettings(),
        )
        port = await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(BIG, 1).encode() + request(HOLD, 2).encode())
        await until(lambda: server.in_flight == 1)
        reading = asyncio.ensure_future(reader.read())
        await server.stop()
        assert len(await reading) > 1 << 20
        writer.close()
        await writer.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        await server.stop()

    run(scenario())


def test_a_stop_closes_connections_that_were_just_accepted() -> None:
    async def scenario() -> None:
        for iterations in range(6):
            server = RemotingServer(RequestDispatcher([]), NetSettings())
            port = await server.start("127.0.0.1", 0)
            clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
            for _ in range(iterations):
                await asyncio.sleep(0)
            await server.stop()
            for client in clients:
                client.settimeout(5)
                with suppress(ConnectionResetError):  # it had not been accepted
                    assert client.recv(1) == b"", "closed, not forgotten"
                client.close()

    run(scenario())


def _big(_command: Command, _connection: Connection) -> Reply:
    return Reply(body=bytes(1 << 20))
