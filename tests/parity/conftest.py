"""Our broker and Apache's, which the same tests run against, and the record of what came out."""

from __future__ import annotations

import contextlib
import json
import os
import platform
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import cometmq
from client.short_delay_cluster import until
from cometmq import Admin
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.testing.cluster import LocalCluster, ServerProcess
from cometmq.wire.codes import RequestCode
from interop.apache import ApacheCluster
from interop.conftest import apache_jars  # noqa: F401 - a fixture
from parity.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

IMPLEMENTATIONS = ("cometmq", "apache")
RECORD = "COMETMQ_PARITY_RECORD"
"""Names a file that gets one JSON line for each test; scripts/parity_page.py sets it."""
DELAYS = "1s 1s 1s 1s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s"

_numbers = count()


class Cluster(NamedTuple):
    """One cluster under test."""

    name: str
    namesrv: str
    broker: str


OURS = {
    "message_delay_level": DELAYS,
    "enable_property_filter": True,
    "trace_topic_enable": True,
    "transaction_timeout_ms": 500,
    "transaction_check_interval_ms": 500,
}
APACHES = {
    "messageDelayLevel": DELAYS,
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    "transactionTimeOut": 6_000,  # it notes an end up to 3 s late and asks again meanwhile
    "transactionCheckInterval": 2_000,
}


@pytest.fixture(scope="session", params=IMPLEMENTATIONS)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A broker and its name server: ours, then Apache RocketMQ's."""
    root = tmp_path_factory.mktemp(request.param)
    if request.param == "cometmq":
        with LocalCluster(root / "store", **OURS) as running:
            made = Cluster("cometmq", running.namesrv, running.broker)
            note({"implementation": made.name, "version": f"{cometmq.__version__} ({_python()})"})
            yield made
        return
    jars = request.getfixturevalue("apache_jars")
    apache = ApacheCluster(jars, root, **APACHES)
    try:
        until_registered(apache.namesrv, 1)
        made = Cluster("apache", apache.namesrv, apache.broker)
        note({"implementation": made.name, "version": _version(apache.broker)})
        yield made
    finally:
        apache.stop()


class Pair(NamedTuple):
    """Two brokers of one kind behind wires that can be cut."""

    name: str
    namesrv: str
    wires: dict[str, Relay]
    """By broker name."""


@pytest.fixture(scope="module")
def pair(
    cluster: Cluster, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """Two brokers and a name server, all of whose connections go through wires."""
    root = tmp_path_factory.mktemp("pair")
    with contextlib.ExitStack() as started:
        if cluster.name == "cometmq":
            first = started.enter_context(LocalCluster(root / "a", broker_name="a", **OURS))
            namesrv, sets = first.namesrv, ["--set=brokerName=b", f"--store={root / 'b'}"]
            second = ServerProcess(["broker", f"-n{namesrv}", "-p0", *sets])
            started.callback(second.stop)
            brokers = {"a": first.broker, "b": second.facts["broker"]}
        else:
            jars = request.getfixturevalue("apache_jars")
            one = ApacheCluster(jars, root / "a", brokerName="a", **APACHES)
            started.callback(one.stop)
            namesrv = one.namesrv
            other = ApacheCluster(jars, root / "b", namesrv=namesrv, brokerName="b", **APACHES)
            started.callback(other.stop)
            brokers = {"a": one.broker, "b": other.broker}
        until_registered(namesrv, 2)
        wires = {name: Relay(addr) for name, addr in brokers.items()}
        names = Relay(namesrv, {addr: wires[name].addr for name, addr in brokers.items()})
        for wire in (names, *wires.values()):
            started.callback(wire.close)
        yield Pair(cluster.name, names.addr, wires)


def until_registered(namesrv: str, count: int) -> None:
    """Wait for so many brokers: one may be late to register."""
    with Admin(namesrv=namesrv) as admin:
        until(lambda: len(admin.clusters().broker_addr_table) == count, 90)


def _python() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}"


def _version(broker: str) -> str:
    """What a broker says of itself."""
    with BlockingChannel(broker) as channel:
        answer = channel.call(RequestCode.GET_BROKER_RUNTIME_INFO, None)
    description = json.loads(answer.body)["table"]["brokerVersionDesc"]
    return str(description).removeprefix("V").replace("_", ".")


@pytest.fixture
def group() -> str:
    return f"parity-group-{next(_numbers)}"


@pytest.fixture
def make_topic(cluster: Cluster) -> Callable[[int], str]:
    def make(queues: int = 4) -> str:
        name = f"parity-topic-{next(_numbers)}"
        with Admin(namesrv=cluster.namesrv) as admin:
            admin.create_topic(name, queues=queues)
        return name

    return make


@pytest.fixture
def topic(make_topic: Callable[[int], str]) -> str:
    return make_topic(4)


@pytest.fixture
def unmade_topic() -> str:
    """The name of a topic that nobody made."""
    return f"parity-topic-{next(_numbers)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[pytest.TestReport]:
    """Write down how a test ended, where somebody asked for it."""
    report = yield
    cluster = getattr(item, "callspec", None) and item.callspec.params.get("cluster")
    if cluster and (report.when == "call" or report.failed):
        note(
            {
                "file": item.path.stem.removeprefix("test_"),
                "test": item.originalname,
                "implementation": cluster,
                "outcome": report.outcome,
            }
        )
    return report


def note(line: dict[str, str]) -> None:
    """Write a line into the record, where somebody asked for one."""
    record = os.environ.get(RECORD)
    if record:
        with Path(record).open("a") as out:
            out.write(json.dumps(line) + "\n")
