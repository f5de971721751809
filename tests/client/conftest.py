"""One broker for the tests that leave it alive, and one of its own for each that kills it."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

from client.served import cluster
from cometmq import Admin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cometmq.testing.cluster import LocalCluster

_numbers = count()


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with cluster(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[LocalCluster]:
    """A cluster whose broker the test may kill."""
    with cluster(tmp_path) as running:
        yield running


@pytest.fixture
def topic(served: LocalCluster) -> str:
    return new_topic(served)


@pytest.fixture
def group() -> str:
    return f"group-{next(_numbers)}"


def new_topic(served: LocalCluster, queues: int = 4) -> str:
    """Create a topic of a name never used before."""
    name = f"topic-{next(_numbers)}"
    with Admin(namesrv=served.namesrv) as admin:
        admin.create_topic(name, queues=queues)
    return name


@pytest.fixture
def make_topic() -> Callable[..., str]:
    return new_topic
