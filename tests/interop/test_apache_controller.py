"""Apache's controller elects a slave of ours, and its notification promotes it.

No broker of ours speaks with a controller: the test speaks for three of them. What is missing, and
why an election alone loses messages, is in docs/decisions/035-a-promotion-begins-an-epoch.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from cometmq import AsyncProducer, Message, SendStatus
from cometmq.client.admin.async_admin import AsyncAdmin
from cometmq.client.admin.promotion import SlavePromotion
from cometmq.errors import CometError
from cometmq.net.channel_pool import ChannelPool
from cometmq.testing.cluster import ServerProcess
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request
from interop.apache import ApacheRole, free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cometmq.model.replication import EpochStatus
    from cometmq.wire.command import Command

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]
GROUP = {"clusterName": "DefaultCluster", "brokerName": "elected"}
BEAT_S, TIMEOUT_MS, COUNT = 0.3, 3_000, 200


class Spokesman:
    """Speaks with a controller for brokers that do not."""

    def __init__(self, controller: str, admin: AsyncAdmin) -> None:
        self._controller, self._pool = controller, ChannelPool()
        self._promotion = SlavePromotion(admin._running())
        self.ids: dict[str, int] = {}

    async def ask(self, code: int, body: bytes = b"", **fields: object) -> Command:
        command = request(code, 0, None, body)
        command.ext.update({name: str(value) for name, value in fields.items()})
        answer = await (await self._pool.channel(self._controller)).call(command, 10)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return answer

    async def status(self, addr: str) -> EpochStatus | None:
        with contextlib.suppress(CometError):
            return await self._promotion.status(addr)
        return None

    async def register(self, addr: str) -> None:
        said = await self.ask(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, **GROUP)
        number = said.ext["nextBrokerId"]
        code = {"appliedBrokerId": number, "registerCheckCode": f"{addr};1"}
        await self.ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, **GROUP, **code)
        more = {"brokerId": number, "brokerAddress": addr, "invokeTime": now_ms()}
        await self.ask(RequestCode.CONTROLLER_REGISTER_BROKER, **GROUP, **more)
        self.ids[addr] = int(number)

    async def beat(self) -> None:
        """Tell the controller again and again who answers, and how far each is."""
        while True:
            for addr, number in self.ids.items():
                if (status := await self.status(addr)) is None:
                    continue
                said = {"epoch": status.epochs[-1].number, "maxOffset": status.log_end}
                more = {"brokerAddr": addr, "brokerId": number, "confirmOffset": status.log_end}
                more |= {"heartbeatTimeoutMills": TIMEOUT_MS, "electionPriority": number}
                await self.ask(RequestCode.BROKER_HEARTBEAT, **GROUP, **said, **more)
            await asyncio.sleep(BEAT_S)

    async def make_first_master(self, addr: str) -> None:
        """Have a broker elected that is the master already; all are in sync with it."""
        more = {"brokerId": self.ids[addr], "designateElect": False, "invokeTime": now_ms()}
        elected = await self.ask(RequestCode.CONTROLLER_ELECT_MASTER, **GROUP, **more)
        epoch = int(elected.ext["syncStateSetEpoch"])
        body = {"syncStateSet": sorted(self.ids.values()), "syncStateSetEpoch": epoch}
        await self.ask(
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
            json.dumps(body).encode(),
            brokerName=GROUP["brokerName"],
            masterBrokerId=self.ids[addr],
            masterEpoch=elected.ext["masterEpoch"],
            invokeTime=now_ms(),
        )


def now_ms() -> int:
    return int(time.time() * 1000)


async def until(is_true: Callable[[], Any], limit_s: float = 90) -> None:
    async with asyncio.timeout(limit_s):
        while not await is_true():
            await asyncio.sleep(0.2)


def controller(jars: Path, home: Path) -> tuple[ApacheRole, str]:
    port = free_port()
    settings = {
        "controllerDLegerGroup": "c",
        "controllerDLegerPeers": f"n0-127.0.0.1:{port}",
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": home / "log",
        "mappedFileSize": 1 << 20,
        "scanNotActiveBrokerInterval": 500,
    }
    main = "org.apache.rocketmq.controller.ControllerStartup"
    return ApacheRole(jars, main, 256, home, settings), f"127.0.0.1:{port}"


def broker(namesrv: str, store: Path, number: int, port: int = 0) -> ServerProcess:
    sets = {"brokerName": GROUP["brokerName"], "inSyncReplicas": 2, "brokerId": number}
    sets |= {"brokerRole": "SLAVE" if number else "SYNC_MASTER"}
    given = [f"--set={key}={value}" for key, value in sets.items()]
    return ServerProcess(["broker", f"-n{namesrv}", f"-p{port}", f"--store={store}", *given])


def test_a_controller_elects_a_slave_of_ours_and_nothing_answered_is_missing(
    apache_jars: Path, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            elector, addr = controller(apache_jars, tmp_path / "controller")
            stack.callback(elector.stop)
            names = ServerProcess(["namesrv", "-p0"])
            stack.callback(names.stop)
            namesrv = names.facts["namesrv"]
            ports = [free_port() for _ in range(3)]
            brokers = [broker(namesrv, tmp_path / f"{n}", n, ports[n]) for n in range(3)]
            for each in brokers[1:]:
                stack.callback(each.stop)
            admin = await stack.enter_async_context(AsyncAdmin(namesrv=namesrv))
            addrs = [f"127.0.0.1:{port}" for port in ports]
            elected = await lose_the_master(stack, admin, namesrv, addr, brokers, addrs)
            log = b"".join(
                each.read_bytes() for each in (tmp_path / f"{elected}/commitlog").iterdir()
            )
            assert [n for n in range(COUNT) if b"<%d>" % n not in log] == []
            back = broker(namesrv, tmp_path / "0", 0, ports[0])
            stack.callback(back.stop)
            speaks = Spokesman(addr, admin)

            async def has_stepped_down() -> bool:
                said = await speaks.status(addrs[0])
                return said is not None and not said.is_master and said.epochs[-1].number == 2

            await until(has_stepped_down)

    asyncio.run(scenario())


async def lose_the_master(
    stack: AsyncExitStack,
    admin: AsyncAdmin,
    namesrv: str,
    controller_addr: str,
    brokers: list[ServerProcess],
    addrs: list[str],
) -> int:
    """Kill the master after some sends; which broker was elected and takes sends now."""
    speaks = Spokesman(controller_addr, admin)

    async def all_follow() -> bool:
        return len((await admin.replication_status(addrs[0])).slaves) == 2

    await until(all_follow)
    for addr in addrs:
        await speaks.register(addr)
    beating = asyncio.ensure_future(speaks.beat())
    stack.callback(beating.cancel)
    await asyncio.sleep(2 * BEAT_S)
    await speaks.make_first_master(addrs[0])
    producer = await stack.enter_async_context(AsyncProducer("p", namesrv=namesrv))
    for number in range(COUNT):
        result = await producer.send(Message("T", b"<%d>" % number), timeout_s=20.0)
        assert result.status is SendStatus.SEND_OK
    brokers[0].kill()

    async def is_elected() -> bool:
        found = [await speaks.status(addr) for addr in addrs[1:]]
        return any(each is not None and each.is_master for each in found)

    await until(is_elected)
    said = await speaks.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, brokerName="elected")
    assert said.ext["masterEpoch"] == "2"
    new_master = await speaks.status(said.ext["masterAddress"])
    assert new_master is not None
    assert (new_master.is_master, new_master.epochs[-1].number) == (True, 2)

    async def is_writable() -> bool:
        with contextlib.suppress(CometError):
            return (await producer.send(Message("T", b"after"))).status is SendStatus.SEND_OK
        return False

    await until(is_writable)
    assert not beating.done()
    return addrs.index(said.ext["masterAddress"])
