"""One cluster for the commands that ask one: its broker has a topic for traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cli.in_process import Commands
from cometmq import Admin
from cometmq.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def running_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A name server and a broker that tests share: none of them stops it."""
    with LocalCluster(tmp_path_factory.mktemp("commands"), trace_topic_enable=True) as cluster:
        yield cluster


@pytest.fixture
def namesrv(running_cluster: LocalCluster) -> str:
    """The address of its name server."""
    return running_cluster.namesrv


@pytest.fixture
def cometmq(namesrv: str) -> Commands:
    """Runs commands at it, in this process."""
    return Commands(namesrv)


@pytest.fixture
def admin(namesrv: str) -> Iterator[Admin]:
    """Administers it."""
    with Admin(namesrv=namesrv) as started:
        yield started
