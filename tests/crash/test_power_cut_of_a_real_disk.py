"""A broker on real files loses what it never synced: what it acknowledged is there nevertheless.

The simulated disk shows that the store syncs its ports in the right order; this shows that the
real files hand each of these syncs to the kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cometmq import Admin, Message, Producer
from cometmq.testing.cluster import ClusterError, LocalCluster
from crash.power_image import PowerImage
from crash.pulled_messages import pull

if TYPE_CHECKING:
    from pathlib import Path

TOPIC, MESSAGES = "CrashTest", 40
SETTINGS = {
    "flush_disk_type": "SYNC_FLUSH",
    "commit_log_file_bytes": 64 << 10,
    "consume_queue_file_bytes": 400,
}


def send_and_lose_power(cluster: LocalCluster) -> dict[int, dict[int, bytes]]:
    """Acknowledge a topic and messages across several files; then the power is gone."""
    acked: dict[int, dict[int, bytes]] = {}
    with Admin(namesrv=cluster.namesrv) as admin, Producer("p", namesrv=cluster.namesrv) as sender:
        admin.create_topic(TOPIC, queues=4)
        for number in range(MESSAGES):
            body = b"%d " % number + bytes(3000)
            result = sender.send(Message(TOPIC, body))
            acked.setdefault(result.queue.queue_id, {})[result.queue_offset] = body
    cluster.kill()
    return acked


@pytest.fixture
def power(monkeypatch, tmp_path):
    return PowerImage(monkeypatch, tmp_path / "store", tmp_path / "image")


def read_back(store: Path) -> dict[int, dict[int, bytes]]:
    """Start a broker on what is left and pull every message of the topic."""
    with LocalCluster(store, **SETTINGS) as cluster, Admin(namesrv=cluster.namesrv) as admin:
        assert TOPIC in admin.topics()
        return {queue: pull(cluster.broker, TOPIC, queue, {}) for queue in range(4)}


def send_and_cut(power: PowerImage, tmp_path: Path) -> tuple[dict[int, dict[int, bytes]], Path]:
    with LocalCluster(tmp_path / "store", **SETTINGS) as cluster:
        acked = send_and_lose_power(cluster)
    assert sum(len(offsets) for offsets in acked.values()) == MESSAGES
    return acked, power.assemble(tmp_path / "left")


def test_what_was_acknowledged_survives_a_power_cut(power, tmp_path):
    acked, left = send_and_cut(power, tmp_path)
    found = read_back(left)
    assert {queue: found[queue] for queue in acked} == acked


@pytest.mark.parametrize("kind", ["data", "names", "tables"])
def test_a_sync_that_does_nothing_is_noticed(power, tmp_path, monkeypatch, kind):
    monkeypatch.setenv("FORGOTTEN_SYNC", kind)
    acked, left = send_and_cut(power, tmp_path)
    monkeypatch.delenv("FORGOTTEN_SYNC")
    try:
        found = read_back(left)
    except (AssertionError, ClusterError):
        return  # the topic is unknown, or the store is refused
    assert {queue: found[queue] for queue in acked} != acked
