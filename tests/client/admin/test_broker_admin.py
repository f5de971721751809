"""An admin looks at brokers, name servers and producers, and changes their settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client.short_delay_cluster import until
from cometmq import Admin, BrokerError, ClientError, Message, Producer, RouteNotFound
from cometmq.errors import ConnectFailed

if TYPE_CHECKING:
    from cometmq.testing.cluster import LocalCluster


def test_a_broker_is_asked_by_name_and_by_address(cluster: LocalCluster, admin: Admin) -> None:
    for broker in ("broker-a", cluster.broker):
        assert admin.broker_status(broker)["brokerActive"] == "true"
        assert admin.broker_config(broker)["brokerName"] == "broker-a"
    assert admin.broker_addrs() == {"broker-a": cluster.broker}
    with pytest.raises(ConnectFailed, match="no broker named broker-z; there are: broker-a"):
        admin.broker_status("broker-z")


def test_settings_of_running_servers_are_changed(cluster: LocalCluster, admin: Admin) -> None:
    was = admin.broker_config("broker-a")["maxTransferCountOnMessageInMemory"]
    remark = admin.set_broker_config("broker-a", {"maxTransferCountOnMessageInMemory": "31"})
    assert "until the broker stops" in remark
    assert admin.broker_config("broker-a")["maxTransferCountOnMessageInMemory"] == "31"
    admin.set_broker_config("broker-a", {"maxTransferCountOnMessageInMemory": was})
    with pytest.raises(BrokerError, match="flushDiskTyp"):
        admin.set_broker_config("broker-a", {"flushDiskTyp": "SYNC_FLUSH"})
    for wrong in ({}, {"a=b": "c"}, {"": "c"}):
        with pytest.raises(ClientError):
            admin.set_broker_config("broker-a", wrong)
    assert list(admin.name_server_config()) == [cluster.namesrv]
    admin.set_name_server_config({"orderMessageEnable": "true"})
    assert admin.name_server_config()[cluster.namesrv]["orderMessageEnable"] == "true"
    admin.set_name_server_config({"orderMessageEnable": "false"})


def test_a_broker_is_taken_out_of_writing_and_back(cluster: LocalCluster, admin: Admin) -> None:
    admin.create_topic("wiped", 1)
    assert admin.wipe_write_permission("broker-a")[cluster.namesrv] > 0
    assert [data.perm & 2 for data in admin.topic_route("wiped").queue_datas] == [0]
    assert admin.restore_write_permission("broker-a")[cluster.namesrv] > 0
    assert [data.perm & 2 for data in admin.topic_route("wiped").queue_datas] == [2]
    with pytest.raises(ConnectFailed, match="no broker named broker-z"):
        admin.wipe_write_permission("broker-z")


def test_connected_producers_are_listed(cluster: LocalCluster, admin: Admin, topic: str) -> None:
    with Producer("listed-clerk", namesrv=cluster.namesrv) as producer:
        producer.send(Message(topic, b"x"))
        until(lambda: "listed-clerk" in admin.producers())
        (one,) = admin.producers()["listed-clerk"]
        assert (one.language, one.remote_addr.partition(":")[0]) == ("PYTHON", "127.0.0.1")


def test_a_topic_is_deleted_with_its_messages(cluster: LocalCluster, admin: Admin) -> None:
    admin.create_topic("thrown-away", 1)
    with Producer("clerk", namesrv=cluster.namesrv) as producer:
        producer.send(Message("thrown-away", b"x"))
    assert admin.topic_config("thrown-away")["broker-a"].read_queue_nums == 1
    assert admin.delete_topic("thrown-away") == ["broker-a"]
    assert "thrown-away" not in admin.topics()
    with pytest.raises(RouteNotFound):
        admin.topic_config("thrown-away")
    admin.create_topic("thrown-away", 1)
    assert [one.max_offset for one in admin.topic_stats("thrown-away").values()] == [0]
    with pytest.raises(RouteNotFound, match="did you mean thrown-away"):
        admin.delete_topic("thrown-awy")
    with pytest.raises(ClientError, match="RocketMQ's own"):
        admin.delete_topic("SCHEDULE_TOPIC_XXXX")


def test_the_traffic_of_a_topic_counts_what_each_group_was_given(
    cluster: LocalCluster, admin: Admin, topic: str, group: str
) -> None:
    with Producer("clerk", namesrv=cluster.namesrv) as producer:
        producer.send(Message(topic, b"x"))
    admin.create_group(group)
    (queue, *_) = admin.queues(topic)
    admin.set_group_offsets(group, {queue: 0})
    assert group in admin.topic_groups(topic)
    assert list(admin.topic_traffic(topic).read) == admin.topic_groups(topic)
