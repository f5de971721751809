"""`cometmq store snapshot` of a slave in a process of its own, while its master is sent to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.shell import cometmq
from cometmq import Admin
from cometmq.testing.cluster import LocalCluster
from crash.pulled_messages import pull
from crash.replicated_brokers import COMMON, QUEUES, TOPIC, Load, ReplicatedBrokers

if TYPE_CHECKING:
    from pathlib import Path

LAYOUT = ("--index-slots", "5000", "--index-entries", "20000")
KEPT = ("mappedFileSizeCommitLog", "maxHashSlotNum", "maxIndexNum", "diskMaxUsedSpaceRatio")


def test_a_snapshot_of_a_slave_has_all_that_the_master_had_answered(tmp_path: Path) -> None:
    stores, target = (tmp_path / "master", tmp_path / "slave"), tmp_path / "copy"
    with ReplicatedBrokers(*stores) as brokers, Load(brokers.namesrv) as load:
        load.resume()
        load.wait_for_more()
        load.pause()
        answered = load.acked["single"] + load.acked["batch"]
        load.resume()
        done = cometmq("store", "snapshot", str(stores[1]), str(target))
        assert done.returncode == 0, done.stderr
        load.pause()
    verified = cometmq("store", "verify", str(target), *LAYOUT)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    settings = {name: COMMON[name] for name in KEPT}
    with LocalCluster(target, timeout_s=60, **settings) as restored:
        with Admin(namesrv=restored.namesrv) as admin:
            assert TOPIC in admin.topics()
        stored = {
            body
            for queue_id in range(QUEUES)
            for body in pull(restored.broker, TOPIC, queue_id, {}).values()
        }
    assert answered
    assert set(answered) <= stored
