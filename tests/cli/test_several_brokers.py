"""`standalone --brokers N`: a cluster of processes that one command starts, keeps and stops."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from cli.shell import BOUND_S, cometmq, sentence, serving
from cometmq import Admin, Message, Producer, PushConsumer

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq import MessageExt

FREE = ("--namesrv-port=0", "--broker-port=0")
KEYS, MESSAGES = 12, 240


def facts_of(process: Path) -> tuple[str, int, list[str]]:
    """State, parent and command of a process in /proc."""
    words = (process / "stat").read_text().rpartition(")")[2].split()
    return words[0], int(words[1]), (process / "cmdline").read_text().split("\0")


def children(pid: int) -> dict[str, int]:
    """The broker processes of a command, by their names."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            _, parent, words = facts_of(process)
            for word in words:
                if parent == pid and word.startswith("brokerName="):
                    found[word.removeprefix("brokerName=")] = int(process.name)
    return found


def is_alive(pid: int) -> bool:
    try:
        return facts_of(Path("/proc") / str(pid))[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def problems_of(url: str) -> list[str]:
    try:
        with urlopen(url) as answer:
            found = json.load(answer)
    except HTTPError as error:
        found = json.load(error)
    assert isinstance(found["problems"], list)
    return found["problems"]


def test_a_broker_that_is_killed_comes_back_and_each_key_keeps_its_order(tmp_path: Path) -> None:
    store = tmp_path / "store"
    got: dict[str, list[int]] = defaultdict(list)
    where: set[str] = set()

    def handle(messages: list[MessageExt]) -> None:
        for message in messages:
            got[message.sharding_key or ""].append(int(message.body))
            where.add(message.broker_name)

    command = ("standalone", "--store", str(store), "--brokers", "2", *FREE)
    with serving(tmp_path, *command) as server:
        namesrv = server.facts["namesrv"]
        assert set(server.facts["brokers"]) == {"broker-a", "broker-b"}
        processes = children(server.process.pid)
        assert set(processes) == {"broker-a", "broker-b"}
        with Admin(namesrv=namesrv) as admin:
            admin.create_topic("Orders", queues=4)
        consumer = PushConsumer("g", namesrv=namesrv, order="queue")
        consumer.subscribe("Orders", "*", handle)
        with Producer("p", namesrv=namesrv, strict_order=True) as producer, consumer:
            for number in range(MESSAGES):
                if number == MESSAGES // 2:
                    os.kill(processes["broker-b"], signal.SIGKILL)
                producer.send(
                    Message("Orders", b"%d" % number, sharding_key=f"k{number % KEYS}"),
                    timeout_s=20.0,
                )
            wait_until(lambda: sum(map(len, got.values())) >= MESSAGES)
        assert where == {"broker-a", "broker-b"}
        for key, numbers in got.items():
            first = list(dict.fromkeys(numbers))  # at least once: a kill repeats some
            assert first == sorted(first), key
            assert len(first) == MESSAGES // KEYS
        again = children(server.process.pid)
        assert again["broker-a"] == processes["broker-a"]
        assert again["broker-b"] != processes["broker-b"]
        code, said = server.end(signal.SIGTERM)
        assert code == 0
        assert "broker-b ended with -9; it is started again in 0.5 s" in said
        assert f"broker-b serves again at {server.facts['brokers']['broker-b']}" in said
        assert not any(map(is_alive, again.values()))
        assert not server.ready.exists()
    for name in again:
        assert not (store / name / "abort").exists(), "it was stopped, not killed"


def test_a_store_grows_by_a_broker_and_topics_grow_onto_it(tmp_path: Path) -> None:
    command = ("standalone", "--store", str(tmp_path / "s"), *FREE, "--brokers")
    with serving(tmp_path, *command, "2") as server:
        namesrv = server.facts["namesrv"]
        with Admin(namesrv=namesrv) as admin:
            admin.create_topic("T", queues=2, brokers=["broker-a"])
        done = cometmq(
            "topic", "create", "T", "--queues", "2", "--broker", "broker-b", "-n", namesrv
        )
        assert done.stdout == "T: 4 queues\n", done.stderr
        done = cometmq("topic", "create", "L", "--order", "global", "-n", namesrv)
        assert done.stdout == "L: 1 queue on broker-a, in global order\n"
        assert server.end(signal.SIGTERM) == (0, "")
    monitored = ("--set", "healthEnable=true", "--set", "metricsPromExporterPort=0")
    with serving(tmp_path, *command, "3", *monitored) as server:
        for name in ("monitoring", "broker-a monitoring", "broker-c monitoring"):
            with urlopen(f"{server.facts[name]}/ready") as answer:
                assert json.load(answer) == {"ready": True, "problems": []}
        os.kill(children(server.process.pid)["broker-c"], signal.SIGKILL)
        url = f"{server.facts['monitoring']}/ready"
        wait_until(lambda: problems_of(url) == ["broker-c has ended and is started again"])
        wait_until(lambda: problems_of(url) == [])
        assert set(server.facts["brokers"]) == {"broker-a", "broker-b", "broker-c"}
        with Admin(namesrv=server.facts["namesrv"]) as admin:
            assert len(admin.queues("T")) == 4
            assert len(admin.queues("L")) == 1


def test_brokers_end_with_the_command_however_it_ends(tmp_path: Path) -> None:
    command = ("standalone", "--store", str(tmp_path / "s"), "--brokers", "2", *FREE)
    with serving(tmp_path, *command) as server:
        processes = children(server.process.pid)
        server.process.kill()
        wait_until(lambda: not any(map(is_alive, processes.values())))
    for name in processes:
        assert not (tmp_path / "s" / name / "abort").exists(), "it was stopped, not killed"


def test_what_a_broker_says_carries_its_name(tmp_path: Path) -> None:
    (tmp_path / "s" / "broker-b").mkdir(parents=True)
    (tmp_path / "s" / "broker-b" / "notes.txt").touch()
    done = cometmq("standalone", "--store", str(tmp_path / "s"), "--brokers", "2", *FREE)
    assert done.returncode == 1
    first, last = done.stderr.splitlines()
    assert first.startswith("broker-b: ")
    assert "is no store: it holds 'notes.txt'" in first
    assert last == "cometmq: broker-b ended as it started; it says why above"


@pytest.mark.parametrize("one", ["brokerName=x", "haListenPort=1", "storePathCommitLog=/tmp/x"])
def test_a_setting_that_would_be_the_same_for_all_is_refused(tmp_path: Path, one: str) -> None:
    done = cometmq("standalone", "--store", str(tmp_path), "--brokers", "2", "--set", one)
    key = one.partition("=")[0]
    assert f"{key} would be the same for all 2 brokers: leave it out" in sentence(done)
    assert not any(tmp_path.iterdir())


def test_the_store_of_one_broker_is_not_taken_for_that_of_several_nor_the_other_way(
    tmp_path: Path,
) -> None:
    one, three = tmp_path / "one", tmp_path / "three"
    (one / "commitlog").mkdir(parents=True)
    (three / "broker-c" / "commitlog").mkdir(parents=True)
    refused = cometmq("standalone", "--store", str(one), "--brokers", "2")
    assert f"moving it to {one / 'broker-a'}" in sentence(refused)
    for given in ((), ("--brokers", "2")):
        refused = cometmq("standalone", "--store", str(three), *given)
        assert "holds the stores of 3 brokers" in sentence(refused)
        assert "give --brokers 3" in sentence(refused)


def test_ports_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    ports = ("--broker-port=65530", "--brokers", "2")
    assert "65530 leaves no room for 2 brokers" in sentence(
        cometmq("standalone", "--store", str(tmp_path), *ports)
    )
