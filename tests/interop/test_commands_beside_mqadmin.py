"""`cometmq` commands say of Apache's broker and of ours what mqadmin 5.5.0 says of them.

A consumer and a producer in Java are online meanwhile (java/Admin.java), which also runs mqadmin.
"""

from __future__ import annotations

import json
import re
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from cli.in_process import Commands
from client.short_delay_cluster import until
from cometmq.testing.cluster import LocalCluster
from cometmq.wire import fastjson
from interop.apache import ApacheCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from interop.jvm import JavaHost

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
TOPIC, GROUP, BROKER = "AdminTopic", "admin-group", "broker-a"


class Mqadmin:
    """mqadmin in a JVM of its own, where a consumer and a producer are online."""

    def __init__(self, java: JavaHost, namesrv: str, home: Path) -> None:
        self._namesrv, self._number = namesrv, 0
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
        assert self._child.stdin is not None
        asked = "\t".join(["60", words[0], "-n", self._namesrv, *words[1:]])
        self._child.stdin.write(f"{asked}\n60\tnone\n")  # the second says that the first ended
        self._child.stdin.flush()
        self._until(f"### {self._number}")
        found = self._until(f"### {self._number + 1}")
        self._number += 2
        return [line for line in found if line.strip()]

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


Pair = tuple[Commands, Mqadmin, str]


@pytest.fixture(scope="module", params=["apache", "ours"])
def pair(
    request: pytest.FixtureRequest,
    apache_jars: Path,
    java: JavaHost,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Pair]:
    """Our commands, mqadmin, and the broker's address."""
    folder = tmp_path_factory.mktemp(request.param)
    with running(request.param, apache_jars, folder) as cluster:
        Commands(cluster.namesrv)("topic", "create", TOPIC, "--queues", "4")
        mqadmin = Mqadmin(java, cluster.namesrv, folder)
        try:
            mqadmin("clusterList")  # answered once its consumer and producer are online
            yield Commands(cluster.namesrv), mqadmin, cluster.broker
        finally:
            mqadmin.stop()


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


def test_clusters_and_brokers(pair: Pair) -> None:
    cometmq, mqadmin, addr = pair
    (row,) = cometmq("cluster", "--json").json["brokers"]
    assert (row["cluster"], row["broker"], str(row["broker_id"]), row["addr"]) in table(
        mqadmin("clusterList"), 4
    )
    assert (row["addr"], row["problem"]) == (addr, None)
    theirs = properties(mqadmin("brokerStatus", "-c", "DefaultCluster"))
    assert set(cometmq("brokers", "status", BROKER, "--json").json) >= set(theirs)
    assert theirs["brokerVersionDesc"] == row["version"]


