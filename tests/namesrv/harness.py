"""A name server on a free port, and requests to it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from cometmq.model.topic import DataVersion, TopicConfig
from cometmq.namesrv.app import NameServer
from cometmq.settings.namesrv import NamesrvSettings
from cometmq.wire.bodies.topic import Registration, TopicTable, encode_registration
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import Command, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from pathlib import Path

    from cometmq.net.channel import Channel

BROKER = "10.0.0.1:10911"
WHO = {"brokerName": "a", "brokerAddr": BROKER, "clusterName": "C", "brokerId": "0"}


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 20))


class Watch:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return -self.ms  # set back all the time: nothing may wait by it

    def monotonic_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000

    def local_hour(self) -> int:
        return 0


@asynccontextmanager
async def serving(
    clock: Watch | None = None, conf: Path | None = None, **settings: Any
) -> AsyncIterator[NameServer]:
    settings = {"listen_port": 0, "kv_config_path": "", **settings}
    server = NameServer.open(NamesrvSettings(**settings), clock=clock, conf=conf)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def ask(
    channel: Channel, code: int, body: bytes = b"", *, version: int = 479, **ext: str
) -> Command:
    command = request(code, 0, body=body)
    command.ext.update(ext)
    command.version = version
    return await channel.call(command, 5)


def registration(*topics: str, counter: int = 1) -> bytes:
    table = {name: TopicConfig(topic_name=name, write_queue_nums=4) for name in topics}
    return encode_registration(Registration(TopicTable(DataVersion(counter=counter), table), []))


async def register(channel: Channel, *topics: str, counter: int = 1, **ext: str) -> Command:
    body = registration(*topics, counter=counter)
    return await ask(channel, RequestCode.REGISTER_BROKER, body, **{**WHO, **ext})


async def route_code(channel: Channel, topic: str, **ext: str) -> int:
    return (await ask(channel, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic, **ext)).code
