"""The admission hook: asked once before each handler, it refuses, delays and counts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from cometmq.net.handler import HELD, Reply
from cometmq.wire.command import request, response
from net.admission_hook import REFUSED, REMARK, Hook
from net.serving import run, serving, until

if TYPE_CHECKING:
    from cometmq.net.connection import Connection
    from cometmq.wire.command import Command

PLAIN, LATER, HELD_BACK, UNKNOWN = 901, 902, 903, 999


class Spy:
    """Handlers that note the requests that reach them."""

    def __init__(self) -> None:
        self.reached: list[int] = []

    def plain(self, command: Command, _connection: Connection) -> Reply:
        self.reached.append(command.code)
        return Reply(body=b"plain")

    async def later(self, command: Command, _connection: Connection) -> Reply:
        self.reached.append(command.code)
        return Reply(body=b"later")

    def held(self, command: Command, _connection: Connection) -> Any:
        self.reached.append(command.code)
        return HELD

    def table(self) -> dict[int, Any]:
        return {PLAIN: self.plain, LATER: self.later, HELD_BACK: self.held}


def test_a_refused_request_reaches_no_handler_and_gets_code_and_remark() -> None:
    async def scenario() -> None:
        hook, spy = Hook(), Spy()
        hook.refuses_all = True
        async with serving(spy.table(), admission=hook) as served:
            raw = await served.connect()
            for opaque, code in enumerate((PLAIN, LATER, HELD_BACK, UNKNOWN), 1):
                answer = await raw.call(code, opaque)
                assert (answer.opaque, answer.code, answer.remark) == (opaque, REFUSED, REMARK)
            assert spy.reached == []
            assert hook.asked == {PLAIN: 1, LATER: 1, HELD_BACK: 1, UNKNOWN: 1}

    run(scenario())


def test_a_delayed_request_is_answered_after_the_delay_and_others_are_not_held_up() -> None:
    async def scenario() -> None:
        hook, spy = Hook(), Spy()
        async with serving(spy.table(), admission=hook) as served:
            raw, other = await served.connect(), await served.connect()
            hook.delay_s = 0.2
            loop = asyncio.get_running_loop()
            begun = loop.time()
            late = asyncio.ensure_future(raw.call(LATER))
            await until(lambda: hook.asked)
            hook.delay_s = 0.0
            assert (await other.call(PLAIN)).body == b"plain"
            assert not late.done()
            assert spy.reached == [PLAIN]
            assert (await late).body == b"later"
            assert loop.time() - begun >= 0.2
            assert served.server.in_flight == 0

    run(scenario())


def test_one_way_requests_are_asked_about_and_responses_are_not() -> None:
    async def scenario() -> None:
        hook, spy = Hook(), Spy()
        async with serving(spy.table(), admission=hook) as served:
            raw = await served.connect()
            raw.ask(PLAIN, 1, oneway=True)
            await until(lambda: spy.reached)
            raw.send(response(7, 0))
            hook.refuses_all = True
            raw.ask(PLAIN, 2, oneway=True)
            await until(lambda: hook.asked[PLAIN] == 2)
            hook.refuses_all = False
            assert (await raw.call(PLAIN, 3)).opaque == 3
            assert spy.reached == [PLAIN, PLAIN]
            assert hook.asked == {PLAIN: 3}

    run(scenario())


def test_a_stop_leaves_nothing_behind_of_requests_that_wait_for_admission() -> None:
    async def scenario() -> None:
        hook, spy = Hook(), Spy()
        before = asyncio.all_tasks()
        async with serving(spy.table(), admission=hook) as served:
            raw = await served.connect()
            hook.delay_s = 3600.0
            raw.ask(LATER, 1)
            await until(lambda: served.server.in_flight == 1)
            served.dispatcher.stop()
            await until(lambda: served.server.in_flight == 0)
        assert asyncio.all_tasks() == before
        assert spy.reached == []

    run(scenario())


def test_the_hook_sees_who_asks_and_for_what() -> None:
    async def scenario() -> None:
        hook = Hook()
        async with serving(Spy().table(), admission=hook) as served:
            raw = await served.connect()
            command = request(PLAIN, 1, body=b"signed")
            command.ext = {"AccessKey": "me", "topic": "T", "consumerGroup": "G"}
            raw.send(command)
            await raw.next()
            (asked,) = hook.requests
            assert asked.fields["AccessKey"] == "me"
            assert (asked.resources.topics, asked.resources.groups) == (("T",), ("G",))
            assert asked.command.body == b"signed"

    run(scenario())
