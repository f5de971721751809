"""Faults of a cluster that tests plant, and what `cometmq doctor` says of them."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from cometmq import AsyncPushConsumer
from cometmq.cli.doctor_command import doctor
from cometmq.model.topic import DataVersion
from cometmq.net.channel import connect
from cometmq.wire.bodies.topic import Registration, TopicTable, encode_registration
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.headers.namesrv import RegisterBrokerRequestHeader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from cometmq.model.queue import MessageQueue


async def look(namesrv: str, *options: str) -> tuple[int, list[dict[str, str]]]:
    """The exit code of the command, and its findings that are not well."""
    arguments = ["--json", "--timeout", "0.5", "-n", namesrv, *options]
    done = await asyncio.to_thread(CliRunner().invoke, doctor, arguments)
    assert done.exit_code in (0, 1), done.output
    found = json.loads(done.stdout)
    assert found["well"] == (done.exit_code == 0)
    for one in found["findings"]:
        assert bool(one["advice"]) == (one["severity"] != "ok"), one
    return done.exit_code, [one for one in found["findings"] if one["severity"] != "ok"]


@asynccontextmanager
async def member(
    namesrv: str, name: str, topic: str, tags: str = "*", **more: Any
) -> AsyncIterator[Any]:
    """A member of the group `clerks` that has divided its queues."""
    consumer = AsyncPushConsumer("clerks", namesrv=namesrv, instance_name=name, **more)
    consumer.subscribe(topic, tags, lambda _message: None)
    async with consumer:
        yield consumer


@asynccontextmanager
async def registered(namesrv: str, addr: str, name: str = "broker-b") -> AsyncIterator[None]:
    """A broker that a name server knows at this address, as long as we stay connected."""
    channel = await connect(namesrv)
    header = RegisterBrokerRequestHeader(
        broker_name=name, broker_addr=addr, cluster_name="C", ha_server_addr=addr, broker_id=0
    )
    body = encode_registration(Registration(TopicTable(DataVersion(), {}), []))
    answer = await channel.call(request(RequestCode.REGISTER_BROKER, 0, header, body), 5.0)
    assert answer.code == 0, answer
    yield
    channel.close()


def unused_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def first_only(_mine: str, queues: list[MessageQueue], _members: list[str]) -> list[MessageQueue]:
    """An allocation that leaves all queues but one without an owner."""
    return queues[:1]
