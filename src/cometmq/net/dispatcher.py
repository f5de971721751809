"""Hot. The one place where requests become answers: exactly one each, none when one-way.

Owns the table of handlers and the policy for what goes wrong: Reject answers its code, a bad
header or any other exception SYSTEM_ERROR (the latter with one traceback in the log), an unknown
code REQUEST_CODE_NOT_SUPPORTED, a broken command ends its connection, too many unanswered requests
SYSTEM_BUSY. Refuses to know what the codes mean.
Java: NettyRemotingAbstract.processRequestCommand, RemotingSysResponseCode.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from cometmq.errors import ProtocolError, Reject
from cometmq.net.rate_limited_log import Complaints
from cometmq.wire.codes import ResponseCode
from cometmq.wire.command import Command, encode_answer, response

if TYPE_CHECKING:
    from cometmq.net.connection import Connection
    from cometmq.wire.frame import Frame
    from cometmq.wire.headers.base import Header

log = logging.getLogger(__name__)

_RESPONSE, _ONEWAY = 1, 2


class Reply:
    """What a handler answers. `durable` answers leave once all that was put is safe."""

    __slots__ = ("body", "code", "durable", "ext", "header", "remark")

    def __init__(
        self,
        code: int = 0,
        header: Header | None = None,
        body: bytes = b"",
        *,
        remark: str | None = None,
        ext: Mapping[str, str] | None = None,
        durable: bool = False,
    ) -> None:
        self.code, self.header, self.body = code, header, body
        self.remark, self.ext, self.durable = remark, ext, durable

    def encode(self, opaque: int) -> bytes:
        """Return the whole frame that answers the request with this opaque."""
        header, remark, ext = self.header, self.remark, self.ext
        if header is None and remark is None and not ext:
            return encode_answer(opaque, self.code, self.body)
        return response(
            opaque, self.code, remark=remark, header=header, body=self.body, ext=ext
        ).encode()


class Pieces(NamedTuple):
    """A whole frame whose body is large: its two parts are written as they are, never joined."""

    head: bytes
    body: bytes


class Parked:
    """The type of PARKED."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return the name."""
        return "PARKED"


PARKED: Final = Parked()
"""Returned by a handler that calls `finish` later, exactly once, unless the connection
closes before."""

Made = Reply | bytes | Pieces
"""A reply, or a whole frame made by the handler."""
Answered = Made | Parked
Handler = Callable[[Command, "Connection"], Answered | Awaitable[Answered]]
Settle = Callable[[Callable[[Any], None]], None]
"""The store's: calls back with a status, falsy when all that was put before is safe."""
Failed = Callable[[Any], tuple[int, str]]
"""From such a status, when it is not falsy, to the code and remark to answer instead."""
_BUSY = Reply(
    ResponseCode.SYSTEM_BUSY,
    remark="[OVERLOAD] too many requests are unanswered; try again later or another broker",
)


def _flush_failed(status: object) -> tuple[int, str]:
    return ResponseCode.FLUSH_DISK_TIMEOUT, f"the message could not be flushed to disk: {status}"


