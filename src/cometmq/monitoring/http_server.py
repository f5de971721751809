"""A small HTTP/1.1 server for monitoring: GET and HEAD of a few paths, one request a connection.

Owns the sockets and the bounds; refuses to know what is shown. Invariant: a request that is slow,
long or malformed ends its own connection and nothing else.
Java: OpenTelemetry's PrometheusHttpServer.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from cometmq.errors import SettingsError
from cometmq.net.address import join_address
from cometmq.net.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Mapping

    Answer = Callable[["HttpRequest"], Awaitable["HttpResponse"]]

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 32
"""Connections at once; further ones are closed at once."""
HEAD_BYTES_MAX = 16 * 1024
"""Longest request line with all headers."""
REQUEST_S = 10.0
"""How long a client may take to send its request, and to take the response once it is made."""
ANSWER_S = 60.0
"""How long making a response may take."""


class HttpRequest(NamedTuple):
    """What was asked for."""

    path: str
    accept: str


class HttpResponse(NamedTuple):
    """What is answered."""

    status: int
    content_type: str
    body: bytes


class MalformedRequestError(Exception):
    """The bytes are no HTTP request that this server takes; says which status to answer."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class HttpServer:
    """Answers requests for paths. Belongs to the loop that starts it."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        """`answers` has what is called for each path."""
        self._answers = answers
        self._warnings = RateLimitedLog(log)
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen; return the port, which the system chooses when `port` is 0.

        Raises SettingsError, one sentence, when the address cannot be had.
        """
        try:
            self._listener = await asyncio.start_server(
                self._accept, host, port, ssl=tls, limit=HEAD_BYTES_MAX, backlog=CONNECTIONS_MAX
            )
        except (OSError, UnicodeError) as error:
            raise _listen_error(host, port, error) from error
        return int(self._listener.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening and end all connections. A second call does nothing."""
        if self._listener is None:
            return
        self._listener.close()
        self._listener = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= CONNECTIONS_MAX or self._listener is None:
            self._warnings.warning("monitoring: %d connections are open", len(self._tasks))
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            method, response = await self._response(reader)
            _write(writer, method, response)
            async with asyncio.timeout(REQUEST_S):
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, EOFError, TimeoutError):
            pass  # the client has gone, or is too slow: nobody waits for an answer
        finally:
            writer.transport.abort()

    async def _response(self, reader: asyncio.StreamReader) -> tuple[str, HttpResponse]:
        """The method of the request that comes, and what is answered."""
        try:
            async with asyncio.timeout(REQUEST_S):
                method, request = parse_head(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            return "GET", _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except MalformedRequestError as error:
            return "GET", _plain(error.status)
        answer = self._answers.get(request.path)
        if answer is None:
            known = ", ".join(sorted(self._answers))
            return method, _plain(HTTPStatus.NOT_FOUND, f"there are {known}\n")
        try:
            async with asyncio.timeout(ANSWER_S):
                return method, await answer(request)
        except Exception as error:  # noqa: BLE001 - every failure becomes an answer
            self._warnings.warning("%s: no answer: %r", request.path, error, exc_info=True)
            return method, _plain(HTTPStatus.INTERNAL_SERVER_ERROR, "the log says why\n")


def parse_head(head: bytes) -> tuple[str, HttpRequest]:
    """The method and the request of the bytes up to the first empty line.

    Raises MalformedRequestError.
    """
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        raise MalformedRequestError(HTTPStatus.BAD_REQUEST)
    if words[0] not in ("GET", "HEAD"):
        raise MalformedRequestError(HTTPStatus.METHOD_NOT_ALLOWED)
    accept = ""
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if line and not colon:
            raise MalformedRequestError(HTTPStatus.BAD_REQUEST)
        if name.lower() == "accept":
            accept = value.strip()
    return words[0], HttpRequest(words[1].partition("?")[0], accept)


def _write(writer: asyncio.StreamWriter, method: str, response: HttpResponse) -> None:
    phrase = HTTPStatus(response.status).phrase
    head = (
        f"HTTP/1.1 {response.status} {phrase}\r\n"
        f"Content-Type: {response.content_type}\r\n"
        f"Content-Length: {len(response.body)}\r\n"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    )
    writer.write(head.encode("latin-1"))
    if method != "HEAD":
        writer.write(response.body)


def _plain(status: HTTPStatus, text: str = "") -> HttpResponse:
    said = text or f"{status.phrase}\n"
    return HttpResponse(status, "text/plain; charset=utf-8", said.encode())


def _listen_error(host: str, port: int, error: Exception) -> SettingsError:
    where = join_address(host, port)
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return SettingsError(
            f"cannot listen on {where} for monitoring: the port is in use (metricsPromExporterPort)"
        )
    reason = getattr(error, "strerror", None) or error
    return SettingsError(f"cannot listen on {where} for monitoring: {reason}")
