"""Guarded servers in memory, and requests signed as clients sign them."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from broker.commands import Client
from broker.harness import running
from cometmq.namesrv.app import NameServer
from cometmq.net.channel import connect
from cometmq.settings.access import AccessSettings
from cometmq.settings.namesrv import NamesrvSettings
from cometmq.testing.sim_files import SimFiles
from cometmq.testing.sim_loop import LoopClock
from cometmq.wire.command import request
from cometmq.wire.request_signature import Credentials, add_signature

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from broker.commands import Harness
    from cometmq.net.connection import Connection
    from cometmq.wire.command import Command
    from cometmq.wire.frame import Frame
    from cometmq.wire.headers.base import Header

ROOT = Credentials("root", "root-of-many")
USER = Credentials("user", "user-of-many")
GUARDED = AccessSettings(
    authentication_enabled=True,
    authorization_enabled=True,
    init_authentication_user=json.dumps({"username": ROOT[0], "password": ROOT[1]}),
)


class Signer(Client):
    """One connection whose requests are signed with these keys, or not at all."""

    keys: Credentials | None = None

    async def call(
        self, code: int, header: Header | None = None, body: bytes = b"", **ext: str
    ) -> Command:
        command = request(code, 0, header, body)
        command.ext.update(ext)
        if self.keys is not None:
            add_signature(command, self.keys)
        return await self.channel.call(command, 10)


def signer(client: Client, keys: Credentials | None) -> Signer:
    """The same connection, signing."""
    made = Signer(client.channel, client.asked)
    made.keys = keys
    return made


@asynccontextmanager
async def guarded(access: AccessSettings = GUARDED, **more: Any) -> AsyncIterator[Harness]:
    """A broker in memory that asks for signatures and rights."""
    async with running(access=access, **more) as harness:
        yield harness


def slow_frames(harness: Harness) -> list[Frame]:
    """Grows by each request that no fast path of the broker takes from now on."""
    seen: list[Frame] = []
    server = harness.broker._server
    answer = server.answer

    def noted(frame: Frame, connection: Connection) -> None:
        seen.append(frame)
        answer(frame, connection)

    server.answer = noted
    return seen


async def as_root(harness: Harness) -> Signer:
    """A connection of the super user."""
    return signer(await harness.client(), ROOT)


async def as_user(harness: Harness) -> Signer:
    """A connection of the other user."""
    return signer(await harness.client(), USER)


async def give_rights(root: Signer, *entries: dict[str, Any], keys: Credentials = USER) -> None:
    """Make a user, unless there is one, with policies."""
    fields = {"password": keys.secret_key, "userType": "Normal"}
    made = await root.call(3001, body=json.dumps(fields).encode(), username=keys.access_key)
    assert made.remark in (None, "The user is existed"), made
    if entries:
        acl = {"policies": [{"policyType": "Custom", "entries": entries}]}
        subject = f"User:{keys.access_key}"
        made = await root.call(3006, body=json.dumps(acl).encode(), subject=subject)
        assert made.code == 0, made.remark


def entry(resource: str, *actions: str, **more: Any) -> dict[str, Any]:
    """One entry of a policy, as RocketMQ's tools send it."""
    return {"resource": resource, "actions": list(actions), "decision": "Allow", **more}


@asynccontextmanager
async def guarded_name_server(
    access: AccessSettings = GUARDED, present: Mapping[str, str] | None = None
) -> AsyncIterator[NameServer]:
    """A name server in memory that asks for signatures and rights."""
    disk = SimFiles(Random(1), LoopClock())
    for name, text in (present or {}).items():
        disk.make_dir(Path(name).parent)
        disk.write(Path(name), text.encode())
    settings = NamesrvSettings(listen_port=0, kv_config_path="/names/kvConfig.json")
    server = NameServer.open(settings, access=access, files=disk, clock=disk.clock)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def connected(server: NameServer, keys: Credentials | None) -> AsyncIterator[Signer]:
    """A connection to it that signs with these keys."""
    channel = await connect(server.address)
    made = Signer(channel, asyncio.Queue())
    made.keys = keys
    try:
        yield made
    finally:
        channel.close()
