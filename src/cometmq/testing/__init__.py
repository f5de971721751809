"""The test kit: clusters in a process, in this loop or in memory; waits, faults, virtual time.

The names below are its public ones; each is loaded when it is first used. With pytest installed the
fixtures of `cometmq.testing.pytest_plugin` are there without an import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cometmq.testing.cluster import (
        ClusterError,
        InProcessCluster,
        LocalCluster,
        ServerProcess,
    )
    from cometmq.testing.faults import (
        SlowFiles,
        broker_killed,
        broker_suspended,
        expire_locks,
        expire_locks_async,
        network_partition,
    )
    from cometmq.testing.group_waits import (
        until_assigned,
        until_idle,
        until_stored,
        wait_until_assigned,
        wait_until_idle,
        wait_until_stored,
    )
    from cometmq.testing.inbox import Inbox, assert_in_order
    from cometmq.testing.memory_cluster import MemoryCluster, in_virtual_time
    from cometmq.testing.relayed_cluster import RelayedCluster

_NAMES = {
    "cluster": ("ClusterError", "InProcessCluster", "LocalCluster", "ServerProcess"),
    "faults": (
        "SlowFiles",
        "broker_killed",
        "broker_suspended",
        "expire_locks",
        "expire_locks_async",
        "network_partition",
    ),
    "group_waits": (
        "until_assigned",
        "until_idle",
        "until_stored",
        "wait_until_assigned",
        "wait_until_idle",
        "wait_until_stored",
    ),
    "inbox": ("Inbox", "assert_in_order"),
    "memory_cluster": ("MemoryCluster", "in_virtual_time"),
    "relayed_cluster": ("RelayedCluster",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = [
    "ClusterError",
    "InProcessCluster",
    "Inbox",
    "LocalCluster",
    "MemoryCluster",
    "RelayedCluster",
    "ServerProcess",
    "SlowFiles",
    "assert_in_order",
    "broker_killed",
    "broker_suspended",
    "expire_locks",
    "expire_locks_async",
    "in_virtual_time",
    "network_partition",
    "until_assigned",
    "until_idle",
    "until_stored",
    "wait_until_assigned",
    "wait_until_idle",
    "wait_until_stored",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
