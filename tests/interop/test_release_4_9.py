"""RocketMQ 4.9: its Java client at our broker, and one store under its broker and ours in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client.short_delay_cluster import until
from cometmq import Admin
from cometmq.testing.cluster import LocalCluster
from interop.apache import ApacheCluster
from interop.handed_store import COUNT, TOPIC, bodies, found, found_whole, looked_up, send
from interop.handover import leave_apache, leave_ours
from interop.jvm import JavaHost, compiled
from interop.maven import fetched
from interop.reading import read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Run = Callable[..., list[str]]

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
VERSION = "4.9.7"
"""The last release of 4.9 whose modules are all at Maven Central; of 4.9.8 the broker is not."""
MESSAGES = 40
HALVES, ASKED = 24, 16
"""Of six half messages the Java program commits one, rolls one back and leaves four open."""


@pytest.fixture(scope="module")
def jars() -> Path:
    """The jars of that release."""
    return fetched(VERSION)


@pytest.fixture(scope="module")
def program(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run one of our Java programs around the client of 4.9; gives its lines up to END."""
    classes = tmp_path_factory.mktemp("classes-4.9")
    host = JavaHost(jars, compiled(jars, classes, "Host Roundtrip Transactions"))

    def run(*arguments: object) -> list[str]:
        said = host.run(*map(str, arguments))
        lines = [line for line in said if line.startswith(("SENT", "GOT", "ASKED", "REFUSED"))]
        assert "END" in said, said
        assert not [line for line in said if line.startswith("MISSING")], said
        return lines

    yield run
    host.stop()


def java_bodies(lines: list[str]) -> list[str]:
    return [line.split(" ", 6)[6] for line in lines if line.startswith("GOT")]


EXPECTED = sorted(f"java {n}" for n in range(MESSAGES))


def test_it_sends_and_receives(program: Run, cluster: LocalCluster) -> None:
    sent = program("Roundtrip", "send", cluster.namesrv, "OldSends", "OldProducer", MESSAGES)
    assert [line.split()[1] for line in sent] == ["SEND_OK"] * MESSAGES
    got = program("Roundtrip", "consume", cluster.namesrv, "OldSends", "OldReader", MESSAGES)
    assert sorted(java_bodies(got)) == EXPECTED
    got = program(
        "Roundtrip", "consume", cluster.namesrv, "OldSends", "OldOdd", MESSAGES // 2, "odd"
    )
    assert sorted(java_bodies(got)) == sorted(f"java {n}" for n in range(1, MESSAGES, 2))


def test_its_batch_arrives_as_single_messages(program: Run, cluster: LocalCluster) -> None:
    sent = program("Roundtrip", "send-batch", cluster.namesrv, "OldBatch", "OldProducer", MESSAGES)
    assert sent == [f"SENT SEND_OK {MESSAGES}"]
    got = program("Roundtrip", "consume", cluster.namesrv, "OldBatch", "OldBatchReader", MESSAGES)
    assert sorted(java_bodies(got)) == EXPECTED


def test_it_keeps_the_order_of_a_key(program: Run, cluster: LocalCluster) -> None:
    program("Roundtrip", "send-ordered", cluster.namesrv, "OldOrder", "OldProducer", MESSAGES)
    got = program(
        "Roundtrip", "consume-ordered", cluster.namesrv, "OldOrder", "OldOrderly", MESSAGES
    )
    numbers = [int(body.split()[1]) for body in java_bodies(got)]
    for key in range(5):
        of_key = [number for number in numbers if number % 5 == key]
        assert of_key == list(range(key, MESSAGES, 5))


def test_it_gets_refused_messages_again(program: Run, cluster: LocalCluster) -> None:
    program("Roundtrip", "send", cluster.namesrv, "OldRetry", "OldProducer", 10)
    got = program("Roundtrip", "consume-retry", cluster.namesrv, "OldRetry", "OldRetryReader", 10)
    assert sorted(java_bodies(got)) == sorted(f"java {n}" for n in range(10))
    assert {line.split(" ")[3] for line in got if line.startswith("GOT")} == {"1"}
    assert got[-1] == "REFUSED 10"


def test_its_delayed_messages_come_when_they_are_due(program: Run, cluster: LocalCluster) -> None:
    where = ("send-delayed", cluster.namesrv, "OldDelay", "OldProducer")
    program("Roundtrip", *where, 10, 2)  # level 2: 5 s
    messages = read(cluster.namesrv, "OldDelay", "delay-reader", 10)
    assert sorted(message.body for message in messages) == [b"java %d" % n for n in range(10)]
    waits_ms = [message.store_ms - message.born_ms for message in messages]
    assert min(waits_ms) >= 5_000


def test_its_transactions_end_at_once_or_when_asked(program: Run, tmp_path: Path) -> None:
    soon = {"transactionTimeOut": 1_000, "transactionCheckInterval": 2_000}
    with LocalCluster(tmp_path / "store", **soon) as cluster:
        with Admin(namesrv=cluster.namesrv) as admin:
            admin.create_topic("OldTransactions", queues=4)
        lines = program(
            "Transactions", "transact", cluster.namesrv, "OldTransactions", HALVES, ASKED
        )
        assert len([line for line in lines if line.startswith("SENT SEND_OK")]) == HALVES
        asked = {int(line.split()[1]) for line in lines if line.startswith("ASKED")}
        assert asked == {n for n in range(HALVES) if n % 6 > 1}
        got = read(cluster.namesrv, "OldTransactions", "after", HALVES // 2)
        assert {message.body for message in got} == {b"half %d" % n for n in range(0, HALVES, 2)}


def their_broker(jars: Path, home: Path) -> ApacheCluster:
    """Their name server and broker; 4.9 does not start without files that set up its logs."""
    for role in ("namesrv", "broker"):
        conf = home / role / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        (conf / f"logback_{role}.xml").write_text("<configuration/>")
    return ApacheCluster(jars, home)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_store_goes_from_its_broker_to_ours_and_back(
    jars: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    store = tmp_path / "store"
    theirs = their_broker(jars, tmp_path)
    try:
        with Admin(namesrv=theirs.namesrv) as admin:
            admin.create_topic(TOPIC, queues=4)
            admin.alter_topic(TOPIC, queues=6)
            until(lambda: len(admin.queues(TOPIC)) == 6)
        send(theirs.namesrv, "theirs")
        assert found(theirs.namesrv, "first", COUNT) == bodies("theirs")
        until((store / "config" / "consumerOffset.json").exists, 60)  # written every 5 s
    finally:
        leave_apache(theirs, how)
    found_whole(store, capsys)

    ours = LocalCluster(store)
    ours.start()
    try:
        assert found(ours.namesrv, "second", COUNT) == bodies("theirs")
        send(ours.namesrv, "ours")
        looked_up(ours.broker, "ours", "theirs")
    finally:
        leave_ours(ours, how)
    found_whole(store, capsys)

    theirs = their_broker(jars, tmp_path)
    try:
        assert found(theirs.namesrv, "third", 2 * COUNT) == bodies("ours", "theirs")
        looked_up(theirs.broker, "ours", "theirs")
        send(theirs.namesrv, "again")
    finally:
        leave_apache(theirs, "stop")
    with LocalCluster(store) as last:
        assert found(last.namesrv, "fourth", 3 * COUNT) == bodies("again", "ours", "theirs")
        looked_up(last.broker, "again", "ours", "theirs")
