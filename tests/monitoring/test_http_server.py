"""The HTTP server of monitoring over real sockets: what it answers, and what it bears."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from broker.sockets import run
from cometmq.errors import SettingsError
from cometmq.monitoring import http_server
from cometmq.monitoring.http_server import HttpRequest, HttpResponse, HttpServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def hello(request: HttpRequest) -> HttpResponse:
    return HttpResponse(200, "text/plain", f"hello {request.accept}".encode())


async def broken(_request: HttpRequest) -> HttpResponse:
    raise RuntimeError("the disk has gone")


async def asked(port: int, data: bytes) -> bytes:
    """All that is answered to these bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        return await reader.read()
    finally:
        writer.close()


def serving(scenario: Callable[[int], Awaitable[None]]) -> None:
    async def whole() -> None:
        server = HttpServer({"/hello": hello, "/broken": broken})
        port = await server.start("127.0.0.1", 0)
        try:
            await scenario(port)
        finally:
            await server.stop()
            await server.stop()

    run(whole())


def test_a_request_is_answered_whatever_its_headers_and_query() -> None:
    async def scenario(port: int) -> None:
        got = await asked(port, b"GET /hello?x=1 HTTP/1.1\r\nHost: h\r\nACCEPT: text/plain\r\n\r\n")
        head, _, body = got.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Content-Length: 16" in head
        assert body == b"hello text/plain"
        head, _, body = (await asked(port, b"HEAD /hello HTTP/1.0\r\n\r\n")).partition(b"\r\n\r\n")
        assert b"Content-Length: 6" in head
        assert body == b""

    serving(scenario)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST /hello HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /other HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /hello\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", b"400"),
        (b"GET hello HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /hello HTTP/1.1\r\nno colon\r\n\r\n", b"400"),
        (b"GET /" + b"x" * http_server.HEAD_BYTES_MAX + b" HTTP/1.1\r\n\r\n", b"431"),
    ],
)
def test_a_request_that_is_none_gets_its_status_and_others_are_served(
    sent: bytes, status: bytes
) -> None:
    async def scenario(port: int) -> None:
        assert (await asked(port, sent)).split(b" ")[1] == status
        assert b" 200 " in await asked(port, b"GET /hello HTTP/1.1\r\n\r\n")

    serving(scenario)


def test_an_answer_that_cannot_be_made_is_an_error_of_its_own_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(port: int) -> None:
        got = await asked(port, b"GET /broken HTTP/1.1\r\n\r\n")
        assert got.split(b" ")[1] == b"500"
        assert b"disk" not in got
        assert b" 200 " in await asked(port, b"GET /hello HTTP/1.1\r\n\r\n")

    serving(scenario)
    assert "the disk has gone" in caplog.text


def test_connections_to_monitoring_are_bounded_and_slow_ones_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", 3)

    async def scenario(port: int) -> None:
        slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for _, writer in slow:
            writer.write(b"GET /hel")
        while True:  # the server accepts them in its own time
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /hello HTTP/1.1\r\n\r\n")
            try:
                if await reader.read() == b"":
                    break
            except ConnectionError:
                break
            finally:
                writer.close()
        monkeypatch.setattr(http_server, "REQUEST_S", 0.01)
        slow[0][1].write(b"lo HTTP/1.1\r\n\r\n")
        assert b" 200 " in await slow[0][0].read()
        for _, writer in slow:
            writer.close()

    serving(scenario)


def test_a_request_that_is_never_whole_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REQUEST_S", 0.05)

    async def scenario(port: int) -> None:
        with suppress(ConnectionError):  # cut, which is as good
            assert await asked(port, b"GET /hello HTTP/1.1\r\n") == b""

    serving(scenario)


def test_stopping_ends_connections_that_are_open() -> None:
    async def scenario() -> None:
        server = HttpServer({"/hello": hello})
        port = await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /")
        await asyncio.sleep(0.01)
        await server.stop()
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()

    run(scenario())


def test_a_port_that_is_taken_is_one_sentence() -> None:
    async def scenario(port: int) -> None:
        with pytest.raises(SettingsError, match=rf":{port} .*in use.*PromExporterPort"):
            await HttpServer({}).start("127.0.0.1", port)
        with pytest.raises(SettingsError, match=r"cannot listen on 192\.0\.2\.1:5557"):
            await HttpServer({}).start("192.0.2.1", 5557)

    serving(scenario)
