"""One broker for the tests that leave it alive, and one of its own for each that kills it."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from client.consumer_group import Member
from client.scripted_broker import ScriptedBroker
from client.short_delay_cluster import short_delay_cluster
from cometmq import Admin, PushConsumer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cometmq.testing.cluster import LocalCluster

_numbers = count()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A running broker and name server that all tests share: none of them stops it."""
    with short_delay_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """A running broker and name server of this test alone, which may kill them."""
    with short_delay_cluster(tmp_path) as running:
        yield running


@pytest.fixture
def scripted_broker() -> Iterator[ScriptedBroker]:
    """A broker and name server in one, whose answers the test sets."""
    made = ScriptedBroker()
    yield made
    made.close()


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Callable[..., Member]]:
    """Starts a member; what still runs at the end of the test is killed."""
    started: list[Member] = []

    def start(**settings: object) -> Member:
        started.append(Member(tmp_path / f"seen-{len(started)}", **settings))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.kill()


@pytest.fixture
def by_key(cluster: LocalCluster, group: str, tmp_path: Path) -> Callable[..., PushConsumer]:
    """Makes members of one group that remember on one disk."""

    def make(topic: str, handler: Callable[..., Any], **settings: Any) -> PushConsumer:
        given = {
            "namesrv": cluster.namesrv,
            "order": "key",
            "consume_from": "first",
            "suspend_ms": 50,
            "state_dir": tmp_path / "state",
            "lock_renew_s": 0.5,
            "lock_valid_s": 2.0,
            "rebalance_s": 1.0,
        }
        subscribed = {"on_failure": settings.pop("on_failure", None)}
        consumer = PushConsumer(group, **(given | settings))
        consumer.subscribe(topic, "*", handler, **subscribed)
        return consumer

    return make


@pytest.fixture
def topic(cluster: LocalCluster) -> str:
    return new_topic(cluster)


@pytest.fixture
def group() -> str:
    return f"group-{next(_numbers)}"


def new_topic(cluster: LocalCluster, queues: int = 4) -> str:
    """Create a topic of a name never used before."""
    name = f"topic-{next(_numbers)}"
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic(name, queues=queues)
    return name


@pytest.fixture
def make_topic() -> Callable[..., str]:
    return new_topic
