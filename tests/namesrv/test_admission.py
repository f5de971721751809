"""Every request to a name server passes the admission hook."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.namesrv import app
from cometmq.namesrv.app import NameServer
from cometmq.net.channel import connect
from cometmq.net.dispatcher import RequestDispatcher
from cometmq.net.handler import Reply
from cometmq.settings.namesrv import NamesrvSettings
from cometmq.wire.command import request
from net.admission_hook import REFUSED, REMARK, Hook
from net.serving import run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from cometmq.net.channel import Channel
    from cometmq.net.connection import Connection
    from cometmq.wire.command import Command


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The codes of requests that reach a handler of the name server."""
    codes: list[int] = []

    def spy(command: Command, _connection: Connection) -> Reply:
        codes.append(command.code)
        return Reply()

    def spied(endpoints: Any, **options: Any) -> RequestDispatcher:
        return RequestDispatcher([replace(each, handler=spy) for each in endpoints], **options)

    monkeypatch.setattr(app, "RequestDispatcher", spied)
    return codes


@asynccontextmanager
async def asking(hook: Hook) -> AsyncIterator[tuple[Channel, list[int]]]:
    """A connection to a name server with this hook, and all codes that it answers."""
    settings = NamesrvSettings(listen_port=0, kv_config_path="")
    server = NameServer.open(settings, admission=hook)
    await server.start()
    channel = await connect(server.address)
    try:
        yield channel, sorted(server.codes)
    finally:
        channel.close()
        await server.stop()


def test_every_code_is_refused_before_its_handler_and_counted_once(reached: list[int]) -> None:
    async def scenario() -> None:
        hook = Hook()
        hook.refuses_all = True
        async with asking(hook) as (channel, codes):
            for code in codes:
                answer = await channel.call(request(code, 0), 5)
                assert (answer.code, answer.remark) == (REFUSED, REMARK)
            assert hook.asked == dict.fromkeys(codes, 1)
            assert reached == []

    run(scenario())


def test_every_admitted_code_reaches_its_handler_once_after_its_delay(reached: list[int]) -> None:
    async def scenario() -> None:
        hook = Hook()
        hook.delay_s = 0.01
        async with asking(hook) as (channel, codes):
            loop = asyncio.get_running_loop()
            for code in codes:
                begun = loop.time()
                assert (await channel.call(request(code, 0), 5)).code == 0
                assert loop.time() - begun >= 0.01
            assert reached == codes
            assert hook.asked == dict.fromkeys(codes, 1)

    run(scenario())
