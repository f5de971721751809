"""TLS and plain connections at one port, by their first byte; on real sockets and in memory."""

from __future__ import annotations

import asyncio
import logging
import ssl
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import settings as tried
from hypothesis import strategies as st

from cometmq.net import tls_layer
from cometmq.net.handler import Reply
from cometmq.net.iteration_budget import IterationBudget
from cometmq.net.rate_limited_log import RateLimitedLog
from cometmq.net.tls_contexts import TlsContexts
from cometmq.net.tls_layer import HANDSHAKE, TlsLayer
from cometmq.settings.net import NetSettings
from cometmq.settings.tls import ENFORCING, PERMISSIVE, TlsSettings
from net.certificates import certificates
from net.serving import Served, run, serving, until
from net.tls_serving import connect, settings

if TYPE_CHECKING:
    from cometmq.net.connection import Connection
    from cometmq.wire.command import Command

ECHO, BIG = 11, 12
BIG_BYTES = 2 * 1024 * 1024 + 7
HELLO = bytes([HANDSHAKE, 3, 1])


def echo(command: Command, _connection: Connection) -> Reply:
    return Reply(body=command.body)


def big(_command: Command, _connection: Connection) -> Reply:
    return Reply(body=bytes(BIG_BYTES))


def guarded(clients: str) -> TlsSettings:
    """A server that asks clients for certificates of our authority."""
    trusted = str(certificates().ours.cert)
    return settings(
        server_need_client_auth=clients, server_auth_client=True, server_trust_cert_path=trusted
    )


def tls_serving(given: TlsSettings | None = None, **more: Any) -> Any:
    return serving({ECHO: echo, BIG: big}, tls=TlsContexts(given or settings()), **more)


def test_tls_and_plain_connections_are_answered_at_one_port() -> None:
    async def scenario() -> None:
        async with tls_serving() as served:
            raws = [await connect(served), await served.connect(), await connect(served)]
            answers = await asyncio.gather(*(raw.call(ECHO, body=b"x" * 70_000) for raw in raws))
            assert [answer.body for answer in answers] == [b"x" * 70_000] * 3
            assert len(served.server.protocols) == 3

    run(scenario())


def test_a_server_that_enforces_tls_answers_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with tls_serving(settings(ENFORCING)) as served:
            plain = await served.connect()
            plain.ask(ECHO, 1)
            assert await plain.end() == b""
            assert (await (await connect(served)).call(ECHO, body=b"y")).body == b"y"

    run(scenario())
    assert "tls.server.mode=enforcing" in caplog.text


def test_a_server_without_a_certificate_says_why_a_handshake_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with tls_serving(TlsSettings()) as served:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await connect(served)
            assert (await (await served.connect()).call(ECHO, body=b"y")).body == b"y"

    run(scenario())
    assert "it is a TLS handshake, and TLS is not on here" in caplog.text


