"""Why a broker says that it is not ready, in each bad state, and that it is ready again."""

from __future__ import annotations

import asyncio

from broker.harness import SMALL_STORE, new_broker, new_disk, run, running


def test_a_broker_is_ready_between_its_start_and_its_stop() -> None:
    async def scenario() -> None:
        broker = new_broker()
        assert broker.health.problems() == ["the broker starts or stops"]
        await broker.start()
        assert broker.health.problems() == []
        await broker.stop()
        assert broker.health.problems() == ["the broker starts or stops"]

    run(scenario())


def test_a_full_disk_is_named_until_there_is_room() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(SMALL_STORE, disk=disk) as harness:
            client = await harness.client()
            disk.total, disk.used = 100, 99
            while not harness.broker.health.problems():
                await asyncio.sleep(1)
            assert "disk is full" in harness.broker.health.problems()[0]
            assert (await client.send("T")).code != 0
            disk.used = 10
            while harness.broker.health.problems():
                await asyncio.sleep(1)
            assert (await client.send("T")).code == 0

    run(scenario())


def test_a_broker_that_no_name_server_knows_is_not_ready() -> None:
    async def scenario() -> None:
        async with running(namesrv_addr="127.0.0.1:1") as harness:
            (problem,) = harness.broker.health.problems()
            assert "no name server" in problem

    run(scenario())