class Edge:
    """Called with every frame of every connection of one server; belongs to its loop."""

    def __init__(
        self,
        table: Mapping[int, Handler],
        *,
        settle: Settle | None = None,
        failed: Failed = _flush_failed,
        fallback: Handler | None = None,
        always: Collection[int] = (),
    ) -> None:
        """`always`: codes that are answered at once, even with too many unanswered requests."""
        self._table = {int(code): handler for code, handler in table.items()}
        self._settle, self._failed, self._fallback = settle, failed, fallback or _unknown
        self._always = frozenset(map(int, always))
        self._complaints = Complaints(log)
        self._finish = self._finish_parked
        self._tasks: set[asyncio.Future[None]] = set()

    @property
    def codes(self) -> frozenset[int]:
        """The codes that have a handler."""
        return frozenset(self._table)

    def __call__(self, frame: Frame, connection: Connection) -> None:
        """Answer one frame, now or later. Never raises."""
        try:
            request = Command.decode(frame)
        except ProtocolError as error:
            self._complaints.warn("closing %s: %s", connection.addr, error)
            connection.close()
            return
        if request.flag & _RESPONSE:
            connection.answered(request)
            return
        if connection.is_full and not request.flag & _ONEWAY and request.code not in self._always:
            connection.send(_BUSY.encode(request.opaque))
            return
        connection.language, connection.version = request.language, request.version
        try:
            answer = self._table.get(request.code, self._fallback)(request, connection)
        except Exception as error:  # noqa: BLE001 - the edge: every failure becomes an answer
            answer = _reply_to(error, request, connection)
        self._deliver(connection, request, answer)

    def send_durable(
        self, connection: Connection, data: bytes, opaque: int, header: Header | None = None
    ) -> None:
        """Send a whole frame once all that was put so far is as safe as promised.

        When it cannot be made safe, the answer is the failure's code with this header.
        """
        if self._settle is None:
            connection.send(data)
        else:
            connection.owe()
            self._settle(partial(self._late, connection, data, opaque, header))

    def stop(self) -> None:
        """Cancel handlers that still wait for something; their requests stay unanswered."""
        for task in self._tasks:
            task.cancel()

    def _deliver(
        self, connection: Connection, request: Command, answer: Answered | Awaitable[Answered]
    ) -> None:
        is_oneway = request.flag & _ONEWAY
        if type(answer) is Reply:
            if is_oneway:
                return
            data = answer.encode(request.opaque)
            if answer.durable:
                self.send_durable(connection, data, request.opaque, answer.header)
            else:
                connection.send(data)
        elif type(answer) is bytes:
            if not is_oneway:
                connection.send(answer)
        elif type(answer) is Pieces:
            if not is_oneway:
                connection.send(answer.head)
                connection.send(answer.body)
        elif answer is PARKED:
            if not is_oneway:
                connection.owe()
                connection.parked[id(request)] = (request, self._finish)
        else:
            self._await(connection, request, cast("Awaitable[Answered]", answer))

    def _await(self, connection: Connection, request: Command, answer: Awaitable[Answered]) -> None:
        if connection.is_full and request.flag & _ONEWAY:  # nobody waits for it
            if asyncio.iscoroutine(answer):
                answer.close()
            return
        connection.owe()
        task = asyncio.ensure_future(self._wait(connection, request, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if asyncio.iscoroutine(answer):  # a stop may cancel it before it has begun
            task.add_done_callback(lambda _task: answer.close())

    async def _wait(
        self, connection: Connection, request: Command, awaited: Awaitable[Answered]
    ) -> None:
        answer: Answered
        try:
            answer = await awaited
        except Exception as error:  # noqa: BLE001 - the edge, for what answers later
            answer = _reply_to(error, request, connection)
        finally:
            connection.paid()
        if not connection.is_closed:
            self._deliver(connection, request, answer)

    def _finish_parked(self, connection: Connection, request: Command, reply: Made) -> None:
        connection.paid()
        self._deliver(connection, request, reply)

    def _late(
        self,
        connection: Connection,
        data: bytes,
        opaque: int,
        header: Header | None,
        status: object,
    ) -> None:
        if connection.is_closed:
            return
        connection.paid()
        if status:
            code, remark = self._failed(status)
            data = Reply(code, header, remark=remark).encode(opaque)
        connection.send(data)


def finish(connection: Connection, request: Command, reply: Made) -> None:
    """Answer a request whose handler returned PARKED; nothing when its connection has gone.

    A second call for the same request is a bug of the caller, and an AssertionError.
    """
    if request.flag & _ONEWAY:
        return
    parked = connection.parked.pop(id(request), None)
    if parked is None:
        assert connection.is_closed, (
            f"{request!r} of {connection.addr} is not parked, or answered already"
        )
        return
    parked[1](connection, request, reply)


def finish_with(connection: Connection, request: Command, make: Callable[[], Made]) -> None:
    """Do as `finish` with what `make` returns; what it raises is answered like a handler's."""
    try:
        reply = make()
    except Exception as error:  # noqa: BLE001 - the edge, for what was parked
        reply = _reply_to(error, request, connection)
    finish(connection, request, reply)


def _reply_to(error: Exception, request: Command, connection: Connection) -> Reply:
    if isinstance(error, Reject):
        return Reply(error.code, remark=error.remark)
    if isinstance(error, ProtocolError):
        return Reply(ResponseCode.SYSTEM_ERROR, remark=str(error))
    log.error("request %d of %s failed", request.code, connection.addr, exc_info=error)
    remark = f"{type(error).__name__}: {error}"
    return Reply(ResponseCode.SYSTEM_ERROR, remark=remark)


def _unknown(request: Command, _connection: Connection) -> Reply:
    remark = f"request type {request.code} not supported"
    return Reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