@pytest.mark.parametrize("size", [1, 16_000, 16_385, 70_000, 9_000_001])
def test_bodies_of_any_size_go_both_ways(size: int) -> None:
    async def scenario() -> None:
        async with tls_serving() as served:
            body = bytes(range(256)) * (size // 256 + 1)
            assert (await (await connect(served)).call(ECHO, body=body[:size])).body == body[:size]

    run(scenario())


@pytest.mark.parametrize(
    ("asked", "shown", "is_served"),
    [
        ("require", "client", True),
        ("require", "stranger", False),
        ("require", None, False),
        ("optional", "client", True),
        ("optional", "stranger", False),
        ("optional", None, True),
        ("none", "stranger", True),
    ],
)
def test_certificates_of_clients_are_checked(
    asked: str, shown: str | None, is_served: bool
) -> None:
    async def scenario() -> None:
        found = certificates()
        pair = getattr(found, shown) if shown else (None, None)
        async with tls_serving(guarded(asked) if asked != "none" else settings()) as served:
            try:
                raw = await connect(served, found.ours.client(*pair))
                answer: bytes | None = (await raw.call(ECHO, body=b"y")).body
            except (ssl.SSLError, ConnectionError, AssertionError):
                answer = None
            assert (answer == b"y") == is_served
            await until(lambda: len(served.server.protocols) == is_served)

    run(scenario())


def test_versions_of_tls_before_1_2_are_refused() -> None:
    async def scenario() -> None:
        async with tls_serving() as served:
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                now = certificates().ours.client()
                now.minimum_version = now.maximum_version = version
                assert (await (await connect(served, now)).call(ECHO)).code == 0
            old = certificates().ours.client()
            old.set_ciphers("ALL:@SECLEVEL=0")
            with pytest.warns(DeprecationWarning, match="TLSv1_1"):
                old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await connect(served, old)

    run(scenario())


@pytest.mark.parametrize(
    "said",
    [b"", HELLO, HELLO + bytes(500), HELLO + b"\xff" * 70_000, b"\x00", b"GET / HTTP"],
    ids=lambda said: f"{said[:8]!r}{len(said)}",
)
def test_who_says_nothing_or_half_a_handshake_is_counted_and_ends(said: bytes) -> None:
    async def scenario() -> None:
        async with tls_serving(net=NetSettings(idle_s=0.2, connections_max=1)) as served:
            raw = await served.connect()
            raw.writer.write(said)
            await until(lambda: served.server.protocols)
            late = await served.connect()
            assert await late.end() == b""  # it is one connection too many, TLS or not
            await raw.end()
            await until(lambda: not served.server.protocols)
            assert (await (await connect(served)).call(ECHO)).code == 0

    run(scenario())


def test_a_handshake_has_a_bound_of_time_that_bytes_do_not_move(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tls_layer, "HANDSHAKE_S", 0.1)

    async def scenario() -> None:
        async with tls_serving() as served:
            kept = await connect(served)
            raw = await served.connect()
            raw.writer.write(HELLO)
            reading = asyncio.ensure_future(raw.end())
            while not reading.done():
                raw.writer.write(b"\x02")  # a record of 514 bytes, one after the other
                await asyncio.sleep(0.01)
            assert (await kept.call(ECHO)).code == 0

    run(scenario())
    assert "its TLS handshake takes longer than 0.1 s" in caplog.text


def test_a_client_that_does_not_read_is_not_read_from_and_bounded() -> None:
    async def scenario() -> None:
        net = NetSettings(write_buffer_bytes_max=1 << 20, unsent_bytes_max=64 << 20)
        async with tls_serving(net=net) as served:
            raw = await connect(served)
            raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for opaque in range(12):
                raw.ask(BIG, opaque)
            (protocol,) = served.server.protocols
            await until(lambda: protocol.connection.is_blocked)
            bound = net.write_buffer_bytes_max + 2 * BIG_BYTES
            assert protocol._transport.get_write_buffer_size() < bound
            for opaque in range(12, 24):
                raw.ask(BIG, opaque)
            for _ in range(50):
                await asyncio.sleep(0)
            assert protocol._transport.get_write_buffer_size() < bound
            raw.writer.transport.resume_reading()  # type: ignore[attr-defined]
            assert [(await raw.next()).opaque for _ in range(24)] == list(range(24))

    run(scenario())


def test_a_stopping_server_ends_tls_connections() -> None:
    async def scenario() -> None:
        async with tls_serving() as served:
            raw = await connect(served)
            assert (await raw.call(ECHO)).code == 0
        assert await raw.end() == b""

    run(scenario())


def test_a_client_that_ends_its_tls_is_gone_and_seen_as_having_left() -> None:
    async def scenario() -> None:
        async with tls_serving() as served:
            raw = await connect(served)
            assert (await raw.call(ECHO)).code == 0
            (connection,) = served.connections
            await raw.close()
            await until(lambda: connection.is_closed)
            assert connection.is_ended_by_client

    run(scenario())


def test_half_a_handshake_costs_no_more_than_an_unfinished_frame() -> None:
    """Counted in bytes that the process has gained, over many of them."""

    async def scenario() -> None:
        async with tls_serving() as served:
            hello = _client_hello()
            await _open_half(served, hello, 20)
            before = _resident()
            await _open_half(served, hello, 200)
            gained = (_resident() - before) / 200
            assert gained < 64 * 1024, gained

    run(scenario())


async def _open_half(served: Served, hello: bytes, count: int) -> None:
    for _ in range(count):
        raw = await served.connect()
        raw.writer.write(hello)
        assert await raw.reader.read(1)  # the server has answered, and waits for the client


@cache
def _client() -> ssl.SSLContext:
    return certificates().ours.client()


def _client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = _client().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class MemorySocket:
    """The transport of a socket, in memory."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.closed = ""
        self.protocol: Any = None

    def write(self, data: bytes) -> None:
        self.written += data

    def take(self) -> bytes:
        taken = bytes(self.written)
        self.written.clear()
        return taken

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def is_closing(self) -> bool:
        return bool(self.closed)

    def abort(self) -> None:
        self.closed = self.closed or "aborted"

    def close(self) -> None:
        self.closed = self.closed or "closed"

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default


class Inner(asyncio.Protocol):
    """The protocol within, which notes what it is given."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.transport: Any = None
        self.is_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def use_transport(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.chunks.append(data)

    def eof_received(self) -> None:
        self.is_ended = True


_contexts = cache(TlsContexts)


def in_memory(
    given: TlsSettings, budget: IterationBudget | None = None
) -> tuple[TlsLayer, Inner, MemorySocket]:
    sock, inner = MemorySocket(), Inner()
    if budget is None:
        budget = IterationBudget(asyncio.get_running_loop().call_soon, lambda: 0.0)
        budget.until = 1.0
    warnings = RateLimitedLog(logging.getLogger("test"))
    layer = TlsLayer(inner, _contexts(given), budget, warnings)
    layer.connection_made(cast("asyncio.Transport", sock))
    return layer, inner, sock


def test_handshakes_share_the_iterations_of_the_loop_with_frames() -> None:
    """By a clock on which each look takes a quarter of a millisecond."""

    async def scenario() -> None:
        looks = iter(range(10_000))
        budget = IterationBudget(
            asyncio.get_running_loop().call_soon, lambda: next(looks) * 0.000_25
        )
        made = [in_memory(settings(), budget) for _ in range(30)]
        hello, turns = _client_hello(), 0
        for layer, _, _ in made:
            layer.data_received(hello)
        answered = [sum(bool(sock.written) for _, _, sock in made)]
        while answered[-1] < len(made):
            await asyncio.sleep(0)
            answered.append(sum(bool(sock.written) for _, _, sock in made))
            turns += 1
        assert answered[0] < 6
        assert turns > 4
        assert all(after - before < 8 for before, after in pairwise(answered))
        for layer, _, _ in made:
            layer.connection_lost(None)

    run(scenario())


@tried(max_examples=60)
@given(first=st.binary(min_size=1, max_size=2000), mode=st.sampled_from([PERMISSIVE, ENFORCING]))
def test_the_first_byte_alone_decides(first: bytes, mode: str) -> None:
    async def scenario() -> None:
        layer, inner, sock = in_memory(settings(mode))
        layer.data_received(first)
        if first[0] == HANDSHAKE:
            assert inner.chunks == []
            assert inner.transport is layer
        elif mode == ENFORCING:
            assert inner.chunks == []
            assert sock.closed == "aborted"
        else:
            assert inner.chunks == [first]
            assert inner.transport is sock
            assert sock.protocol is inner
        layer.connection_lost(None)

    run(scenario())


@tried(max_examples=40)
@given(
    texts=st.lists(st.binary(min_size=1, max_size=40_000), min_size=1, max_size=4),
    cuts=st.lists(st.integers(1, 30_000), max_size=8),
)
def test_the_same_bytes_come_out_however_the_stream_is_cut(
    texts: list[bytes], cuts: list[int]
) -> None:
    """And each chunk of the socket is one chunk of the connection at most."""

    async def scenario() -> None:
        layer, inner, sock = in_memory(settings())
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = _client().wrap_bio(incoming, outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        layer.data_received(outgoing.read())
        incoming.write(sock.take())
        tls.do_handshake()
        for text in texts:
            tls.write(text)
        stream = outgoing.read()
        chunks = 0
        for cut in (*cuts, len(stream)):
            if stream:
                layer.data_received(stream[:cut])
                stream = stream[cut:]
                chunks += 1
        assert b"".join(inner.chunks) == b"".join(texts)
        assert len(inner.chunks) <= chunks
        layer.write(b"".join(texts))
        incoming.write(sock.take())
        answer = b""
        while len(answer) < sum(map(len, texts)):
            answer += tls.read(1 << 20)
        assert answer == b"".join(texts)
        layer.connection_lost(None)

    run(scenario())
