"""Keys to queues, routes to queues, and what follows a failure."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.model.queue import MessageQueue
from cometmq.model.route import BrokerData, QueueData, TopicRouteData
from cometmq.rules import retry_policy, route_queues
from cometmq.rules.key_hash import long_hash, queue_index


@pytest.mark.parametrize(
    ("code", "count", "index"),
    [(-392_797_389, 4, 1), (-(2**31), 3, 2), (-(2**31), 16, 0), (7, 4, 3), (0, 1, 0)],
)
def test_a_hash_code_chooses_the_queue_that_java_chooses(code, count, index):
    assert queue_index(code, count) == index


@pytest.mark.parametrize(
    ("value", "code"),
    [(0, 0), (1, 1), (-1, 0), (2**32, 1), (2**63 - 1, -(2**31)), (-(2**63), -(2**31))],
)
def test_a_long_hashes_as_in_java(value, code):
    assert long_hash(value) == code


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


def test_a_borrowed_route_has_no_more_queues_than_asked_for():
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


def test_attempts_are_counted_with_the_first_one():
    assert retry_policy.reconsume_times_max(3, orderly=True) == 2
    assert retry_policy.reconsume_times_max(None, orderly=False) == 16
    assert retry_policy.reconsume_times_max(None, orderly=True) > 2_000_000_000
    assert [retry_policy.attempts_exhausted(times, 2) for times in range(4)] == [
        False,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(("asked", "got"), [(0, 10), (100, 100), (99_999, 30_000), (-5, 10)])
def test_a_queue_rests_within_bounds(asked, got):
    assert retry_policy.clamp_suspend_ms(asked) == got


def test_pauses_double_up_to_their_bound():
    assert [retry_policy.backoff_s(n, 0.1, 1.0) for n in (1, 2, 3, 4, 5, 1000)] == [
        0.1, 0.2, 0.4, 0.8, 1.0, 1.0,
    ]  # fmt: skip


def test_a_retry_waits_longer_each_time_unless_a_level_is_asked_for():
    assert [retry_policy.retry_delay_level(0, times) for times in (0, 1, 5)] == [3, 4, 8]
    assert retry_policy.retry_delay_level(7, 5) == 7


@given(st.text(), st.text())
def test_a_reason_is_short_and_holds_no_separator(kind, text):
    reason = retry_policy.dead_letter_reason(kind, text)
    assert len(reason) <= 512
    assert reason.isprintable()


def test_a_reason_names_the_error_and_its_text():
    assert retry_policy.dead_letter_reason("ValueError", "no arrival") == "ValueError: no arrival"
    assert retry_policy.dead_letter_reason("ValueError", "") == "ValueError"
