"""`cometmq why` of a group whose broker really reads from the disk: its files leave the memory."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from client.short_delay_cluster import until
from cometmq import Admin, Message, Producer, PushConsumer
from cometmq.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MESSAGES, BODY_BYTES, LOOK_S = 50_000, 16_000, 1.0


def forget(folder: Path) -> None:
    """Drop all files of a folder from the system's memory."""
    for path in folder.iterdir():
        fd = os.open(path, os.O_RDWR)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


@contextmanager
def memory_full_of_other_things(folder: Path) -> Iterator[None]:
    """Let nothing that is read stay in memory."""
    over = threading.Event()

    def drop() -> None:
        while not over.wait(0.005):
            forget(folder)

    dropping = threading.Thread(target=drop)
    dropping.start()
    try:
        yield
    finally:
        over.set()
        dropping.join()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_disk_reads_are_named_where_a_group_waits_for_the_brokers_disk(tmp_path: Path) -> None:
    log = tmp_path / "store" / "commitlog"
    with LocalCluster(log.parent, apart=True) as cluster:
        with Admin(namesrv=cluster.namesrv) as admin:
            admin.create_topic("old", queues=4)
        with Producer("clerk", namesrv=cluster.namesrv) as producer:
            for _ in range(MESSAGES // 100):
                old = [Message("old", os.urandom(BODY_BYTES)) for _ in range(100)]
                producer.send_many(old, timeout_s=60)
        cluster.stop_broker()
        cluster.restart()
        forget(log)
        handled = []
        reader = PushConsumer(
            "readers", namesrv=cluster.namesrv, consume_from="first", pull_batch_size=8
        )
        reader.subscribe("old", "*", handled.extend)
        with Admin(namesrv=cluster.namesrv) as admin, memory_full_of_other_things(log), reader:
            until(lambda: handled)
            found = admin.why("readers", LOOK_S)
            assert len(handled) < MESSAGES, "this disk is too fast for so few messages"
    assert found.cause.name == "disk reads", found.lines()
    assert "reads waited for the disk" in found.cause.what
    assert not [change for change in found.changes if change.is_gain], "nothing else would help"
