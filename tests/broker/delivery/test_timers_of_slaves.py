"""A slave's timers follow its master's: once it delivers, none is lost and none comes twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from broker.commands import Client, Harness
from broker.harness import SMALL_STORE, new_broker, new_disk, run, running
from cometmq.store.timers.timer_checkpoint import decode_progress
from cometmq.wire.codes import RequestCode

if TYPE_CHECKING:
    from cometmq.broker.app import Broker

TIMERS = replace(SMALL_STORE, timer_log_file_bytes=4096, timer_roll_window_slot=4)


async def follow_once(client: Client, master: Broker, slave: Broker) -> None:
    """Do for the slave what its copy of the master's log and tables does."""
    answer = await client.call(RequestCode.GET_TIMER_CHECK_POINT)
    assert answer.code == 0
    at = slave.store.max_phy_offset
    while data := master.store.read_raw(at, 1 << 16):
        at = slave.store.append_raw(at, data)
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    await slave.state.timer_messages.follow(decode_progress(answer.body))
    await slave.state.timer_messages.save_in_thread(idle_ms=0)


@pytest.mark.parametrize("seed", range(6))
def test_a_slave_that_takes_over_delivers_each_timer_once(seed: int) -> None:
    async def scenario() -> None:
        rng, disk = Random(seed), new_disk()
        master, slave = new_broker(TIMERS), new_broker(TIMERS, disk=disk)
        slave.store.is_slave = True
        await master.start()
        await slave.store.start()
        client = await Harness(master).client()
        for number in range(60):
            extra = {"UNIQ_KEY": str(number), "TIMER_DELAY_MS": str(rng.randrange(1, 12_000))}
            await client.send("T", b"%d" % number, properties=extra)
            if rng.random() < 0.2:
                await asyncio.sleep(rng.random())
                await follow_once(client, master, slave)
        for _ in range(rng.randrange(1, 4)):
            await asyncio.sleep(rng.random() * 2)
            await follow_once(client, master, slave)
        slave.state.timers.close()
        await slave.store.stop()
        client.close()
        await master.stop()
        async with running(TIMERS, disk=disk) as harness:
            harness.broker.state.topics.ensure("T", 4)
            reader = await harness.client()
            await asyncio.sleep(20)
            found = await reader.drain("T")
            assert sorted(int(record.body) for record in found) == list(range(60))
            assert harness.broker.state.timers.waiting == 0

    run(scenario())


def test_a_slave_without_timers_has_none_of_their_files() -> None:
    async def scenario() -> None:
        disk = new_disk()
        master, slave = new_broker(TIMERS), new_broker(TIMERS, disk=disk)
        slave.store.is_slave = True
        await master.start()
        await slave.store.start()
        client = await Harness(master).client()
        await client.send("T", b"x")
        await follow_once(client, master, slave)
        assert "timercheck" not in disk.names(slave.store.commit_log_directory.parent / "config")
        await slave.store.stop()
        client.close()
        await master.stop()

    run(scenario())
