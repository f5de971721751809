"""A cluster with short delays and locks, and waiting for what should come about."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cometmq.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def short_delay_cluster(root: Path) -> LocalCluster:
    """Return a name server and a broker, not started, in processes of their own."""
    return LocalCluster(
        root / "store",
        apart=True,
        queue_lock_expire_ms=3_000,
        message_delay_level=" ".join(["1s"] * 20),
        commit_log_file_bytes=16 * 1024 * 1024,
    )


def until(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    """Wait until a condition holds; fails the test when it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s in vain"
        time.sleep(0.01)
