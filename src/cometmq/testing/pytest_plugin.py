"""Fixtures for pytest: a cluster for the session, a topic and a group for each test.

pytest finds them by the entry point `cometmq`; nothing is started before a test asks for it. Under
pytest-xdist each worker has a cluster of its own. With `--cometmq-namesrv` tests run on a cluster
that runs already, an Apache RocketMQ cluster for instance; names never used before keep them apart.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cometmq.testing.cluster import LocalCluster


class RunningCluster(NamedTuple):
    """A cluster that was there before the tests."""

    namesrv: str


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--cometmq-namesrv`."""
    parser.getgroup("cometmq").addoption(
        "--cometmq-namesrv",
        metavar="HOST:PORT",
        help="run on this name server's cluster instead of starting one",
    )


@pytest.fixture(scope="session")
def cometmq_settings() -> dict[str, Any]:
    """Settings of the clusters, by field name or by key. Override it in your conftest.py."""
    return {}


@pytest.fixture(scope="session")
def cometmq_cluster(
    request: pytest.FixtureRequest, cometmq_settings: dict[str, Any]
) -> Iterator[LocalCluster | RunningCluster]:
    """A cluster that all tests of the session share; none of them stops it."""
    from cometmq.testing.cluster import LocalCluster

    given = request.config.getoption("--cometmq-namesrv")
    if given:
        yield RunningCluster(given)
        return
    with LocalCluster(**cometmq_settings) as running:
        yield running


@pytest.fixture
def cometmq_own_cluster(cometmq_settings: dict[str, Any]) -> Iterator[LocalCluster]:
    """A cluster for this test alone, which may kill it."""
    from cometmq.testing.cluster import LocalCluster

    with LocalCluster(**cometmq_settings) as running:
        yield running


@pytest.fixture
def cometmq_make_topic(
    cometmq_cluster: LocalCluster | RunningCluster,
) -> Iterator[Callable[..., str]]:
    """A function that creates a topic of a name never used before and returns the name.

    It takes what `Admin.create_topic` takes, `queues=8` for instance. The topics are deleted after
    the test.
    """
    from cometmq.client.blocking.admin import Admin

    made: list[str] = []
    with Admin(namesrv=cometmq_cluster.namesrv) as admin:

        def make(**settings: Any) -> str:
            name = _new_name("topic")
            admin.create_topic(name, **settings)
            made.append(name)
            return name

        yield make
        for name in made:
            admin.delete_topic(name)


@pytest.fixture
def cometmq_topic(cometmq_make_topic: Callable[..., str]) -> str:
    """A topic of four queues for this test alone."""
    return cometmq_make_topic(queues=4)


@pytest.fixture
def cometmq_group() -> str:
    """The name of a group for this test alone."""
    return _new_name("group")


def _new_name(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:12]}"
