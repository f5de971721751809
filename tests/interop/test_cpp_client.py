"""The C++ client, from the wheel `rocketmq` of PyPI, works with a CometMQ broker."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from cometmq import Admin, ConsumeFrom, Message, Producer, PushConsumer

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.testing.cluster import LocalCluster

    Run = Callable[..., list[str]]

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
COUNT = 20


def make(cluster: LocalCluster, topic: str) -> str:
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic(topic, queues=4)
    return topic


def texts(lines: list[str]) -> list[str]:
    return sorted(" ".join(line.split(" ")[6:]) for line in lines if line.startswith("GOT"))


ALL = sorted(f"cpp {n}" for n in range(COUNT))


@pytest.mark.parametrize("mode", ["send", "send-oneway", "send-large"])
def test_what_it_sends_it_receives(mode: str, cpp_program: Run, cluster: LocalCluster) -> None:
    topic = make(cluster, f"cpp-{mode}")
    sent = cpp_program(mode, cluster.namesrv, topic, "cpp-p", COUNT)
    assert len(sent) == COUNT
    assert {line.split(" ")[1] for line in sent} <= {"OK", "ONEWAY"}
    assert texts(cpp_program("consume", cluster.namesrv, topic, f"{mode}-c", COUNT)) == ALL


def test_it_filters_by_tag_and_pulls(cpp_program: Run, cluster: LocalCluster) -> None:
    topic = make(cluster, "cpp-tags")
    cpp_program("send", cluster.namesrv, topic, "cpp-tp", COUNT)
    got = cpp_program("consume-tag", cluster.namesrv, topic, "cpp-tc", COUNT // 2)
    assert texts(got) == sorted(f"cpp {n}" for n in range(1, COUNT, 2))
    assert texts(cpp_program("pull", cluster.namesrv, topic, "cpp-pull", COUNT)) == ALL


def test_it_gets_a_refused_message_again(cpp_program: Run, cluster: LocalCluster) -> None:
    # one message: it takes several by the batch, and sends a whole batch back for one refused
    topic = make(cluster, "cpp-retry")
    cpp_program("send", cluster.namesrv, topic, "cpp-rp", 1)
    again = cpp_program("consume-retry", cluster.namesrv, topic, "cpp-rc", 1)
    assert texts(again) == ["cpp 0"]
    assert again[0].split(" ")[3] == "1"


def test_messages_of_one_key_stay_in_order(cpp_program: Run, cluster: LocalCluster) -> None:
    topic = make(cluster, "cpp-order")
    cpp_program("send-ordered", cluster.namesrv, topic, "cpp-op", COUNT)
    got = cpp_program("consume-ordered", cluster.namesrv, topic, "cpp-oc", COUNT)
    assert texts(got) == ALL
    by_key: dict[int, list[int]] = defaultdict(list)
    for line in got:
        number = int(line.split(" ")[7])
        by_key[number % 5].append(number)
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_delayed_messages_are_not_early(cpp_program: Run, cluster: LocalCluster) -> None:
    topic = make(cluster, "cpp-delay")
    cpp_program("send-delayed", cluster.namesrv, topic, "cpp-dp", 5)
    got = cpp_program("consume", cluster.namesrv, topic, "cpp-dc", 5)
    assert len(got) == 5
    assert all(int(line.split(" ")[5]) >= 1000 for line in got), "delivered early"


def test_it_meets_our_client_both_ways(cpp_program: Run, cluster: LocalCluster) -> None:
    topic = make(cluster, "cpp-and-python")
    with Producer("python-p", namesrv=cluster.namesrv) as producer:
        for n in range(COUNT):
            producer.send(Message(topic, f"cpp {n}".encode(), tags="odd", keys=f"c{n}"))
    assert texts(cpp_program("consume", cluster.namesrv, topic, "cpp-of-python", COUNT)) == ALL
    there = make(cluster, "python-of-cpp")
    cpp_program("send-large", cluster.namesrv, there, "cpp-lp", COUNT)
    numbers: list[str] = []
    complete = threading.Event()

    def read(messages: list) -> None:  # type: ignore[type-arg]
        numbers.extend(message.properties["number"] for message in messages)
        assert all(len(message.body) > 20_000 for message in messages)
        if len(numbers) >= COUNT:
            complete.set()

    consumer = PushConsumer(
        "python-of-cpp", namesrv=cluster.namesrv, consume_from=ConsumeFrom.FIRST
    )
    consumer.subscribe(there, "*", read)
    with consumer:
        assert complete.wait(60), f"only {len(numbers)} of {COUNT} came"
    assert sorted(numbers) == sorted(map(str, range(COUNT)))
