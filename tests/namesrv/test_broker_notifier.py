"""Commands to brokers: to so many at once, the newest of each, over real sockets."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

from cometmq.namesrv import broker_notifier
from cometmq.namesrv.broker_notifier import BrokerNotifier
from cometmq.net.server import RemotingServer
from cometmq.runtime.background import BackgroundTasks
from cometmq.settings.net import NetSettings
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import Command, request

if TYPE_CHECKING:
    from collections.abc import Coroutine

    import pytest

    from cometmq.net.connection import Connection
    from cometmq.wire.frame import Frame


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 20))


def command(number: int) -> Command:
    made = request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, 0, None, oneway=True)
    made.ext["minBrokerId"] = str(number)
    return made


def test_a_broker_hears_the_newest_of_the_commands_for_it_and_is_left_in_peace() -> None:
    async def scenario() -> None:
        heard: asyncio.Queue[int] = asyncio.Queue()

        def listen(frame: Frame, _connection: Connection) -> None:
            heard.put_nowait(int(Command.decode(frame).ext["minBrokerId"]))

        ear = RemotingServer(listen, NetSettings())
        addr = f"127.0.0.1:{await ear.start('127.0.0.1', 0)}"
        notifier = BrokerNotifier(BackgroundTasks("test"))
        for number in (1, 2, 3):
            notifier.send(addr, command(number))
        assert await heard.get() == 3
        notifier.send(addr, command(4))
        assert await heard.get() == 4
        while ear.protocols:
            await asyncio.sleep(0.001)
        assert heard.empty()
        await ear.stop()

    run(scenario())


def test_so_many_addresses_are_connected_to_at_once_and_the_others_are_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(broker_notifier, "NOTIFIED_MAX", 8)

    async def scenario() -> None:
        full = socket.create_server(("0.0.0.0", 0), backlog=0)  # it never accepts
        port = full.getsockname()[1]
        background = BackgroundTasks("test")
        notifier = BrokerNotifier(background)
        before = len(asyncio.all_tasks())
        for _ in range(3):
            for host in range(1, 30):
                notifier.send(f"127.0.9.{host}:{port}", command(host))
            assert len(asyncio.all_tasks()) <= before + 8
        await background.stop()
        full.close()

    run(scenario())
    assert "connections to 8 others are being opened" in caplog.text


def test_an_address_without_a_broker_is_logged_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            addr = f"127.0.0.1:{closed.getsockname()[1]}"
        notifier = BrokerNotifier(BackgroundTasks("test"))
        for attempt in (1, 2):
            notifier.send(addr, command(attempt))
            while caplog.text.count(f"cannot notify the broker at {addr}") < attempt:
                await asyncio.sleep(0.001)

    run(scenario())
