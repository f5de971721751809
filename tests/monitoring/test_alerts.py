"""Each alert rule fires for a broker in its state, and none for a broker that is well."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from broker.commands import send_header
from broker.delivery.send_back_commands import send_and_pull, send_back
from broker.harness import SMALL_STORE, new_disk, run, running
from broker.replication.broker_pair import SLAVE, pair, until
from cometmq.cli.monitored_roles import MonitoredNameServer
from cometmq.metrics.registry import Sample
from cometmq.monitoring.monitoring_server import READY
from cometmq.monitoring.prometheus_writer import LabelledSamples, PrometheusWriter
from cometmq.testing.sim_files import SimWorker
from cometmq.wire.codes import RequestCode
from cometmq.wire.records import message_batch
from cometmq.wire.records.message_batch import BatchItem
from monitoring.promql import UNITS, Evaluation, Scrape, failed, scraped

if TYPE_CHECKING:
    from broker.commands import Client, Harness

DEPLOY = Path(__file__).parents[2] / "deploy"
STEP_S = 60.0
TARGET = {"job": "cometmq", "instance": "broker:5557"}
NODE = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "b0"}


@cache
def rules() -> dict[str, dict[str, Any]]:
    found = yaml.safe_load((DEPLOY / "alerts.yml").read_text(encoding="utf-8"))
    return {rule["alert"]: rule for group in found["groups"] for rule in group["rules"]}


def seconds(text: str) -> float:
    return int(text[:-1]) * UNITS[text[-1]]


def firing(scrapes: list[Scrape]) -> set[str]:
    """The alerts whose expression held for as long as they wait, until the last scrape."""
    end_s = scrapes[-1].at_s
    found = set()
    for name, rule in rules().items():
        since_s = end_s - seconds(rule.get("for", "0s"))
        times = [scrape.at_s for scrape in scrapes if scrape.at_s >= since_s]
        if times[0] > since_s + STEP_S:
            continue  # it was not looked at for as long as the rule waits
        held = [set(Evaluation(rule["expr"], scrapes, at_s).result) for at_s in times]
        if set.intersection(*held):
            found.add(name)
    return found


class Watcher:
    """Scrapes a broker in memory as Prometheus scrapes its port."""

    def __init__(self, harness: Harness, series_max: int = 1000) -> None:
        self._harness = harness
        self._series_max = series_max
        self._writer = PrometheusWriter(series_max)
        self.scrapes: list[Scrape] = []

    async def look(self) -> None:
        broker = self._harness.broker
        samples = [Sample(READY, (), int(not broker.health.problems()))]
        samples += [one async for one in broker.figures.each(self._series_max)]
        text = self._writer.encode([LabelledSamples(NODE, samples)], "")[0].decode()
        now_s = asyncio.get_running_loop().time()
        self.scrapes.append(scraped(now_s, text, **TARGET))

    async def watch(self, minutes: float) -> set[str]:
        """Look for so long; which alerts fire then."""
        for _ in range(int(minutes * 60 / STEP_S) + 1):
            await self.look()
            await asyncio.sleep(STEP_S)
        return firing(self.scrapes)


async def traffic(client: Client, topic: str = "T") -> None:
    for _ in range(3):
        assert (await client.send(topic)).code == 0


def test_nothing_fires_for_a_broker_that_is_well() -> None:
    async def scenario() -> None:
        async with running() as harness:
            watcher = Watcher(harness)
            for done in range(8):
                client = await harness.client()
                await client.beat("CG", "T")
                await traffic(client)
                await client.pull("T")
                await client.commit(3 * done + 3)
                await watcher.watch(1.5)
            assert firing(watcher.scrapes) == set()

    run(scenario())


def test_a_full_disk_fires_what_is_about_disks_puts_and_readiness() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(SMALL_STORE, disk=disk) as harness:
            watcher = Watcher(harness)
            await watcher.watch(1)
            disk.total, disk.used = 100, 99
            await asyncio.sleep(30)
            client = await harness.client()
            assert (await client.send("T")).code != 0
            fired = await watcher.watch(4.5)
            assert fired >= {"CometmqDiskFilling", "CometmqNotReady"}
            assert fired <= {"CometmqDiskFilling", "CometmqNotReady", "CometmqPutsFail"}

    run(scenario())


def test_writes_that_fail_fire() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(SMALL_STORE, disk=disk) as harness:
            watcher = Watcher(harness)
            await traffic(await harness.client())
            await watcher.watch(1)
            client = await harness.client()
            disk.room = 0
            await client.send("T", b"x" * 100_000)
            disk.room = None
            assert "CometmqPutsFail" in await watcher.watch(1)

    run(scenario())


class SlowDisk(SimWorker):
    """A thread whose every flush takes a second."""

    def _wait(self, _turns: int) -> None:
        asyncio.get_running_loop().call_later(1.0, self._run)


def test_a_slow_disk_makes_puts_slow() -> None:
    async def scenario() -> None:
        store = replace(SMALL_STORE, flush_disk_type="SYNC_FLUSH")
        async with running(store, worker=lambda _name: SlowDisk(Random(1))) as harness:
            watcher = Watcher(harness)
            await watcher.look()
            for _ in range(13):
                client = await harness.client()
                await client.send("T")
                await watcher.watch(0.5)
            assert "CometmqPutsSlow" in firing(watcher.scrapes)

    run(scenario())


def test_a_group_that_is_far_behind_and_late_fires() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client, watcher = await harness.client(), Watcher(harness)
            await client.beat("CG", "T")
            await traffic(client)
            await client.commit(1)
            body = message_batch.encode([BatchItem(0, b"x", b"")] * 1000)
            for _ in range(11):
                header = send_header("T", batch=True, properties={})
                answer = await client.call(RequestCode.SEND_BATCH_MESSAGE, header, body)
                assert answer.code == 0
            for _ in range(16):
                await (await harness.client()).beat("CG", "T")
                fired = await watcher.watch(1)
            assert fired == {"CometmqGroupBehind", "CometmqGroupLate"}

    run(scenario())


def test_a_group_whose_members_are_gone_fires_while_messages_wait() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client, watcher = await harness.client(), Watcher(harness)
            await client.beat("CG", "T")
            await traffic(client)
            await client.commit(3)
            harness.close_clients()
            assert "CometmqGroupWithoutMembers" not in await watcher.watch(10.5)
            await traffic(await harness.client())
            assert "CometmqGroupWithoutMembers" in await watcher.watch(10.5)

    run(scenario())


def test_dead_letters_fire_once_they_come() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client, watcher = await harness.client(), Watcher(harness)
            first = await send_and_pull(client)
            await send_back(client, first, delayLevel=-1)
            assert "CometmqDeadLetters" not in await watcher.watch(10.5)
            client = await harness.client()
            await send_back(client, await send_and_pull(client), delayLevel=-1)
            assert "CometmqDeadLetters" in await watcher.watch(0.5)

    run(scenario())


def test_a_slave_that_lags_and_one_that_is_gone_fire() -> None:
    async def scenario() -> None:
        async with pair() as brokers:
            settings = {"ha_flow_control_enable": True, "max_ha_transfer_bytes_per_second": 1}
            master = await brokers.start(**settings)
            slave = await brokers.start(**SLAVE)
            await until(lambda: bool(master.broker._replication.slaves()))
            watcher = Watcher(master)
            await watcher.watch(3)
            client = await master.client()
            for _ in range(40):
                await client.send("T", b"x" * 1000)
            fired = await watcher.watch(3.5)
            assert "CometmqSlaveBehind" in fired
            assert "CometmqSlaveMissing" not in fired
            await slave.broker.stop()
            assert "CometmqSlaveMissing" in await watcher.watch(1.5)

    run(scenario())


def test_a_broker_that_no_name_server_knows_any_more_fires() -> None:
    async def scenario() -> None:
        async with pair() as brokers:
            names = brokers.name_server
            broker = await brokers.start()
            role, writer = MonitoredNameServer(names), PrometheusWriter(100)
            scrapes: list[Scrape] = []

            async def watch(minutes: float) -> set[str]:
                for _ in range(int(minutes * 60 / STEP_S) + 1):
                    samples = [one async for one in role.figures(100)]
                    text = writer.encode([LabelledSamples(role.labels, samples)], "")[0].decode()
                    now_s = asyncio.get_running_loop().time()
                    scrapes.append(scraped(now_s, text, job="cometmq", instance="names:5557"))
                    await asyncio.sleep(STEP_S)
                return firing(scrapes)

            assert await watch(10.5) == set()
            await broker.broker.stop()
            assert await watch(1.5) == {"CometmqBrokerUnregistered"}

    run(scenario())


def test_a_process_that_does_not_answer_fires() -> None:
    times = range(0, 1300, int(STEP_S))
    scrapes = [failed(float(each), **TARGET) for each in times]
    assert firing(scrapes) == {"CometmqDown"}


def test_series_that_are_left_out_fire() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client, watcher = await harness.client(), Watcher(harness, series_max=3)
            for number in range(5):
                await client.send(f"T{number}")
            assert await watcher.watch(10.5) == {"CometmqSeriesLeftOut"}

    run(scenario())


def test_every_rule_has_a_state_above_in_which_it_fires() -> None:
    tested = set(re.findall(r'"(Cometmq\w+)"', Path(__file__).read_text(encoding="utf-8")))
    assert tested == set(rules())
    for rule in rules().values():
        assert rule["annotations"].keys() == {"summary", "description"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")


@pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="needs promtool (Debian: prometheus); `make interop` demands it",
)
def test_promtool_finds_no_fault_in_the_rules() -> None:
    command = ["promtool", "check", "rules", str(DEPLOY / "alerts.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
