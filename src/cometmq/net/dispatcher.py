"""Hot. The one place where requests become answers: exactly one each, none when one-way.

Owns the table of endpoints and the policy for failures: Reject becomes its code, a bad header or
any other exception SYSTEM_ERROR (the latter with one traceback in the log), an unknown code
REQUEST_CODE_NOT_SUPPORTED, a broken command ends its connection, too many unanswered requests
SYSTEM_BUSY. What becomes of a one-way request that is refused only the log says, once a minute for
each code and answer. Refuses to know what the codes mean.
Java: NettyRemotingAbstract.processRequestCommand, RemotingSysResponseCode.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from cometmq.errors import ProtocolError, Reject
from cometmq.net.admission import admitted
from cometmq.net.endpoint import Endpoint, RequestEffect, table_of
from cometmq.net.handler import HELD, Answer, Handler, HandlerResult, Reply, TwoPartFrame
from cometmq.net.rate_limited_log import RateLimitedLog, shown
from cometmq.wire.codes import ResponseCode
from cometmq.wire.command import Command

if TYPE_CHECKING:
    from cometmq.net.admission import Admission
    from cometmq.net.connection import Connection
    from cometmq.wire.frame import Frame
    from cometmq.wire.headers.base import Header

log = logging.getLogger(__name__)

_RESPONSE, _ONEWAY = 1, 2
_UNKNOWN = -1
"""Stands for all codes that have no endpoint."""

REFUSED_LOG_S = 60.0
"""Time between log lines about one-way requests of one code that are refused alike, seconds."""

SLOW_S = 1.0
"""A request whose handler waited for so long, for a disk or a thread, gets a line in the log."""

OnDurable = Callable[[Callable[[Any], None]], None]
"""The store's: calls back with a status, falsy when all that was put before is safe."""
FailureAnswer = Callable[[Any], tuple[int, str]]
"""From such a status, when it is not falsy, to the code and remark to answer instead."""
_BUSY = Reply(
    ResponseCode.SYSTEM_BUSY,
    remark="[OVERLOAD] too many requests are unanswered; try again later or another broker",
)


def _flush_failure(status: object) -> tuple[int, str]:
    return ResponseCode.FLUSH_DISK_TIMEOUT, f"the message could not be flushed to disk: {status}"


class RequestDispatcher:
    """Called with every frame of every connection of one server; belongs to its loop."""

    def __init__(
        self,
        endpoints: Iterable[Endpoint],
        *,
        on_durable: OnDurable | None = None,
        on_flushed: OnDurable | None = None,
        failure_answer: FailureAnswer = _flush_failure,
        fallback: Handler | None = None,
        admission: Admission | None = None,
    ) -> None:
        """`fallback` answers codes that have no endpoint; raises ValueError for a code with two.

        `admission` is asked about every request before its handler is. `on_flushed` does what
        `on_durable` does, for replies that wait for this machine only.
        """
        table = table_of(endpoints)
        self._handlers = {
            code: _bounded(admitted(admission, each), each.body_bytes_max)
            for code, each in table.items()
        }
        self._unthrottled = _codes_with(RequestEffect.UNTHROTTLED, table.values())
        self._durable = _codes_with(RequestEffect.DURABLE, table.values())
        self._on_durable = on_durable
        self._on_flushed = on_flushed or on_durable
        self._failure_answer = failure_answer
        self._fallback = admitted(admission, Endpoint(_UNKNOWN, fallback or _unsupported))
        self._warnings = RateLimitedLog(log)
        self._on_held_answer = self._answer_held
        self._tasks: set[asyncio.Future[None]] = set()
        self._refused: dict[tuple[int, int], float] = {}
        """When the log last had a line about one-way requests of a code with an answer."""

    @property
    def codes(self) -> frozenset[int]:
        """The codes that have a handler."""
        return frozenset(self._handlers)

    def __call__(self, frame: Frame, connection: Connection) -> None:
        """Answer one frame, now or later. Never raises."""
        try:
            request = Command.decode(frame)
        except ProtocolError as error:
            self._warnings.warning("closing %s: %s", connection.addr, error)
            connection.close()
            return
        if request.flag & _RESPONSE:
            connection.take_response(request)
            return
        if (
            connection.is_full
            and not request.flag & _ONEWAY
            and request.code not in self._unthrottled
        ):
            connection.send(_BUSY.encode(request.opaque))
            return
        connection.language = request.language
        connection.version = request.version
        try:
            answer = self._handlers.get(request.code, self._fallback)(request, connection)
        except Exception as error:  # noqa: BLE001 - every failure of a handler becomes an answer
            answer = _failure_reply(error, request, connection)
        self._send_result(connection, request, answer)

    def send_durable(
        self,
        connection: Connection,
        data: bytes,
        opaque: int,
        header: Header | None = None,
        *,
        local_only: bool = False,
    ) -> None:
        """Send a whole frame once all that was put so far is as safe as promised.

        When it cannot be made safe, the answer is the failure's code with this header.
        """
        on_durable = self._on_flushed if local_only else self._on_durable
        if on_durable is None:
            connection.send(data)
        else:
            connection.begin_request()
            on_durable(partial(self._send_after_flush, connection, data, opaque, header))

    def stop(self) -> None:
        """Cancel handlers that still wait for something; their requests stay unanswered."""
        for task in self._tasks:
            task.cancel()

    def _send_result(
        self,
        connection: Connection,
        request: Command,
        result: HandlerResult | Awaitable[HandlerResult],
    ) -> None:
        if request.flag & _ONEWAY and not isinstance(result, Awaitable):
            if isinstance(result, Reply) and result.code:
                self._log_refused(connection, request, result)
        elif type(result) is Reply:
            data = result.encode(request.opaque)
            if result.durable:
                assert request.code in self._durable, f"{request.code} waits and does not say so"
                self.send_durable(
                    connection, data, request.opaque, result.header, local_only=result.local_only
                )
            else:
                connection.send(data)
        elif type(result) is bytes:
            connection.send(result)
        elif type(result) is TwoPartFrame:
            connection.send_parts(*result)
        elif result is HELD:
            connection.begin_request()
            connection.held[id(request)] = (request, self._on_held_answer)
        else:
            self._run_async(connection, request, cast("Awaitable[HandlerResult]", result))

    def _run_async(
        self, connection: Connection, request: Command, awaited: Awaitable[HandlerResult]
    ) -> None:
        if connection.is_full and request.flag & _ONEWAY:  # nobody waits for it
            _abandon(awaited)
            self._log_refused(connection, request, _BUSY)
            return
        size = len(request.body) + sum(map(len, request.ext.values()))
        if not connection.has_room_for(size):
            _abandon(awaited)
            self._send_result(connection, request, _BUSY)
            return
        connection.begin_request()
        connection.keep_waiting(size)
        task = asyncio.ensure_future(self._send_later(connection, request, awaited))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # by now a stop may have cancelled it before it had begun
        task.add_done_callback(lambda _task: _end_waiting(connection, size, awaited))

    async def _send_later(
        self, connection: Connection, request: Command, awaited: Awaitable[HandlerResult]
    ) -> None:
        result: HandlerResult
        time = asyncio.get_running_loop().time
        begun = time()
        try:
            result = await awaited
        except Exception as error:  # noqa: BLE001 - every failure of a handler becomes an answer
            result = _failure_reply(error, request, connection)
        finally:
            connection.end_request()
        if (took_s := time() - begun) >= SLOW_S:
            self._warnings.info("%d of %s took %.1f s", request.code, connection.addr, took_s)
        if not connection.is_closed:
            self._send_result(connection, request, result)

    def _log_refused(self, connection: Connection, request: Command, answer: Reply) -> None:
        """Say that a one-way request was refused, as nobody else hears of it."""
        code = request.code if request.code in self._handlers else _UNKNOWN
        now, kind = asyncio.get_running_loop().time(), (code, answer.code)
        if now >= self._refused.get(kind, now):
            self._refused[kind] = now + REFUSED_LOG_S
            log.warning(
                "a one-way request %d of %s is refused, and others may be: %s",
                request.code,
                connection.addr,
                shown(answer.remark or answer.code),
            )

    def _answer_held(
        self, connection: Connection, request: Command, answer: Answer | Awaitable[Answer]
    ) -> None:
        connection.end_request()
        self._send_result(connection, request, answer)

    def _send_after_flush(
        self,
        connection: Connection,
        data: bytes,
        opaque: int,
        header: Header | None,
        status: object,
    ) -> None:
        if connection.is_closed:
            return
        connection.end_request()
        if status:
            code, remark = self._failure_answer(status)
            data = Reply(code, header, remark=remark).encode(opaque)
        connection.send(data)


