"""`cometmq` beside mqadmin 5.5.0: both ask the same cluster, Apache's or ours.

A consumer and a producer in Java are online meanwhile (java/Admin.java), which also runs mqadmin.
"""

from __future__ import annotations

import functools
import re
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from cli.in_process import Commands
from cometmq.testing.cluster import LocalCluster
from cometmq.wire import fastjson
from interop.apache import ApacheCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from interop.jvm import JavaHost

TOPIC, GROUP, BROKER, CLUSTER = "AdminTopic", "admin-group", "broker-a", "DefaultCluster"


class Mqadmin:
    """mqadmin in a JVM of its own, where a consumer and a producer are online."""

    def __init__(self, java: JavaHost, namesrv: str, home: Path) -> None:
        self._namesrv, self._number, self._java = namesrv, 0, java
        self.ran: set[str] = set()
        self._child = subprocess.Popen(
            [*java.command("Admin"), namesrv, TOPIC],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=home,
            env={"PATH": "/usr/bin:/bin:/usr/local/bin", "ROCKETMQ_HOME": str(home)},
        )

    def __call__(self, *words: str) -> list[str]:
        """The lines that a command prints."""
        self.ran.add(words[0])
        assert self._child.stdin is not None
        asked = "\t".join(["60", words[0], "-n", self._namesrv, *words[1:]])
        self._child.stdin.write(f"{asked}\n60\tnone\n")  # the second says that the first ended
        self._child.stdin.flush()
        self._until(f"### {self._number}")
        found = self._until(f"### {self._number + 1}")
        self._number += 2
        return [line for line in found if line.strip()]

    def monitoring(self) -> dict[tuple[str, str], int]:
        """What startMonitoring finds in a round: by group and topic, how much is not done.

        The command itself writes that to a log, once a minute and without end.
        """
        self.ran.add("startMonitoring")
        said = [line.split() for line in self._java.run("Monitoring", self._namesrv)]
        return {(words[1], words[2]): int(words[3]) for words in said if words[:1] == ["UNDONE"]}

    def stop(self) -> None:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        self._child.stdout.read()
        self._child.wait(30)
        self._child.stdout.close()

    def _until(self, mark: str) -> list[str]:
        assert self._child.stdout is not None
        found: list[str] = []
        for line in self._child.stdout:
            if line.rstrip("\n") == mark:
                return found
            found.append(line.rstrip("\n"))
        raise AssertionError("mqadmin ended:\n" + "\n".join(found[-40:]))


@contextmanager
def running(side: str, jars: Path, folder: Path) -> Iterator[ApacheCluster | LocalCluster]:
    if side == "ours":
        with LocalCluster(folder / "ours", apart=True, brokerName=BROKER) as cluster:
            yield cluster
        return
    apache = ApacheCluster(jars, folder / "apache", brokerName=BROKER)
    try:
        yield apache
    finally:
        apache.stop()


class Pair(NamedTuple):
    """Our commands, mqadmin, and the broker's address."""

    cometmq: Commands
    mqadmin: Mqadmin
    broker: str


@contextmanager
def both(side: str, jars: Path, java: JavaHost, folder: Path) -> Iterator[Pair]:
    """A cluster with a topic, a group and a producer in Java, and who asks it."""
    with running(side, jars, folder) as cluster:
        Commands(cluster.namesrv)("topic", "create", TOPIC, "--queues", "4")
        mqadmin = Mqadmin(java, cluster.namesrv, folder)
        try:
            mqadmin("clusterList")  # answered once its consumer and producer are online
            mqadmin.ran.clear()
            yield Pair(Commands(cluster.namesrv), mqadmin, cluster.broker)
        finally:
            mqadmin.stop()


def beside(*commands: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark a test with the commands of mqadmin that it compares; it fails where it ran others."""

    def mark(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def checked(*args: Any, pair: Pair, **others: Any) -> None:
            pair.mqadmin.ran.clear()
            test(*args, pair=pair, **others)
            assert pair.mqadmin.ran >= set(commands), commands

        checked.beside = commands  # type: ignore[attr-defined]
        return checked

    return mark


def table(lines: list[str], columns: int) -> set[tuple[str, ...]]:
    """The first columns of each line of a table of mqadmin's, without its head."""
    return {
        tuple(line.split()[:columns])
        for line in lines
        if not line.startswith("#") and len(line.split()) >= columns
    }


def properties(lines: list[str]) -> dict[str, str]:
    """Lines like `key = value`, perhaps with an address in front."""
    line_of = re.compile(r"(?:\S+:\d+\s+)?(\w[\w.]*)\s*[=:]\s+(.*)")
    pairs = (line_of.fullmatch(line.strip()) for line in lines)
    return {found[1]: found[2].strip() for found in pairs if found}


def route(mqadmin: Mqadmin, topic: str) -> list[dict[str, Any]]:
    """The queues of a topic by broker; the JSON has numbers as keys."""
    found = fastjson.loads("".join(mqadmin("topicRoute", "-t", topic)).encode())
    assert isinstance(found, dict)
    return list(found["queueDatas"])


def progress(mqadmin: Mqadmin, group: str, topic: str = TOPIC) -> set[tuple[str, ...]]:
    """Topic, broker, queue, end, committed and lag of each queue, by mqadmin."""
    rows = table(mqadmin("consumerProgress", "-g", group), 6)
    return {row for row in rows if row[0] == topic}


def lag(cometmq: Commands, group: str, topic: str = TOPIC) -> set[tuple[str, ...]]:
    """The same by ours."""
    names = ("topic", "broker", "queue_id", "end_offset", "committed", "lag")
    rows = cometmq("group", "lag", group, "--topic", topic, "--json").json["queues"]
    return {tuple(str(row[name]) for name in names) for row in rows}


def known(mqadmin: Mqadmin, group: str) -> dict[str, str]:
    """A group's settings, by mqadmin."""
    return properties(mqadmin("getConsumerConfig", "-g", group))
