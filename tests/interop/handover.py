"""Leaving a store to the other broker: by a stop, or by a kill."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cometmq.testing.cluster import LocalCluster
    from interop.apache import ApacheCluster


def leave_apache(cluster: ApacheCluster, how: str) -> None:
    if how == "kill":
        cluster._roles[-1]._child.kill()
    cluster.stop()


def leave_ours(cluster: LocalCluster, how: str) -> None:
    if how == "kill":
        cluster.kill()
    cluster.stop()
