"""One cluster for the tests of the admin: its broker has a known name and a topic for traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cometmq import Admin
from cometmq.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A running broker and name server that the tests here share: none of them stops it."""
    place = tmp_path_factory.mktemp("admin")
    with LocalCluster(place, broker_name="broker-a", trace_topic_enable=True) as running:
        yield running


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[Admin]:
    """A running admin."""
    with Admin(namesrv=cluster.namesrv) as started:
        yield started
