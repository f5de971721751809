"""One cluster for the applications of these tests, and names of their own."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

from cometmq import Admin
from cometmq.testing import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

_numbers = count()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A running broker and name server."""
    with LocalCluster(tmp_path_factory.mktemp("faststream")) as running:
        yield running


@pytest.fixture
def topic(cluster: LocalCluster) -> str:
    """A topic of one queue."""
    name = f"stream-{next(_numbers)}"
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic(name, 1)
        admin.create_topic(f"{name}-out", 1)
    return name
