"""Connections that the planner's and the tasks' cache holds are closed after each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cometmq.spark.source import cluster_client as clusters

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _close_connections() -> Iterator[None]:
    yield
    for one in clusters._clients.values():
        one.reset()
    clusters._clients.clear()
