"""Bodies that say where things live: routes (105), the cluster (106), a member group (901).

Integer keys go out bare, as every Java peer writes them, except to those that asked for standard
JSON. Both forms are read.
Java: TopicRouteData, ClusterInfo, GetBrokerMemberGroupResponseBody.
"""

from __future__ import annotations

from typing import Any

from cometmq.model.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from cometmq.wire import fastjson
from cometmq.wire.bodies import json_fields

STRICT_VERSION = 401
"""Peers of this version (4.9.4) and later get standard JSON in answer to 105."""


def encode_route(route: TopicRouteData, *, strict: bool = False) -> bytes:
    """Write a route; `strict` follows the request's version or acceptStandardJsonOnly."""
    fields = {
        "brokerDatas": [_broker_fields(broker) for broker in route.broker_datas],
        "filterServerTable": route.filter_server_table,
        "orderTopicConf": route.order_topic_conf,
        "queueDatas": [_queue_fields(queue) for queue in route.queue_datas],
    }
    return fastjson.dumps(fields, strict=strict)


def decode_route(data: bytes) -> TopicRouteData:
    """Read a route."""
    obj = json_fields.load_object(data)
    return TopicRouteData(
        broker_datas=tuple(json_fields.items(obj, "brokerDatas", _broker_of)),
        queue_datas=tuple(json_fields.items(obj, "queueDatas", _queue_of)),
        order_topic_conf=json_fields.text_or_none(obj, "orderTopicConf"),
        filter_server_table=json_fields.text_lists(obj, "filterServerTable"),
    )


def encode_cluster_info(info: ClusterInfo) -> bytes:
    """Write all brokers and clusters."""
    brokers = {name: _broker_fields(data) for name, data in info.broker_addr_table.items()}
    return fastjson.dumps({"brokerAddrTable": brokers, "clusterAddrTable": info.cluster_addr_table})


def decode_cluster_info(data: bytes) -> ClusterInfo:
    """Read all brokers and clusters."""
    obj = json_fields.load_object(data)
    return ClusterInfo(
        broker_addr_table=json_fields.table(obj, "brokerAddrTable", _broker_of),
        cluster_addr_table=json_fields.text_lists(obj, "clusterAddrTable"),
    )


def encode_member_group(group: BrokerData | None) -> bytes:
    """Write who shares a broker name; None for nobody."""
    fields = group and {
        "brokerAddrs": group.broker_addrs,
        "brokerName": group.broker_name,
        "cluster": group.cluster,
    }
    return fastjson.dumps({"brokerMemberGroup": fields})


def decode_member_group(data: bytes) -> BrokerData | None:
    """Read who shares a broker name; None for nobody."""
    group = json_fields.load_object(data).get("brokerMemberGroup")
    return None if group is None else _broker_of(group)


def _broker_fields(broker: BrokerData) -> dict[str, object]:
    return {
        "brokerAddrs": broker.broker_addrs,
        "brokerName": broker.broker_name,
        "cluster": broker.cluster,
        "enableActingMaster": broker.enable_acting_master,
        "zoneName": broker.zone_name,
    }


def _broker_of(value: Any) -> BrokerData:
    obj = json_fields.object_of(value, "a broker")
    addrs = json_fields.text_table(obj, "brokerAddrs")
    return BrokerData(
        cluster=json_fields.text(obj, "cluster"),
        broker_name=json_fields.text(obj, "brokerName"),
        broker_addrs={
            json_fields.as_number(key, "brokerAddrs"): addr for key, addr in addrs.items()
        },
        enable_acting_master=json_fields.flag(obj, "enableActingMaster"),
        zone_name=json_fields.text_or_none(obj, "zoneName"),
    )


def _queue_fields(queue: QueueData) -> dict[str, object]:
    return {
        "brokerName": queue.broker_name,
        "perm": queue.perm,
        "readQueueNums": queue.read_queue_nums,
        "topicSysFlag": queue.topic_sys_flag,
        "writeQueueNums": queue.write_queue_nums,
    }


def _queue_of(value: Any) -> QueueData:
    obj = json_fields.object_of(value, "queueDatas")
    return QueueData(
        broker_name=json_fields.text(obj, "brokerName"),
        read_queue_nums=json_fields.number(obj, "readQueueNums"),
        write_queue_nums=json_fields.number(obj, "writeQueueNums"),
        perm=json_fields.number(obj, "perm"),
        topic_sys_flag=json_fields.number(obj, "topicSysFlag"),
    )
