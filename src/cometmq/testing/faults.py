"""Faults by name: each is there inside its `with` and over after it.

`broker_killed`, `broker_suspended` and `network_partition` need servers in processes of their own
(`LocalCluster`, `RelayedCluster`). `SlowFiles` slows the disk of an `InProcessCluster`.
`expire_locks` works on every broker, Apache's as well.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from cometmq.client.admin.async_admin import AsyncAdmin
from cometmq.runtime.system_clock_and_files import SystemFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import OpenFile
    from cometmq.testing.cluster import LocalCluster
    from cometmq.testing.group_waits import HasNameServer
    from cometmq.testing.relayed_cluster import RelayedCluster


@contextmanager
def broker_killed(cluster: LocalCluster) -> Iterator[None]:
    """The broker's process is dead (SIGKILL); after the `with` it starts again on its store."""
    cluster.kill()
    try:
        yield
    finally:
        cluster.restart()


@contextmanager
def broker_suspended(cluster: LocalCluster) -> Iterator[None]:
    """The broker's process stands still (SIGSTOP): connections stay open and nothing answers."""
    pid = cluster.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def network_partition(cluster: RelayedCluster) -> Iterator[None]:
    """Nothing passes between clients and servers, in either direction, without a sign.

    What was written meanwhile arrives after the `with`, as TCP sends it again.
    """
    cluster.hold()
    try:
        yield
    finally:
        cluster.release()


def expire_locks(cluster: HasNameServer, group: str, topic: str) -> int:
    """Take the locks of an orderly group's queues from their owners, as if they had run out.

    Another member may lock a queue from now on, while its owner believes that it has it. Returns
    how many locks were given up.
    """
    return asyncio.run(expire_locks_async(cluster, group, topic))


async def expire_locks_async(cluster: HasNameServer, group: str, topic: str) -> int:
    """Do as `expire_locks`, on an event loop."""
    async with AsyncAdmin(namesrv=cluster.namesrv) as admin:
        owned = defaultdict(list)
        for row in await admin.group_lag(group, topic):
            if row.owner is not None:
                owned[row.owner].append(row.queue)
        for owner, queues in owned.items():
            await admin.unlock_queues(group, owner, queues)
    return sum(map(len, owned.values()))


class SlowFiles(SystemFiles):
    """The real disk, each sync of which takes `sync_s` seconds longer; it may be set at any time.

    async with InProcessCluster(tmp_path, files=SlowFiles(0.2), flush_disk_type="SYNC_FLUSH"): ...
    """

    def __init__(self, sync_s: float) -> None:
        self.sync_s = sync_s

    def open(self, path: Path, size: int, *, mapped: bool = False) -> OpenFile:
        """Open a file whose syncs are slow."""
        file = _SlowFile(super().open(path, size, mapped=mapped), lambda: self.sync_s)
        return cast("OpenFile", file)


class _SlowFile:
    """A file that syncs slowly and does all else as it did."""

    def __init__(self, file: OpenFile, sync_s: Callable[[], float]) -> None:
        self._file = file
        self._sync_s = sync_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        """Sync, after a while."""
        time.sleep(self._sync_s())
        self._file.sync()
