"""The clusters of the test kit."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from cometmq import Message, Producer
from cometmq.errors import SettingsError
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.testing.cluster import ClusterError, InProcessCluster, LocalCluster

if TYPE_CHECKING:
    from pathlib import Path


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_cluster_is_killed_and_comes_back_with_its_messages(tmp_path: Path) -> None:
    with LocalCluster(tmp_path) as cluster:
        before = cluster.namesrv, cluster.broker
        with Producer("group", namesrv=cluster.namesrv) as producer:
            sent = producer.send(Message("topic", b"kept"))
        pid = cluster.pid
        cluster.kill()
        assert not is_alive(pid)
        cluster.restart()
        assert (cluster.namesrv, cluster.broker) == before
        with Producer("group", namesrv=cluster.namesrv) as producer:
            producer.send(Message("topic", b"more"))
        assert b"kept" in b"".join(path.read_bytes() for path in (tmp_path / "commitlog").iterdir())
        pid = cluster.pid
    assert sent.queue_offset == 0
    assert not is_alive(pid)


def test_apart_the_name_server_survives_its_broker(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, apart=True) as cluster:
        cluster.kill()
        BlockingChannel(cluster.namesrv).close()
        cluster.restart()
        BlockingChannel(cluster.broker).close()
        assert cluster.stop_broker() == 0


def test_a_temporary_store_is_deleted_with_the_cluster() -> None:
    with LocalCluster() as cluster:
        store = cluster.store
        assert (store / "config").is_dir()
    assert not store.exists()


def test_a_cluster_that_cannot_start_says_why() -> None:
    cluster = LocalCluster(flush_disk_type="NEVER")
    with pytest.raises(ClusterError, match="flushDiskType is 'NEVER'"):
        cluster.start()
    cluster.stop()


def test_settings_go_by_field_name_or_by_key(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with InProcessCluster(
            tmp_path, default_topic_queue_nums=3, brokerName="blue"
        ) as cluster:
            assert cluster.role.settings.default_topic_queue_nums == 3
            assert cluster.role.settings.broker_name == "blue"
            BlockingChannel(cluster.namesrv).close()
        with pytest.raises(SettingsError, match="the test: unknown setting nonsense"):
            InProcessCluster(tmp_path, nonsense=1)

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_a_failing_start_leaves_nothing_running(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with InProcessCluster(tmp_path / "a") as cluster:
            port = cluster.broker.rpartition(":")[2]
            second = InProcessCluster(tmp_path / "b", listen_port=port)
            with pytest.raises(SettingsError, match="is in use"):
                await second.start()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(*second.namesrv.split(":"))

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_a_setting_by_its_old_field_name_works_and_says_the_new_one(tmp_path):
    with pytest.warns(DeprecationWarning, match="max_message_size is called max_message_bytes now"):
        cluster = LocalCluster(tmp_path, max_message_size=1000)
    assert "--set=maxMessageSize=1000" in cluster._sets
