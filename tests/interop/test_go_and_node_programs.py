"""Go and Node clients send, consume, order, delay and end transactions on a CometMQ broker.

ali-ons has neither transactions nor consumers in order; what it has is used here.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from cometmq import Admin
from cometmq.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Run = Callable[..., list[str]]

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
COUNT = 20


@pytest.fixture(scope="module")
def eager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A broker that asks about half messages soon."""
    settings = {"transactionCheckInterval": 1000, "transactionTimeOut": 1000}
    with LocalCluster(tmp_path_factory.mktemp("store"), **settings) as running:
        yield running


@pytest.fixture(params=["go", "node"])
def program(request: pytest.FixtureRequest) -> tuple[str, Run]:
    return request.param, request.getfixturevalue(f"{request.param}_program")


def make(cluster: LocalCluster, topic: str) -> str:
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic(topic, queues=4)
    return topic


def texts(lines: list[str]) -> list[str]:
    return [" ".join(line.split(" ")[6:]) for line in lines if line.startswith("GOT")]


def test_all_that_is_sent_arrives(program: tuple[str, Run], eager: LocalCluster) -> None:
    name, run = program
    topic = make(eager, f"{name}-all")
    assert len(run("send", eager.namesrv, topic, f"{name}-p", COUNT)) == COUNT
    got = run("consume", eager.namesrv, topic, f"{name}-c", COUNT)
    assert sorted(texts(got)) == sorted(f"{name} {n}" for n in range(COUNT))


def test_messages_of_one_key_stay_in_order(program: tuple[str, Run], eager: LocalCluster) -> None:
    name, run = program
    topic = make(eager, f"{name}-order")
    sent = run("send-ordered", eager.namesrv, topic, f"{name}-op", COUNT)
    mode = {"go": "consume-ordered", "node": "consume"}[name]
    got = run(mode, eager.namesrv, topic, f"{name}-oc", COUNT)
    by_queue: dict[str, list[int]] = defaultdict(list)
    for line in got:
        by_queue[line.split(" ")[1]].append(int(line.split(" ")[2]))
    assert all(offsets == sorted(offsets) for offsets in by_queue.values())
    queue_of_key = defaultdict(set)
    for n, line in enumerate(sent):
        queue_of_key[n % 5].add(line.split(" ")[3])
    kept = [key for key, queues in queue_of_key.items() if len(queues) == 1]
    # ali-ons takes queue 0 for no queue, and sends the keys that belong there anywhere
    assert len(kept) == 5 if name == "go" else kept


def test_delayed_messages_come_late_and_not_too_late(
    program: tuple[str, Run], eager: LocalCluster
) -> None:
    name, run = program
    topic = make(eager, f"{name}-delay")
    run("send-delayed", eager.namesrv, topic, f"{name}-dp", 5)
    got = run("consume", eager.namesrv, topic, f"{name}-dc", 5)
    late_ms = [int(line.split(" ")[5]) for line in got]
    assert len(late_ms) == 5
    assert all(ms >= 1000 for ms in late_ms), "delivered early"


def test_node_filters_by_tag_and_tries_again(node_program: Run, eager: LocalCluster) -> None:
    topic = make(eager, "node-tags")
    node_program("send", eager.namesrv, topic, "node-tp", COUNT)
    got = node_program("consume-tag", eager.namesrv, topic, "node-tc", COUNT // 2)
    assert sorted(texts(got)) == sorted(f"node {n}" for n in range(1, COUNT, 2))
    again = node_program("consume-retry", eager.namesrv, topic, "node-rc", COUNT)
    assert sorted(texts(again)) == sorted(f"node {n}" for n in range(COUNT))


def test_go_commits_rolls_back_and_is_asked(go_program: Run, eager: LocalCluster) -> None:
    topic = make(eager, "go-transactions")
    said = go_program("send-transactions", eager.namesrv, topic, "go-tp", 3)
    assert [line for line in said if line.startswith("CHECKED")] == ["CHECKED go asked about"]
    got = go_program("consume", eager.namesrv, topic, "go-tc", 2)
    assert sorted(texts(got)) == ["go asked about", "go committed"]
