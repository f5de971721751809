"""A wrong address of a name server or broker has its sentence, in whatever notices it."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from cometmq import AsyncAdmin, AsyncProducer, AsyncPushConsumer, Message
from cometmq.errors import ConnectFailed, RouteNotFound
from cometmq.namesrv.app import NameServer
from cometmq.settings.namesrv import NamesrvSettings
from cometmq.testing.cluster import InProcessCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


async def send(namesrv: str) -> None:
    async with AsyncProducer("P", namesrv=namesrv, retries=0) as producer:
        await producer.send(Message("T", b"x"))


async def until_logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    async with asyncio.timeout(20):
        while text not in caplog.text:
            await asyncio.sleep(0.01)


@asynccontextmanager
async def name_server() -> AsyncIterator[NameServer]:
    server = NameServer.open(NamesrvSettings(listen_port=0, kv_config_path=""))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def test_a_broker_that_is_given_as_name_server_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with InProcessCluster(tmp_path) as cluster:
            with pytest.raises(ConnectFailed, match="is no name server but perhaps a broker"):
                await send(cluster.broker)
            both = f"{cluster.broker};{cluster.namesrv}"
            await send(both)  # the other one is asked
            async with AsyncAdmin(namesrv=both) as admin:  # by each of several calls
                await asyncio.gather(*(admin.topics() for _ in range(4)))
            consumer = AsyncPushConsumer("G", namesrv=cluster.broker)
            consumer.subscribe("T", "*", lambda _message: None)
            async with consumer:
                pass
            assert "is no name server but perhaps a broker" in caplog.text
            cluster.role._registration._name_servers = (cluster.broker,)
            await cluster.role._registration.register()

    asyncio.run(scenario())
    assert "did not take our registration: it is no name server but perhaps" in caplog.text


def test_a_name_server_that_knows_no_broker_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with name_server() as server:
            with pytest.raises(RouteNotFound, match="no broker is registered with the name server"):
                await send(server.address)
            consumer = AsyncPushConsumer("G", namesrv=server.address)
            consumer.subscribe("T", "*", lambda _message: None)
            async with consumer:
                while "no broker is registered with the name server" not in caplog.text:
                    await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_producer_that_starts_warns_of_name_servers_by_which_it_cannot_send(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            nobody = f"127.0.0.1:{listener.getsockname()[1]}"
        async with AsyncProducer("Nobody", namesrv=nobody):
            await until_logged(caplog, "group Nobody cannot send yet: no name server answers: no ")
        async with InProcessCluster(tmp_path) as cluster:
            async with AsyncProducer("Broker", namesrv=cluster.broker):
                await until_logged(caplog, "group Broker cannot send yet: no name server answers")
            caplog.clear()
            async with AsyncProducer("Well", namesrv=cluster.namesrv):
                await asyncio.sleep(0.1)
            assert caplog.text == ""
        async with name_server() as server, AsyncProducer("Empty", namesrv=server.address):
            await until_logged(caplog, "group Empty cannot send yet: no broker is registered")

    asyncio.run(scenario())


def test_an_address_on_which_the_broker_does_not_listen_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with InProcessCluster(tmp_path, brokerIP1="127.0.0.9") as cluster:
            with pytest.raises(ConnectFailed, match=r"the broker broker-a gives to clients"):
                await send(cluster.namesrv)
            while "clients are given the address 127.0.0.9" not in caplog.text:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_an_address_of_this_host_that_leads_to_the_broker_is_not_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def scenario() -> None:
        settings: dict[str, Any] = {"bindAddress": "0.0.0.0", "brokerIP1": "127.0.0.1"}
        async with InProcessCluster(tmp_path, **settings) as cluster:
            await send(cluster.namesrv)
            await asyncio.sleep(0.1)

    asyncio.run(asyncio.wait_for(scenario(), 20))
    assert caplog.text == ""


def test_the_port_that_the_system_chose_is_in_the_settings(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with InProcessCluster(tmp_path) as cluster, AsyncAdmin(namesrv=cluster.namesrv):
            broker, names = cluster.role, cluster.name_server
            assert f"listenPort={broker.port}\n" in broker._live.text()
            assert f"listenPort={names.port}\n" in names._live.text()

    asyncio.run(scenario())
