"""Transactions and replies by the Java client; half messages that change hands with a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client.short_delay_cluster import until
from cometmq import Admin, ConsumeFrom, PushConsumer
from cometmq.testing.cluster import LocalCluster
from interop.apache import ApacheCluster
from interop.handover import leave_apache, leave_ours

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from interop.jvm import JavaHost

    Run = Callable[..., list[str]]

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
SAID = ("SENT", "ASKED", "MISSING", "REPLIED", "GOT", "END")
TOPIC, COUNT = "TransactionsHands", 24
OPEN = [n for n in range(COUNT) if n % 6 > 1]
SEEN = sorted(f"half {n}".encode() for n in range(COUNT) if n % 2 == 0)
"""Committed at once or when asked."""
LATER = {"transactionTimeOut": 1_000, "transactionCheckInterval": 600_000}
SOON = {"transactionTimeOut": 1_000, "transactionCheckInterval": 2_000}


@pytest.fixture
def program(java: JavaHost) -> Run:
    """Run java/Transactions.java; gives its lines up to END."""

    def run(*arguments: object) -> list[str]:
        said = java.run("Transactions", *arguments)
        lines = [line for line in said if line.startswith(SAID)]
        assert lines[-1:] == ["END"], said
        assert not [line for line in lines if line.startswith("MISSING")], lines
        return lines[:-1]

    return run


def bodies(namesrv: str, group: str, topic: str = TOPIC) -> list[bytes]:
    """What is read until all of SEEN is among it; some of it may be there twice."""
    got: set[bytes] = set()
    consumer = PushConsumer(group, namesrv=namesrv, consume_from=ConsumeFrom.FIRST)
    consumer.subscribe(topic, "*", lambda some: got.update(message.body for message in some))
    with consumer:
        until(lambda: got.issuperset(SEEN), 90)
    return sorted(got)


def make_topic(namesrv: str) -> None:
    with Admin(namesrv=namesrv) as admin:
        admin.create_topic(TOPIC, queues=4)


def asked_of(lines: list[str]) -> set[int]:
    return {int(line.split()[1]) for line in lines if line.startswith("ASKED")}


def test_java_transactions_end_at_once_or_when_asked(program: Run, tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "store", **SOON) as cluster:
        make_topic(cluster.namesrv)
        lines = program("transact", cluster.namesrv, TOPIC, COUNT, len(OPEN))
        assert len([line for line in lines if line.startswith("SENT SEND_OK")]) == COUNT
        assert asked_of(lines) == set(OPEN)
        assert len([line for line in lines if line.startswith("ASKED")]) == len(OPEN)
        assert {line.split()[2] for line in lines if line.startswith("ASKED")} == {TOPIC}
        assert bodies(cluster.namesrv, "after-java") == SEEN


def test_java_asks_and_is_answered(program: Run, tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "store") as cluster:
        make_topic(cluster.namesrv)
        lines = program("converse", cluster.namesrv, TOPIC, 20)
        assert [line for line in lines if line.startswith("GOT")] == [
            f"GOT re: question {n}" for n in range(20)
        ]
        assert lines.count("REPLIED SEND_OK") == 20


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_apache_asks_about_the_half_messages_that_ours_left(
    apache_jars: Path, program: Run, tmp_path: Path, how: str
) -> None:
    ours = LocalCluster(tmp_path / "store", **LATER)
    ours.start()
    make_topic(ours.namesrv)
    program("transact", ours.namesrv, TOPIC, COUNT, 0)
    leave_ours(ours, how)
    apache = ApacheCluster(apache_jars, tmp_path, **SOON)
    try:
        assert asked_of(program("finish", apache.namesrv, TOPIC, len(OPEN))) == set(OPEN)
        assert bodies(apache.namesrv, "after-apache") == SEEN
    finally:
        leave_apache(apache, "stop")
    with LocalCluster(tmp_path / "store", **SOON) as again:
        assert bodies(again.namesrv, "after-both") == SEEN


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_ours_asks_about_the_half_messages_that_apache_left(
    apache_jars: Path, program: Run, tmp_path: Path, how: str
) -> None:
    apache = ApacheCluster(apache_jars, tmp_path, **LATER)
    try:
        make_topic(apache.namesrv)
        program("transact", apache.namesrv, TOPIC, COUNT, 0)
    finally:
        leave_apache(apache, how)
    with LocalCluster(tmp_path / "store", **SOON) as ours:
        asked = asked_of(program("finish", ours.namesrv, TOPIC, len(OPEN)))
        assert set(OPEN) <= asked
        assert asked == set(OPEN) or how == "kill", "a killed Apache forgets ends of its last 3 s"
        assert bodies(ours.namesrv, "after-ours") == SEEN
