"""Unmodified Java and Go clients send to and receive from a CometMQ broker, and meet ours there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from cometmq import ConsumeFrom, Message, Producer, PushConsumer

if TYPE_CHECKING:
    from cometmq.testing.cluster import LocalCluster

Run = Callable[..., list[str]]
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
COUNT = 40


def bodies(lines: list[str], *, word: str = "GOT") -> list[str]:
    return [" ".join(line.split(" ")[6:]) for line in lines if line.startswith(word)]


def test_java_sends_and_java_receives(java_program: Run, cluster: LocalCluster) -> None:
    sent = java_program("send", cluster.namesrv, "JavaToJava", "JavaProducer", COUNT)
    assert all(line.startswith("SENT SEND_OK") for line in sent), sent
    got = java_program("consume", cluster.namesrv, "JavaToJava", "JavaReader", COUNT)
    assert sorted(bodies(got)) == sorted(f"java {n}" for n in range(COUNT))


def test_java_filters_by_tag(java_program: Run, cluster: LocalCluster) -> None:
    java_program("send", cluster.namesrv, "JavaTags", "JavaProducer", COUNT)
    got = java_program("consume", cluster.namesrv, "JavaTags", "JavaTagReader", COUNT // 2, "odd")
    assert sorted(bodies(got)) == sorted(f"java {n}" for n in range(1, COUNT, 2))


def test_java_keeps_order_per_sharding_key(java_program: Run, cluster: LocalCluster) -> None:
    java_program("send-ordered", cluster.namesrv, "JavaOrder", "JavaProducer", COUNT)
    got = java_program("consume-ordered", cluster.namesrv, "JavaOrder", "JavaOrderReader", COUNT)
    for key in range(5):
        mine = [int(body.split()[1]) for body in bodies(got) if int(body.split()[1]) % 5 == key]
        assert mine == sorted(mine)
        assert len(mine) == COUNT // 5


def test_a_java_batch_arrives_as_single_messages(java_program: Run, cluster: LocalCluster) -> None:
    sent = java_program("send-batch", cluster.namesrv, "JavaBatch", "JavaProducer", COUNT)
    assert sent[-1] == f"SENT SEND_OK {COUNT}"
    got = java_program("consume", cluster.namesrv, "JavaBatch", "JavaBatchReader", COUNT)
    assert sorted(bodies(got)) == sorted(f"java {n}" for n in range(COUNT))


def test_a_java_consumer_gets_its_refused_messages_again(
    java_program: Run, cluster: LocalCluster
) -> None:
    java_program("send", cluster.namesrv, "JavaRetry", "JavaProducer", 10)
    got = java_program("consume-retry", cluster.namesrv, "JavaRetry", "JavaRetryReader", 10)
    assert sorted(bodies(got)) == sorted(f"java {n}" for n in range(10))
    assert {line.split(" ")[3] for line in got if line.startswith("GOT")} == {"1"}
    assert got[-1] == "REFUSED 10"


def test_python_sends_and_java_receives(java_program: Run, cluster: LocalCluster) -> None:
    with Producer("PythonProducer", namesrv=cluster.namesrv) as producer:
        for n in range(COUNT):
            producer.send(
                Message("PythonToJava", f"python {n}".encode(), tags="even", keys=f"p{n}")
            )
    got = java_program("consume", cluster.namesrv, "PythonToJava", "JavaOfPython", COUNT)
    assert sorted(bodies(got)) == sorted(f"python {n}" for n in range(COUNT))


def test_java_sends_and_python_receives(java_program: Run, cluster: LocalCluster) -> None:
    java_program("send", cluster.namesrv, "JavaToPython", "JavaProducer", COUNT)
    assert python_reads(cluster.namesrv, "JavaToPython", "PythonOfJava", COUNT) == sorted(
        f"java {n}" for n in range(COUNT)
    )


def test_go_sends_and_go_receives(go_program: Run, cluster: LocalCluster) -> None:
    sent = go_program("send", cluster.namesrv, "GoToGo", "GoProducer", COUNT)
    assert len(sent) == COUNT
    got = go_program("consume", cluster.namesrv, "GoToGo", "GoReader", COUNT)
    assert sorted(bodies(got)) == sorted(f"go {n}" for n in range(COUNT))


def test_go_consumes_in_order(go_program: Run, cluster: LocalCluster) -> None:
    go_program("send", cluster.namesrv, "GoOrder", "GoProducer", COUNT)
    got = go_program("consume-ordered", cluster.namesrv, "GoOrder", "GoOrderReader", COUNT)
    for queue in {line.split(" ")[1] for line in got}:
        offsets = [int(line.split(" ")[2]) for line in got if line.split(" ")[1] == queue]
        assert offsets == sorted(offsets)
    assert len(got) == COUNT


def python_reads(namesrv: str, topic: str, group: str, count: int) -> list[str]:
    bodies: list[str] = []
    complete = threading.Event()

    def read(messages: list) -> None:  # type: ignore[type-arg]
        bodies.extend(message.body.decode() for message in messages)
        if len(bodies) >= count:
            complete.set()

    consumer = PushConsumer(group, namesrv=namesrv, consume_from=ConsumeFrom.FIRST)
    consumer.subscribe(topic, "*", read)
    with consumer:
        assert complete.wait(60), f"only {len(bodies)} of {count} messages came"
    return sorted(bodies)
