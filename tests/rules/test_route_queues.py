"""The queues and addresses that a client reads from a route."""

import random

import pytest

from cometmq.model.queue import MessageQueue
from cometmq.model.route import BrokerData, QueueData, TopicRouteData
from cometmq.rules import route_queues


def broker(name, addrs):
    return BrokerData(cluster="c", broker_name=name, broker_addrs=addrs)


def queues(name, read, write, perm=6):
    return QueueData(broker_name=name, read_queue_nums=read, write_queue_nums=write, perm=perm)


def test_queues_to_send_to_are_writable_and_have_a_master_whatever_the_order_they_came_in():
    datas = [
        queues("b", 2, 2),
        queues("a", 3, 1),
        queues("read-only", 2, 2, perm=4),
        queues("slave-only", 2, 2),
        queues("unheard-of", 2, 2),
    ]
    brokers = [broker("a", {0: "a:1"}), broker("b", {0: "b:1", 1: "b:2"})]
    brokers += [broker("read-only", {0: "c:1"}), broker("slave-only", {1: "d:1"})]
    for seed in range(5):
        random.Random(seed).shuffle(datas)
        route = TopicRouteData(broker_datas=tuple(brokers), queue_datas=tuple(datas))
        found = route_queues.publish_queues("T", route)
        assert found == [
            MessageQueue("T", "a", 0),
            MessageQueue("T", "b", 0),
            MessageQueue("T", "b", 1),
        ]
        readable = route_queues.subscribe_queues("T", route)
        assert [q.broker_name for q in readable].count("a") == 3
        assert [q.broker_name for q in readable].count("slave-only") == 2


def test_an_ordered_topic_has_the_queues_its_configuration_says():
    route = TopicRouteData(order_topic_conf="b:2;a:1;junk;c:x")
    assert route_queues.publish_queues("T", route) == [
        MessageQueue("T", "b", 0),
        MessageQueue("T", "b", 1),
        MessageQueue("T", "a", 0),
    ]


def test_a_route_from_the_default_topic_has_no_more_queues_than_asked_for():
    route = TopicRouteData(
        broker_datas=(broker("a", {0: "a:1"}),), queue_datas=(queues("a", 8, 8, perm=7),)
    )
    assert len(route_queues.publish_queues("T", route_queues.default_topic_route(route, 4))) == 4
    assert len(route_queues.publish_queues("T", route_queues.default_topic_route(route, 40))) == 8


@pytest.mark.parametrize(
    ("addrs", "broker_id", "addr"),
    [
        ({0: "m", 1: "s"}, 0, "m"),
        ({0: "m", 1: "s"}, 1, "s"),
        ({0: "m", 2: "s"}, 1, "s"),
        ({0: "m"}, 3, "m"),
        ({1: "s"}, 0, "s"),
        ({}, 0, None),
    ],
)
def test_a_reader_goes_to_the_broker_suggested_or_to_the_next_best(addrs, broker_id, addr):
    assert route_queues.read_addr(addrs, broker_id) == addr
