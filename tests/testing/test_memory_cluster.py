"""A whole cluster in memory: handlers in virtual time, the same run for the same seed."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from cometmq import AsyncProducer, AsyncPushConsumer, Message
from cometmq.testing import Inbox, MemoryCluster, in_virtual_time, until_assigned, until_idle

DELAYS_S = [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]
"""RocketMQ's pauses between the attempts of a concurrent group."""


def times_of_attempts(attempts: int, seed: int = 1) -> list[float]:
    """When a handler that fails all but the last attempt is called, in virtual seconds."""
    times: list[float] = []

    @in_virtual_time(seed=seed)
    async def scenario() -> None:
        now = asyncio.get_running_loop().time

        def fail(_message: object) -> None:
            times.append(round(now(), 3))
            if len(times) < attempts:
                raise ValueError("not yet")

        inbox = Inbox(fail)
        async with MemoryCluster(seed=seed) as cluster:
            consumer = AsyncPushConsumer("G", namesrv=cluster.namesrv, consume_from="first")
            consumer.subscribe("T", "*", inbox)
            async with AsyncProducer("P", namesrv=cluster.namesrv) as producer, consumer:
                await producer.send(Message("T", b"x"))
                await inbox.arrived(1, timeout_s=86_400)

    scenario()
    return times


def test_a_handler_is_tried_again_after_rocketmqs_pauses():
    times = times_of_attempts(7)
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert [round(pause, 1) for pause in pauses] == DELAYS_S[:6]


def test_the_same_seed_gives_the_same_run_in_every_process():
    code = (
        "import json, logging, sys; logging.disable()\n"
        "from test_memory_cluster import times_of_attempts\n"
        "print(json.dumps(times_of_attempts(3, seed=5)))"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parent,
            env=os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        ).stdout
        for seed in (1, 2)
    ]
    assert json.loads(runs[0]) == json.loads(runs[1]) == times_of_attempts(3, seed=5)


@in_virtual_time()
async def test_a_group_is_waited_for():
    async with MemoryCluster() as cluster:
        inbox = Inbox()
        consumer = AsyncPushConsumer("G", namesrv=cluster.namesrv, consume_from="first")
        consumer.subscribe("T", "*", inbox)
        async with AsyncProducer("P", namesrv=cluster.namesrv) as producer, consumer:
            await producer.send_many([Message("T", b"%d" % n, sharding_key="k") for n in range(50)])
            await until_assigned(cluster, "G", "T", members=1)
            await until_idle(cluster, "G", "T")
            assert sorted(map(int, inbox.bodies)) == list(range(50))
            with pytest.raises(AssertionError, match="1 of 2 members have queues"):
                await until_assigned(cluster, "G", "T", members=2, timeout_s=5)


@in_virtual_time()
async def test_a_broker_starts_on_what_another_left():
    async with MemoryCluster() as first, AsyncProducer("P", namesrv=first.namesrv) as producer:
        queue = (await producer.send(Message("T", b"kept"))).queue
    async with MemoryCluster(files=first.files) as second:
        assert second.role.store.max_offset("T", queue.queue_id) == 1


@in_virtual_time(limit_s=60)
async def wait_two_minutes():
    await asyncio.sleep(120)


def test_a_test_that_takes_too_long_ends():
    with pytest.raises(TimeoutError):
        wait_two_minutes()


def test_a_loop_of_real_time_is_refused():
    async def scenario() -> None:
        async with MemoryCluster():
            pass

    with pytest.raises(RuntimeError, match="in_virtual_time"):
        asyncio.run(scenario())