def _abandon(awaited: Awaitable[HandlerResult]) -> None:
    if asyncio.iscoroutine(awaited):
        awaited.close()


def _end_waiting(connection: Connection, size: int, awaited: Awaitable[HandlerResult]) -> None:
    connection.keep_waiting(-size)
    _abandon(awaited)


def _bounded(handler: Handler, bytes_max: int | None) -> Handler:
    """The handler, asked only about requests whose body is not too large for the loop."""
    if bytes_max is None:
        return handler

    def bounded(
        request: Command, connection: Connection
    ) -> HandlerResult | Awaitable[HandlerResult]:
        size = len(request.body)
        if size > bytes_max:
            raise Reject(
                ResponseCode.SYSTEM_ERROR,
                f"the body of request {request.code} has {size} bytes, the limit is {bytes_max}; "
                "ask in several requests",
            )
        return handler(request, connection)

    return bounded


def _codes_with(effect: RequestEffect, endpoints: Iterable[Endpoint]) -> frozenset[int]:
    return frozenset(int(each.code) for each in endpoints if effect in each.effects)


def answer_held(
    connection: Connection, request: Command, answer: Answer | Awaitable[Answer]
) -> None:
    """Answer a request whose handler returned HELD; nothing when its connection has gone.

    A second call for the same request is a bug of the caller, and an AssertionError.
    """
    if request.flag & _ONEWAY:
        return
    held = connection.held.pop(id(request), None)
    if held is None:
        assert connection.is_closed, (
            f"{request!r} of {connection.addr} is not held, or was answered already"
        )
        return
    held[1](connection, request, answer)


def answer_held_with(
    connection: Connection,
    request: Command,
    make_answer: Callable[[], Answer | Awaitable[Answer]],
) -> None:
    """Answer a held request with what `make_answer` returns, or with the failure it raises."""
    try:
        answer = make_answer()
    except Exception as error:  # noqa: BLE001 - every failure of a handler becomes an answer
        answer = _failure_reply(error, request, connection)
    answer_held(connection, request, answer)


def _failure_reply(error: Exception, request: Command, connection: Connection) -> Reply:
    if isinstance(error, Reject):
        return Reply(error.code, remark=error.remark)
    if isinstance(error, ProtocolError):
        return Reply(ResponseCode.SYSTEM_ERROR, remark=str(error))
    log.error("request %d of %s failed", request.code, connection.addr, exc_info=error)
    remark = f"{type(error).__name__}: {error}"
    return Reply(ResponseCode.SYSTEM_ERROR, remark=remark)


def _unsupported(request: Command, _connection: Connection) -> Reply:
    remark = f"request type {request.code} not supported"
    return Reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
