"""Every two-way request gets exactly one answer, whatever its handler does."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.errors import BadHeader, ProtocolError, Reject
from cometmq.net import dispatcher
from cometmq.net.dispatcher import answer_held
from cometmq.net.handler import HELD, Reply, TwoPartFrame
from cometmq.settings.net import NetSettings
from cometmq.wire.codes import ResponseCode
from cometmq.wire.command import Command, encode_answer, request
from cometmq.wire.frame import ROCKETMQ, encode_frame
from net.serving import run, serving, until

if TYPE_CHECKING:
    from cometmq.net.connection import Connection

ECHO, HOLD, SLOW, BOOM, REJECT, BAD, RAW, DURABLE = range(1, 9)


def echo(command: Command, _connection: Connection) -> Reply:
    return Reply(body=command.body)


def raising(error: Exception) -> Any:
    def handler(_command: Command, _connection: Connection) -> Reply:
        raise error

    return handler


def test_answers_of_one_chunk_come_in_order_and_in_one_write() -> None:
    async def scenario() -> None:
        async with serving({ECHO: echo}, monotonic_s=lambda: 0.0) as served:  # time for all of it
            raw = await served.connect()
            for opaque in range(100):
                raw.ask(ECHO, opaque, b"%d" % opaque)
            first = await raw.reader.read(1 << 20)
            expected = b"".join(encode_answer(opaque, 0, b"%d" % opaque) for opaque in range(100))
            assert first == expected

    run(scenario())


def test_what_a_handler_raises_becomes_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    table = {
        REJECT: raising(Reject(ResponseCode.NO_PERMISSION, "not you")),
        BAD: raising(BadHeader("topic")),
        BOOM: raising(ZeroDivisionError("division by zero")),
        RAW: raising(ProtocolError("no list")),
    }

    async def scenario() -> None:
        async with serving(table) as served:
            raw = await served.connect()
            answers = [await raw.call(code) for code in (REJECT, BAD, BOOM, RAW)]
        assert [(answer.code, answer.remark) for answer in answers] == [
            (16, "not you"),
            (1, "the header field topic is missing"),
            (1, "ZeroDivisionError: division by zero"),
            (1, "no list"),
        ]

    with caplog.at_level(logging.ERROR):
        run(scenario())
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_a_stop_closes_what_has_not_even_begun_to_wait() -> None:
    async def scenario() -> None:
        begun: list[Any] = []

        async def late() -> Reply:
            return Reply()

        def handler(_command: Command, _connection: Connection) -> Any:
            asyncio.get_running_loop().call_soon(served.dispatcher.stop)
            begun.append(late())
            return begun[-1]

        async with serving({SLOW: handler}) as served:
            raw = await served.connect()
            raw.ask(SLOW, 1)
            await until(lambda: begun and inspect.getcoroutinestate(begun[0]) == "CORO_CLOSED")
            assert raw.reader.at_eof() is False

    run(scenario())


def test_an_unknown_code_is_not_supported_and_the_connection_lives_on() -> None:
    async def scenario() -> None:
        async with serving({ECHO: echo}) as served:
            raw = await served.connect()
            answer = await raw.call(12345, opaque=7)
            assert (answer.code, answer.opaque) == (3, 7)
            assert answer.remark == "request type 12345 not supported"
            assert (await raw.call(ECHO, body=b"still here")).body == b"still here"

    run(scenario())


def test_a_fallback_gets_what_the_table_does_not_know() -> None:
    async def scenario() -> None:
        async with serving({}, fallback=lambda c, _p: Reply(9, remark=str(c.code))) as served:
            raw = await served.connect()
            answer = await raw.call(77)
            assert (answer.code, answer.remark) == (9, "77")

    run(scenario())


def test_one_way_requests_are_handled_and_never_answered() -> None:
    seen: list[int] = []

    def note(command: Command, _connection: Connection) -> Reply:
        seen.append(command.opaque)
        return Reply(body=b"nobody wants this")

    async def later(command: Command, _connection: Connection) -> Reply:
        seen.append(command.opaque)
        return Reply()

    table = {ECHO: echo, RAW: note, SLOW: later, BOOM: raising(ValueError("x")), HOLD: _hold}

    async def scenario() -> None:
        async with serving(table) as served:
            raw = await served.connect()
            for opaque, code in enumerate((RAW, SLOW, BOOM, HOLD, 999), start=10):
                raw.ask(code, opaque, oneway=True)
            raw.ask(ECHO, 99)
            assert (await raw.next()).opaque == 99
            await until(lambda: len(seen) == 2)
            assert (await raw.call(ECHO, 100)).opaque == 100
            assert served.server.in_flight == 0
        assert seen == [10, 11]

    run(scenario())


def _hold(_command: Command, _connection: Connection) -> Any:
    return HELD


def test_a_held_request_is_answered_once_by_finish() -> None:
    held: list[tuple[Connection, Command]] = []

    def hold(command: Command, connection: Connection) -> Any:
        held.append((connection, command))
        return HELD

    async def scenario() -> None:
        async with serving({HOLD: hold, ECHO: echo}) as served:
            raw = await served.connect()
            raw.ask(HOLD, 1)
            raw.ask(HOLD, 2)
            assert (await raw.call(ECHO, 3)).opaque == 3
            assert served.server.in_flight == 2
            answer_held(*held[1], Reply(19))
            answer_held(*held[0], encode_answer(1, 20))
            got = [await raw.next(), await raw.next()]
            assert [(answer.opaque, answer.code) for answer in got] == [(2, 19), (1, 20)]
            assert served.server.in_flight == 0
            with pytest.raises(AssertionError, match="answered already"):
                answer_held(*held[0], Reply())

    run(scenario())


def test_unanswered_requests_of_a_closed_connection_are_forgotten() -> None:
    held: list[tuple[Connection, Command]] = []

    def hold(command: Command, connection: Connection) -> Any:
        held.append((connection, command))
        return HELD

    async def scenario() -> None:
        async with serving({HOLD: hold, ECHO: echo}) as served:
            raw, other = await served.connect(), await served.connect()
            raw.ask(HOLD, 1)
            await until(lambda: held)
            other.ask(HOLD, 1)
            await until(lambda: len(held) == 2)
            await raw.close()
            await until(lambda: served.server.in_flight == 1)
            answer_held(*held[0], Reply())
            answer_held(*held[1], Reply(7))
            assert (await other.next()).code == 7
            assert served.server.in_flight == 0

    run(scenario())


def test_awaiting_handlers_answer_when_they_are_done() -> None:
    gate: asyncio.Event

    async def slow(command: Command, _connection: Connection) -> Reply:
        await gate.wait()
        if command.body == b"bad":
            raise Reject(8, "no")
        return Reply(body=command.body)

    async def scenario() -> None:
        nonlocal gate
        gate = asyncio.Event()
        async with serving({SLOW: slow, ECHO: echo}) as served:
            raw = await served.connect()
            raw.ask(SLOW, 1, b"a")
            raw.ask(SLOW, 2, b"bad")
            assert (await raw.call(ECHO, 3)).opaque == 3
            gate.set()
            got = {answer.opaque: answer for answer in (await raw.next(), await raw.next())}
            assert (got[1].code, got[1].body, got[2].code, got[2].remark) == (0, b"a", 8, "no")
            assert served.server.in_flight == 0

    run(scenario())


def test_durable_answers_wait_for_the_store_and_say_when_it_failed() -> None:
    waiting: list[Any] = []

    async def scenario() -> None:
        def failed(status: object) -> tuple[int, str]:
            return 10, f"flush: {status}"

        table = {DURABLE: lambda _c, _p: Reply(body=b"kept", durable=True), ECHO: echo}
        async with serving(table, on_durable=waiting.append, failure_answer=failed) as served:
            raw = await served.connect()
            raw.ask(DURABLE, 1)
            raw.ask(DURABLE, 2)
            assert (await raw.call(ECHO, 3)).opaque == 3
            assert served.server.in_flight == 2
            waiting[0](None)
            waiting[1]("disk full")
            good, bad = await raw.next(), await raw.next()
            assert (good.opaque, good.code, good.body) == (1, 0, b"kept")
            assert (bad.opaque, bad.code, bad.remark, bad.body) == (2, 10, "flush: disk full", b"")
            assert served.server.in_flight == 0

    run(scenario())


def test_a_durable_answer_to_a_closed_connection_is_dropped() -> None:
    waiting: list[Any] = []

    async def scenario() -> None:
        table = {DURABLE: lambda _c, _p: Reply(durable=True)}
        async with serving(table, on_durable=waiting.append) as served:
            raw = await served.connect()
            raw.ask(DURABLE, 1)
            await until(lambda: waiting)
            await raw.close()
            await until(lambda: not served.server.protocols)
            waiting[0](None)
            assert served.server.in_flight == 0

    run(scenario())


def test_a_fast_hook_sees_frames_before_they_are_decoded() -> None:
    async def scenario() -> None:
        class Short:
            def __init__(self, connection: Connection) -> None:
                self.connection = connection

            def chunk(self, data: bytes) -> int:
                if b'"code":1,' not in data[:30]:
                    return 0
                self.connection.send(encode_answer(1, 42))
                return 4 + int.from_bytes(data[:4], "big")

            def frame(self, frame: Any) -> bool:
                if b'"code":1,' not in frame.header:
                    return False
                self.connection.send(encode_answer(1, 43))
                return True

        async with serving({ECHO: echo, RAW: echo}, fast_path=Short) as served:
            raw = await served.connect()
            assert (await raw.call(ECHO)).code == 42
            assert (await raw.call(RAW)).code == 0
            raw.send(request(RAW, 1), request(ECHO, 1))
            assert [(await raw.next()).code for _ in range(2)] == [0, 43]

    run(scenario())


def test_too_many_unanswered_requests_are_refused_per_connection_and_in_all() -> None:
    net = NetSettings(in_flight_max=2, in_flight_total_max=3)

    async def scenario() -> None:
        async with serving({HOLD: _hold}, net=net) as served:
            first, second = await served.connect(), await served.connect()
            for opaque in (1, 2, 3):
                first.ask(HOLD, opaque)
            busy = await first.next()
            assert (busy.opaque, busy.code) == (3, ResponseCode.SYSTEM_BUSY)
            second.ask(HOLD, 1)
            second.ask(HOLD, 2)
            busy = await second.next()
            assert (busy.opaque, busy.code) == (2, ResponseCode.SYSTEM_BUSY)
            assert served.server.in_flight == 3
            await first.close()
            await until(lambda: served.server.in_flight == 1)

    run(scenario())


def test_requests_that_keep_a_client_registered_are_answered_however_much_is_unanswered() -> None:
    async def scenario() -> None:
        async with serving(
            {HOLD: _hold, ECHO: echo}, net=NetSettings(in_flight_max=2), unthrottled=[ECHO]
        ) as served:
            raw = await served.connect()
            raw.ask(HOLD, 1)
            raw.ask(HOLD, 2)
            assert (await raw.call(HOLD, 3)).code == ResponseCode.SYSTEM_BUSY
            assert (await raw.call(ECHO, 4, b"alive")).body == b"alive"

    run(scenario())


@pytest.mark.parametrize("size", [0, 10, 300_000])
def test_a_frame_in_two_pieces_comes_between_the_others(size: int) -> None:
    async def scenario() -> None:
        def in_pieces(command: Command, _connection: Connection) -> TwoPartFrame:
            head = encode_answer(command.opaque, 0, b"")[4:]
            return TwoPartFrame((len(head) + size).to_bytes(4, "big") + head, bytes(size))

        async with serving({ECHO: echo, RAW: in_pieces}) as served:
            raw = await served.connect()
            raw.send(request(ECHO, 1, body=b"a"), request(RAW, 2), request(ECHO, 3, body=b"b"))
            raw.ask(RAW, 4, oneway=True)
            raw.ask(ECHO, 5, b"c")
            found = [await raw.next() for _ in range(4)]
            assert [answer.opaque for answer in found] == [1, 2, 3, 5]
            assert [answer.body for answer in found] == [b"a", bytes(size), b"b", b"c"]

    run(scenario())


def test_one_way_requests_above_the_bound_do_not_pile_up() -> None:
    gate: asyncio.Event
    begun = 0

    async def slow(_command: Command, _connection: Connection) -> Reply:
        nonlocal begun
        begun += 1
        await gate.wait()
        return Reply()

    async def scenario() -> None:
        nonlocal gate
        gate = asyncio.Event()
        net = NetSettings(in_flight_max=3)
        async with serving({SLOW: slow, ECHO: echo}, net=net) as served:
            raw = await served.connect()
            for opaque in range(50):
                raw.ask(SLOW, opaque, oneway=True)
            answer = await raw.call(ECHO, 99)
            assert (answer.opaque, answer.code) == (99, ResponseCode.SYSTEM_BUSY)
            assert (begun, served.server.in_flight) == (3, 3)
            gate.set()
            await until(lambda: served.server.in_flight == 0)
            assert (await raw.call(ECHO, 100)).code == ResponseCode.SUCCESS

    run(scenario())


def test_both_header_forms_are_understood_and_answered_in_json() -> None:
    header = bytes.fromhex("0001 00 01df 00000007 00000000 00000000 00000000".replace(" ", ""))

    async def scenario() -> None:
        async with serving({ECHO: echo}) as served:
            raw = await served.connect()
            raw.writer.write(encode_frame(header, b"binary", ROCKETMQ))
            answer = await raw.next()
            assert (answer.opaque, answer.body) == (7, b"binary")

    run(scenario())


def test_the_log_says_once_a_minute_that_one_way_requests_are_refused(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = {ECHO: echo, REJECT: raising(Reject(ResponseCode.NO_PERMISSION, "not you"))}

    async def scenario() -> None:
        async with serving(table) as served:
            raw = await served.connect()

            async def refused_lines() -> list[str]:
                caplog.clear()
                for opaque, code in enumerate([REJECT, ECHO, 77, 78] * 3):
                    raw.ask(code, opaque, oneway=True)
                assert (await raw.call(ECHO, 99)).opaque == 99
                return [line for line in caplog.messages if "is refused" in line]

            found = await refused_lines()
            assert [line.partition(" of ")[0] for line in found] == [
                f"a one-way request {REJECT}",
                "a one-way request 77",
            ]
            assert found[0].endswith("is refused, and others may be: not you")
            assert await refused_lines() == []
            monkeypatch.setattr(dispatcher, "REFUSED_LOG_S", 0.0)
            served.dispatcher._refused.clear()
            assert len(await refused_lines()) == 9, "of all but ECHO"

    run(scenario())