def test_settings(pair: Pair) -> None:
    cometmq, mqadmin, addr = pair
    key = "maxTransferCountOnMessageInMemory"
    assert cometmq("brokers", "config", "set", BROKER, f"{key}=31").code == 0
    theirs = properties(mqadmin("getBrokerConfig", "-b", addr))
    ours = cometmq("brokers", "config", "get", BROKER, "--json").json
    assert (theirs[key], ours[key]) == ("31", "31")
    assert {name: ours[name] for name in theirs} == theirs
    mqadmin("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    (found,) = cometmq("nameservers", "config", "get", "orderMessageEnable", "--json").json.values()
    assert found == {"orderMessageEnable": "true"}


def test_topics(pair: Pair) -> None:
    cometmq, mqadmin, _ = pair
    assert cometmq("topic", "create", "Beside", "--queues", "3").code == 0
    assert cometmq("topic", "alter", "Beside", "--perm", "r").code == 0
    names = {line.strip() for line in mqadmin("topicList")}
    assert set(cometmq("topic", "list", "--system", "--json").json) == names
    theirs = route(mqadmin, "Beside")
    ours = cometmq("topic", "route", "Beside", "--json").json["brokers"]
    assert [(one["readQueueNums"], one["writeQueueNums"], one["perm"]) for one in theirs] == [
        (one["read_queues"], one["write_queues"], {"r": 4}[one["perm"]]) for one in ours
    ]
    rows = cometmq("topic", "status", TOPIC, "--json").json["queues"]
    names_of = ("broker", "queue_id", "first_offset", "end_offset")
    queues = {row for row in table(mqadmin("topicStatus", "-t", TOPIC), 4) if row[0] == BROKER}
    assert {tuple(str(row[name]) for name in names_of) for row in rows} == queues
    assert cometmq("topic", "delete", "Beside", "--yes").code == 0
    assert "Beside" not in {line.strip() for line in mqadmin("topicList")}


def test_the_division_of_queues(pair: Pair) -> None:
    cometmq, mqadmin, _ = pair
    members = ("127.0.0.1", "127.0.0.2")
    theirs = json.loads("".join(mqadmin("allocateMQ", "-t", TOPIC, "-i", ",".join(members))))
    ours = cometmq("topic", "allocate", TOPIC, *members, "--json").json
    # mqadmin leaves out that members sort the queues before they divide them
    assert {name: len(each) for name, each in theirs["result"].items()} == {
        name: len(each) for name, each in ours.items()
    }
    assert [one["queue_id"] for each in ours.values() for one in each] == [0, 1, 2, 3]


def test_traffic(pair: Pair) -> None:
    cometmq, mqadmin, _ = pair
    (found,) = cometmq("topic", "stats", TOPIC, "--json").json
    theirs = {row[1] for row in table(mqadmin("statsAll", "-t", TOPIC), 3)}
    assert GROUP in theirs
    assert set(found["out"]) >= theirs


def test_members_and_lag_of_a_group_in_java(pair: Pair) -> None:
    cometmq, mqadmin, _ = pair
    (member,) = cometmq("group", "members", GROUP, "--json").json["members"]
    assert member["language"] == "JAVA"
    words = (member["client_id"], member["addr"], member["language"])
    connected = mqadmin("consumerConnection", "-g", GROUP)
    assert any(all(word in line for word in words) for line in connected), connected
    assert lag(cometmq, GROUP) == progress(mqadmin, GROUP)
    rows = cometmq("group", "lag", GROUP, "--topic", TOPIC, "--json").json["queues"]
    assert {row["owner"] for row in rows} == {member["client_id"]}
    info = cometmq("group", "running", GROUP, "--json").json[member["client_id"]]
    assert {queue["topic"] for queue in info["queues"]} >= {TOPIC}
    (producer,) = cometmq("producers", "admin-producers", "--json").json
    connected = mqadmin("producerConnection", "-g", "admin-producers", "-t", TOPIC)
    assert any(producer["client_id"] in line for line in connected)
    everyone = {row["group"]: row for row in cometmq("group", "lag", "--all", "--json").json}
    assert everyone[GROUP]["members"] == 1


def test_messages(pair: Pair) -> None:
    cometmq, mqadmin, _ = pair
    (sent,) = cometmq("topic", "send", TOPIC, "body", "--key", "beside", "--json").json
    until(lambda: cometmq("message", "by-key", TOPIC, "beside", "--json").json)
    for words in (
        ("queryMsgById", "-t", TOPIC, "-i", sent["offset_msg_id"]),
        ("queryMsgByUniqueKey", "-t", TOPIC, "-i", sent["msg_id"]),
    ):
        shown = "\n".join(mqadmin(*words))
        assert re.search(rf"Queue Offset:\s+{sent['offset']}\b", shown), shown
        found = cometmq("message", "get", TOPIC, words[4], "--json").json
        assert (found["msg_id"], found["body"]) == (sent["msg_id"], "body")
        assert (found["queue_id"], found["offset"]) == (sent["queue_id"], sent["offset"])
    theirs_by_key = table(mqadmin("queryMsgByKey", "-t", TOPIC, "-k", "beside"), 3)
    assert (sent["msg_id"], str(sent["queue_id"]), str(sent["offset"])) in theirs_by_key
    printed = mqadmin("printMsg", "-t", TOPIC, "-d", "true")
    peeked = cometmq("topic", "peek", TOPIC, "--count", "1000", "--json").json
    assert len(peeked) == sum("MSGID" in line for line in printed)
    place = f"{sent['broker']}:{sent['queue_id']}:{sent['offset']}"
    done = cometmq("message", "resend", TOPIC, place, "--group", GROUP, "--json").json
    assert done["result"] == "CR_SUCCESS", done
    tailed = cometmq("topic", "tail", TOPIC, "--oldest", "--count", str(len(peeked)), "--json")
    assert len(tailed.out.splitlines()) == len(peeked)
    by_time = cometmq("message", "by-time", TOPIC, "--begin", "1h", "--json").json
    assert {one["msg_id"] for one in by_time} == {one["msg_id"] for one in peeked}


def test_groups_are_made_moved_saved_and_deleted(pair: Pair, tmp_path: Path) -> None:
    cometmq, mqadmin, _ = pair
    assert cometmq("group", "create", "made", "--retry-max-times", "7").code == 0
    assert "7" in properties(mqadmin("getConsumerConfig", "-g", "made")).values()
    for name in ("made", "cloned"):  # mqadmin asks the route of a group's retry topic
        cometmq("topic", "create", f"%RETRY%{name}", "--queues", "1")
    for to in ("latest", "1", "earliest", "1h"):
        assert cometmq("group", "reset", "made", TOPIC, "--to", to, "--yes").code == 0
        rows = lag(cometmq, "made")
        assert len(rows) == 4
        assert rows == progress(mqadmin, "made"), to
    assert cometmq("group", "skip", "made", TOPIC, "--yes").code == 0
    assert {row[5] for row in progress(mqadmin, "made")} == {"0"}
    assert cometmq("group", "clone", "made", "cloned", "--yes").code == 0
    assert progress(mqadmin, "cloned") == progress(mqadmin, "made")
    file = str(tmp_path / "offsets.json")
    assert cometmq("offsets", "export", "made", "-o", file).code == 0
    before = progress(mqadmin, "made")
    assert cometmq("group", "reset", "made", TOPIC, "--to", "0", "--yes").code == 0
    assert progress(mqadmin, "made") != before
    assert cometmq("offsets", "import", file, "--yes").code == 0
    assert progress(mqadmin, "made") == before
    assert cometmq("group", "delete", "made", "--yes").code == 0
    assert "made" not in cometmq("group", "list", "--json").json
    metadata = cometmq("brokers", "metadata").json[BROKER]
    assert TOPIC in metadata["topics"]
    assert "cloned" in metadata["groups"]


def test_a_running_group_in_java_goes_where_it_is_moved(pair: Pair) -> None:
    cometmq, _, _ = pair

    def owned() -> list[dict[str, Any]]:
        rows = cometmq("group", "lag", GROUP, "--topic", TOPIC, "--json").json["queues"]
        assert isinstance(rows, list)
        return rows

    until(lambda: all(row["lag"] == 0 for row in owned()))
    moved = cometmq("group", "reset", GROUP, TOPIC, "--to", "earliest", "--yes", "--json").json
    assert {row["after"] for row in moved["queues"]} == {0}
    until(lambda: all(row["lag"] == 0 for row in owned()), 60)


def test_a_broker_is_taken_out_of_writing_and_back(pair: Pair) -> None:
    cometmq, mqadmin, _ = pair
    for command, perm in (("wipe-write", 4), ("restore-write", 6)):
        assert cometmq("brokers", command, BROKER).code == 0
        assert [one["perm"] for one in route(mqadmin, TOPIC)] == [perm]


def test_what_nobody_knows_is_an_error(pair: Pair) -> None:
    cometmq, _, _ = pair
    for words in (("lag", f"{GROUP}s"), ("members", f"{GROUP}s")):
        done = cometmq("group", *words)
        assert (done.code, f"did you mean {GROUP}?" in done.err) == (1, True), done
    done = cometmq("topic", "status", f"{TOPIC}s")
    assert (done.code, f"did you mean {TOPIC}?" in done.err) == (1, True), done
