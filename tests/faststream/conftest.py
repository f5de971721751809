"""Topics for the applications of these tests, on the cluster of the test kit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cometmq import Admin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cometmq.testing import LocalCluster


@pytest.fixture
def topic(cometmq_cluster: LocalCluster, cometmq_make_topic: Callable[..., str]) -> Iterator[str]:
    """A topic of one queue, and another for what becomes of its messages."""
    name = cometmq_make_topic(queues=1)
    with Admin(namesrv=cometmq_cluster.namesrv) as admin:
        admin.create_topic(f"{name}-out", 1)
        yield name
        admin.delete_topic(f"{name}-out")
