"""A name server and the brokers of one name, joined in memory, in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from broker.commands import Harness
from broker.harness import SMALL_STORE, STORE, new_broker, sim_worker
from cometmq.broker.served_broker import ServedBroker
from cometmq.client.admin.async_admin import AsyncAdmin
from cometmq.namesrv.app import NameServer
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.namesrv import NamesrvSettings
from cometmq.testing.sim_loop import LoopClock
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from broker.commands import Client
    from cometmq.broker.app import Broker
    from cometmq.settings.store import StoreSettings
    from cometmq.testing.sim_files import SimFiles

SYNC = {"broker_role": "SYNC_MASTER", "in_sync_replicas": 2, "slave_timeout_ms": 1_000}
SLAVE: dict[str, Any] = {"broker_role": "SLAVE", "broker_id": 1}


class Served:
    """A broker that may change its role, and its clients."""

    def __init__(self, served: ServedBroker) -> None:
        self.served = served

    @property
    def broker(self) -> Broker:
        return self.served.broker

    @property
    def is_master(self) -> bool:
        return not self.broker.settings.is_slave

    async def client(self) -> Client:
        return await Harness(self.broker).client()

    async def stop(self) -> None:
        await self.served.stop()


class Pair:
    """A name server, and the brokers that were started at it."""

    def __init__(self, name_server: NameServer, stack: AsyncExitStack) -> None:
        self.name_server = name_server
        self.namesrv = f"127.0.0.1:{name_server.port}"
        self.stack = stack

    async def start(self, store: StoreSettings = SMALL_STORE, **settings: Any) -> Harness:
        """One more broker; it stops with the pair, or by `broker.stop`."""
        broker = new_broker(store, namesrv_addr=self.namesrv, **settings)
        await broker.start()
        self.stack.push_async_callback(broker.stop)
        harness = Harness(broker)
        self.stack.callback(harness.close_clients)
        return harness

    async def serve(self, disk: SimFiles, **settings: Any) -> Served:
        """One more broker, which may change its role."""
        settings = {"broker_name": "b0", "listen_port": 0, **settings}
        served = ServedBroker.open(
            BrokerSettings(store_path_root_dir=str(STORE), namesrv_addr=self.namesrv, **settings),
            SMALL_STORE,
            clock=disk.clock,
            files=disk,
            worker=sim_worker,
        )
        await served.start()
        self.stack.push_async_callback(served.stop)
        return Served(served)

    async def admin(self) -> AsyncAdmin:
        admin = AsyncAdmin(namesrv=self.namesrv)
        await self.stack.enter_async_context(admin)
        return admin

    async def both(self, **settings: Any) -> tuple[Harness, Harness]:
        master, slave = await self.start(**settings), await self.start(**SLAVE)
        await until(lambda: end_of(slave) == end_of(master) > 0 or not end_of(master))
        return master, slave

    async def slave_alone(self, disk: SimFiles) -> Harness:
        """A slave whose master, of this disk, has stopped.

        The topic T has nine messages in each of the queues 0 and 1; the group CG has committed 2
        and 5 of them, at both.
        """
        master, slave = await self.start(disk=disk), await self.start(**SLAVE)
        client, offsets = await master.client(), slave.broker.state.offsets
        for number in range(18):
            await client.send("T", queue_id=number % 2)
        await commit(client, 2)
        await commit(client, 5, queueId="1")
        await until(lambda: [offsets.committed("CG", "T", each) for each in (0, 1)] == [2, 5])
        await master.broker.stop()
        return slave


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        namesrv = NameServer.open(NamesrvSettings(listen_port=0), clock=LoopClock())
        await namesrv.start()
        stack.push_async_callback(namesrv.stop)
        yield Pair(namesrv, stack)


def end_of(harness: Harness | Served) -> int:
    return harness.broker.store.max_phy_offset


async def commit(client: Client, offset: int, **more: str) -> None:
    await client.pull("T")  # the first use makes the group
    assert (await client.commit(offset, **more)).code == ResponseCode.SUCCESS


async def until(is_true: Callable[[], bool], limit_s: float = 120) -> None:
    loop = asyncio.get_running_loop()
    until_s = loop.time() + limit_s
    while not is_true():
        assert loop.time() < until_s, "it did not come true"
        await asyncio.sleep(0.05)
