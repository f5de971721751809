"""The two houses the same tests run against, and the record of what came out in each."""

from __future__ import annotations

import json
import os
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from client.served import until
from cometmq import Admin
from cometmq.testing.cluster import LocalCluster
from interop.apache import ApacheCluster
from interop.conftest import apache_jars  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOUSES = ("cometmq", "apache")
RECORD = "COMETMQ_PARITY_RECORD"
"""Names a file that gets one JSON line for each test; scripts/parity_page.py sets it."""
DELAYS = "1s 1s 1s 1s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s"

_numbers = count()


class House(NamedTuple):
    """One cluster under test."""

    name: str
    namesrv: str
    broker: str


@pytest.fixture(scope="session", params=HOUSES)
def house(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[House]:
    """A broker and its name server: ours, then Apache RocketMQ's."""
    root = tmp_path_factory.mktemp(request.param)
    if request.param == "cometmq":
        settings = {"message_delay_level": DELAYS, "enable_property_filter": True}
        with LocalCluster(root / "store", **settings) as running:
            yield House("cometmq", running.namesrv, running.broker)
        return
    jars = request.getfixturevalue("apache_jars")
    cluster = ApacheCluster(jars, root, messageDelayLevel=DELAYS, enablePropertyFilter="true")
    try:
        with Admin(namesrv=cluster.namesrv) as admin:  # the broker may be late to register
            until(lambda: admin.clusters().broker_addr_table, 90)
        yield House("apache", cluster.namesrv, cluster.broker)
    finally:
        cluster.stop()


@pytest.fixture
def group() -> str:
    return f"parity-group-{next(_numbers)}"


@pytest.fixture
def make_topic(house: House) -> Callable[[int], str]:
    def make(queues: int = 4) -> str:
        name = f"parity-topic-{next(_numbers)}"
        with Admin(namesrv=house.namesrv) as admin:
            admin.create_topic(name, queues=queues)
        return name

    return make


@pytest.fixture
def topic(make_topic: Callable[[int], str]) -> str:
    return make_topic(4)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[pytest.TestReport]:
    """Write down how a test ended, where somebody asked for it."""
    report = yield
    record = os.environ.get(RECORD)
    house = getattr(item, "callspec", None) and item.callspec.params.get("house")
    if record and house and (report.when == "call" or report.failed):
        line = {
            "file": item.path.stem.removeprefix("test_"),
            "test": item.originalname,
            "house": house,
            "outcome": report.outcome,
        }
        with Path(record).open("a") as out:
            out.write(json.dumps(line) + "\n")
    return report
