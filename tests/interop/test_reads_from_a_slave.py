"""Readers far behind go to a slave and come back, and go on there without a master.

Brokers in processes; our consumer, Java's and Spark. What a broker gave to readers is asked for by
its runtime information.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

import pytest

from cometmq import Admin, Message, Producer, PushConsumer, SendStatus
from cometmq.errors import CometError
from cometmq.runtime.system_clock_and_files import ram_bytes
from cometmq.testing.cluster import ServerProcess
from crash.replicated_brokers import until
from interop.apache import free_port
from interop.on_spark import ON_SPARK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from interop.conftest import Run

pytestmark = ON_SPARK
TOPIC, FILLER, QUEUES, NAME = "FarBehind", "InBetween", 4, "pair"
OLD, NEW = 1_600, 600
COMMON: dict[str, object] = {
    "brokerName": NAME,
    "inSyncReplicas": 2,
    "slaveTimeout": 20_000,
    "slaveReadEnable": "true",
    "accessMessageInMemoryMaxRatio": 1,
    "mappedFileSizeCommitLog": 64 << 20,
    "diskMaxUsedSpaceRatio": 95,
    "haSendHeartbeatInterval": 300,
}


class Brokers:
    """A master whose backlog is larger than 1 % of the memory, and its slave."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._names = ServerProcess(["namesrv", "-p0"])
        self.namesrv = str(self._names.facts["namesrv"])
        self.admin = Admin(namesrv=self.namesrv)
        self._ports = {"SYNC_MASTER": free_port(), "SLAVE": free_port()}
        self.master, self.slave = (f"127.0.0.1:{port}" for port in self._ports.values())
        self.sent = 0
        self._processes: dict[str, ServerProcess] = {}

    def __enter__(self) -> Self:
        self.start("SYNC_MASTER")
        self.start("SLAVE")
        self.admin.start()
        for topic in (TOPIC, FILLER):
            self.admin.create_topic(topic, QUEUES)
        until(lambda: self.in_sync(), "the slave has all of the log")
        return self

    def __exit__(self, *_: object) -> None:
        self.admin.stop()
        for process in (*self._processes.values(), self._names):
            process.kill()

    def start(self, role: str) -> None:
        port = self._ports[role]
        settings = COMMON | {
            "brokerRole": role, "brokerId": int(role == "SLAVE"), "haListenPort": port + 1
        }  # fmt: skip
        sets = [f"--set={key}={value}" for key, value in settings.items()]
        store = f"--store={self._place / role}"
        self._processes[role] = ServerProcess(
            ["broker", f"-n{self.namesrv}", f"-p{port}", store, *sets], timeout_s=60
        )

    def kill_master(self) -> None:
        self._processes.pop("SYNC_MASTER").kill()
        until(lambda: self.admin.clusters().broker_addr_table[NAME].broker_addrs.keys() == {1},
              "name servers know that the master is gone")  # fmt: skip

    def in_sync(self) -> bool:
        with contextlib.suppress(CometError):
            slaves = self.admin.replication_status(self.master).slaves
            topics = self.admin.clusters()
            return bool(topics) and [each.lag_bytes for each in slaves] == [0]
        return False

    def send(self, count: int, topic: str = TOPIC, size: int = 0) -> None:
        first = self.sent if topic == TOPIC else 0
        with Producer("fill", namesrv=self.namesrv) as producer:
            for number in range(first, first + count):
                message = Message(topic, b"%d" % number + os.urandom(size))  # none is compressed
                assert producer.send(message, timeout_s=30.0).status is SendStatus.SEND_OK
        self.sent += count if topic == TOPIC else 0

    def fill(self) -> None:
        """Old messages, then more than 1 % of the memory, then new ones."""
        self.send(OLD)
        self.send(ram_bytes() // 100 // (2 << 20) + 20, FILLER, 2 << 20)
        self.send(NEW)
        until(self.in_sync, "the slave has all of the log")

    def given(self) -> Counter[str]:
        """How many messages each broker has given to readers so far."""
        found: Counter[str] = Counter()
        for name, addr in (("master", self.master), ("slave", self.slave)):
            with contextlib.suppress(CometError):
                facts: dict[str, Any] = self.admin.broker_status(addr)
                found[name] = int(facts["msgGetTotalTodayNow"])
        return found

    def committed(self, group: str) -> int:
        return sum(each or 0 for each in self.admin.group_offsets(group, TOPIC).values())


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with Brokers(tmp_path_factory.mktemp("pair")) as both:
        both.fill()
        yield both


def assert_old_came_from_the_slave(before: Counter[str], after: Counter[str]) -> None:
    """The first pulls are at the master, which then says where to go; the last ones again."""
    master, slave = (after[name] - before[name] for name in ("master", "slave"))
    assert slave >= OLD - QUEUES * 32, (master, slave)
    assert master >= NEW - QUEUES * 32, (master, slave)


def test_our_consumer_far_behind_reads_at_the_slave_and_comes_back(brokers: Brokers) -> None:
    got: Counter[bytes] = Counter()
    before = brokers.given()
    consumer = PushConsumer("Ours", namesrv=brokers.namesrv, consume_from="first")
    consumer.subscribe(TOPIC, handler=lambda messages: got.update(m.body for m in messages))
    with consumer:
        until(lambda: len(got) == brokers.sent, "everything is handled")
        between = brokers.given()
        assert_old_came_from_the_slave(before, between)
        brokers.send(NEW)
        until(lambda: len(got) == brokers.sent, "what is new is handled")
        assert brokers.given()["master"] >= between["master"] + NEW
        until(lambda: brokers.committed("Ours") == brokers.sent, "it is committed at the master")
    assert set(got.values()) == {1}


def test_java_s_consumer_far_behind_reads_at_the_slave_and_comes_back(
    brokers: Brokers, java_program: Run
) -> None:
    before, total = brokers.given(), brokers.sent
    said = java_program("consume", brokers.namesrv, TOPIC, "Javas", total)
    assert len({line.split()[-1] for line in said if line.startswith("GOT")}) == total
    assert_old_came_from_the_slave(before, brokers.given())


def test_without_a_master_all_go_on_at_the_slave_and_their_commits_come_back(
    brokers: Brokers, java_program: Run, spark: SparkSession
) -> None:
    total = brokers.sent
    brokers.kill_master()
    options = {"namesrv": brokers.namesrv, "topic": TOPIC, "group": "Sparks"}
    rows = spark.read.format("rocketmq").options(**options).load()
    bodies = {row[0] for row in rows.select("body").collect()}
    assert {bytes(body).decode() for body in bodies} == {str(each) for each in range(total)}

    got: Counter[bytes] = Counter()
    consumer = PushConsumer("Ours2", namesrv=brokers.namesrv, consume_from="first")
    consumer.subscribe(TOPIC, handler=lambda messages: got.update(m.body for m in messages))
    with consumer:
        until(lambda: len(got) == total, "everything is handled")
    said = java_program("consume", brokers.namesrv, TOPIC, "Javas2", total)
    assert len({line.split()[-1] for line in said if line.startswith("GOT")}) == total

    brokers.start("SYNC_MASTER")
    until(brokers.in_sync, "the slave follows again")
    for group in ("Ours2", "Javas2"):
        until(lambda group=group: brokers.committed(group) == total, f"{group} is at the master")
