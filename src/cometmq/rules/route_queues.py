"""What a client reads from a route: queues to send to, queues to read, addresses of brokers.

Selects queues by permission and by master. Invariant: the order of the queues depends on the
route's content, never on the order in which it arrived, so every producer, Java's included, maps a
sharding key to the same queue.
Java: MQClientInstance.topicRouteData2TopicPublishInfo, topicRouteData2TopicSubscribeInfo
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cometmq.model.queue import MessageQueue
from cometmq.model.route import MASTER_ID, TopicRouteData
from cometmq.rules.permission import is_readable, is_writable

if TYPE_CHECKING:
    from collections.abc import Iterator


def publish_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """The queues a producer may choose from: writable, on brokers with a master, in order."""
    if route.order_topic_conf:
        return list(_ordered(topic, route.order_topic_conf))
    with_master = {data.broker_name for data in route.broker_datas if data.master}
    return [
        MessageQueue(topic, data.broker_name, queue_id)
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
        if is_writable(data.perm) and data.broker_name in with_master
        for queue_id in range(data.write_queue_nums)
    ]


def subscribe_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """The queues that a consumer group divides: all readable ones, in order."""
    return [
        MessageQueue(topic, data.broker_name, queue_id)
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
        if is_readable(data.perm)
        for queue_id in range(data.read_queue_nums)
    ]


def default_topic_route(route: TopicRouteData, queue_count: int) -> TopicRouteData:
    """The route that a topic will have which does not exist yet, from the default topic's.

    It has at most `queue_count` queues on each broker.
    """
    assert queue_count > 0, "a topic has at least one queue"
    return replace(
        route,
        queue_datas=tuple(
            replace(
                data,
                read_queue_nums=min(queue_count, data.read_queue_nums),
                # updateTopicRouteInfoFromNameServer takes the read queues for both.
                write_queue_nums=min(queue_count, data.read_queue_nums),
            )
            for data in route.queue_datas
        ),
    )


def read_addr(addrs: dict[int, str], broker_id: int) -> str | None:
    """The address to pull from: that of the suggested broker id, else of the next one, else any."""
    wanted = addrs.get(broker_id)
    if wanted is None and broker_id != MASTER_ID:
        wanted = addrs.get(broker_id + 1)
    return wanted or next(iter(addrs.values()), None)


def _ordered(topic: str, order_topic_conf: str) -> Iterator[MessageQueue]:
    """Queues of a globally ordered topic, written as `broker:count;broker:count`."""
    for part in order_topic_conf.split(";"):
        broker_name, mark, count = part.partition(":")
        if mark and count.strip().isdecimal():
            for queue_id in range(int(count)):
                yield MessageQueue(topic, broker_name, queue_id)
