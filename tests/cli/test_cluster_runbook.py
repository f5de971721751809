"""The commands of docs/operate/cluster.md, run in their order under load: nothing is lost."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from cli.in_process import cometmq
from client.short_delay_cluster import until
from cometmq import Admin, CometError, ConsumeFrom, Message, Producer, PushConsumer
from cometmq.testing.cluster import LocalCluster, ServerProcess

if TYPE_CHECKING:
    from cli.in_process import Done
    from cometmq import MessageExt

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operate" / "cluster.md"
BOUND_S = 90


def commands(title: str) -> list[list[str]]:
    """The commands under a heading of the page."""
    section = PAGE.read_text(encoding="utf-8").partition(f"## {title}\n")[2]
    block = re.search(r"```\n(.*?)```", section, re.DOTALL)
    assert block
    return [shlex.split(line) for line in block[1].splitlines()]


class Load(Thread):
    """Sends numbers until `ended` is set; what was stored is in `sent`."""

    def __init__(self, namesrv: str) -> None:
        super().__init__()
        self.namesrv, self.sent, self.failed, self.ended = namesrv, set[int](), 0, Event()
        self.brokers: list[str] = []

    def run(self) -> None:
        with Producer("runbook", namesrv=self.namesrv, retries=5) as producer:
            while not self.ended.wait(0.01):
                number = len(self.sent) + self.failed
                try:
                    result = producer.send(Message("orders", b"%d" % number), 10.0)
                except CometError:
                    self.failed += 1
                else:
                    self.sent.add(number)
                    self.brokers.append(result.queue.broker_name)


class Runbook:
    """Runs the page's commands at a cluster on other ports and directories."""

    def __init__(self, namesrv: str, store: Path) -> None:
        self._namesrv, self._store = namesrv, store
        self.broker: ServerProcess | None = None

    def run(self, title: str) -> dict[str, Done]:
        """The output of each command, by its first words."""
        found = {}
        for words in commands(title):
            given = [
                word.replace("127.0.0.1:9876", self._namesrv)
                .replace("/srv/broker-b", str(self._store))
                .replace("10921", "0")
                for word in words
            ]
            if given[0] == "kill":
                assert self.broker is not None
                assert self.broker.stop() == 0
            elif given[1] == "broker":
                self.broker = ServerProcess(given[1:], timeout_s=BOUND_S)
            else:
                done = cometmq(*given[1:])
                deadline = time.monotonic() + BOUND_S
                while done.code and given[1] == "doctor":  # until members have the new queues
                    assert time.monotonic() < deadline, done
                    time.sleep(0.5)
                    done = cometmq(*given[1:])
                assert done.code == 0, done
                found[" ".join(given[1:3])] = done
        return found


def test_a_broker_joins_is_drained_and_leaves_and_nothing_is_lost(tmp_path: Path) -> None:
    got: list[int] = []
    brokers: set[str] = set()

    def handle(messages: list[MessageExt]) -> None:
        for message in messages:
            got.append(int(message.body))
            brokers.add(message.broker_name)

    with LocalCluster(tmp_path / "a", apart=True, broker_name="broker-a") as cluster:
        with Admin(namesrv=cluster.namesrv) as admin:
            admin.create_topic("orders", 4)
        load, runbook = Load(cluster.namesrv), Runbook(cluster.namesrv, tmp_path / "b")
        consumer = PushConsumer(
            "orders-readers",
            namesrv=cluster.namesrv,
            consume_from=ConsumeFrom.FIRST,
            persist_s=0.5,
        )
        consumer.subscribe("orders", "*", handle)
        try:
            with consumer:
                load.start()
                until(lambda: len(load.sent) > 20)
                joined = runbook.run("A broker joins")
                assert "broker-b" in joined["brokers list"].out
                assert "broker-b" in joined["topic route"].out
                until(lambda: "broker-b" in brokers, BOUND_S)
                runbook.run("A broker is drained")
                until(lambda: drained(load, cluster.namesrv), BOUND_S)
                gone = runbook.run("A broker leaves")
                assert "broker-b" not in gone["brokers list"].out
                assert "broker-b" not in gone["topic route"].out
                enough = len(load.sent) + 50
                until(lambda: len(load.sent) > enough, BOUND_S)
                load.ended.set()
                load.join()
                until(lambda: set(got) >= load.sent, BOUND_S)
        finally:
            load.ended.set()
            if runbook.broker is not None and runbook.broker.is_running:
                runbook.broker.kill()
        assert load.failed == 0


def drained(load: Load, namesrv: str) -> bool:
    """Whether nothing is sent to the broker any more, and its group has done all of it there."""
    before = len(load.brokers)
    until(lambda: len(load.brokers) > before + 40, BOUND_S)
    if "broker-b" in load.brokers[before:]:
        return False
    rows = cometmq("group", "lag", "orders-readers", "--json", "-n", namesrv).json["queues"]
    time.sleep(0.1)
    return all(row["lag"] == 0 for row in rows if row["broker"] == "broker-b")
