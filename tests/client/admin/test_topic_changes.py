"""A topic is created once, and altered only in what is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cometmq import Admin, ClientError, Message, Producer, RouteNotFound
from cometmq.errors import ConnectFailed, TopicExists, WouldHideMessages
from cometmq.model.topic import QUEUES_MAX, TopicConfig
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.wire.bodies.topic import decode_topic_config
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.admin import CreateTopicRequestHeader, GetTopicConfigRequestHeader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cometmq.testing.cluster import LocalCluster


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[Admin]:
    with Admin(namesrv=cluster.namesrv) as started:
        yield started


def config_of(cluster: LocalCluster, topic: str) -> TopicConfig:
    with BlockingChannel(cluster.broker, 5.0) as channel:
        header = GetTopicConfigRequestHeader(topic=topic)
        return decode_topic_config(channel.call(RequestCode.GET_TOPIC_CONFIG, header).body)


def test_what_exists_is_neither_created_nor_changed(
    cluster: LocalCluster, admin: Admin, group: str
) -> None:
    topic = f"made-{group}"
    admin.create_topic(topic, 4, read_queues=6, perm="w", order=True)
    before = config_of(cluster, topic)
    assert (before.read_queue_nums, before.write_queue_nums, before.perm) == (6, 4, 2)
    with pytest.raises(TopicExists, match=r"exists on \S+ \(6 read and 4 write queues\)"):
        admin.create_topic(topic, 2)
    assert config_of(cluster, topic) == before


def test_what_is_not_named_stays(cluster: LocalCluster, admin: Admin, group: str) -> None:
    topic = f"kept-{group}"
    with BlockingChannel(cluster.broker, 5.0) as channel:
        header = CreateTopicRequestHeader(
            topic=topic,
            read_queue_nums=4,
            write_queue_nums=4,
            perm=6,
            topic_filter_type="MULTI_TAG",
            topic_sys_flag=1,
            order=True,
            attributes="+message.type=FIFO",
        )
        assert channel.call(RequestCode.UPDATE_AND_CREATE_TOPIC, header).code == 0
    admin.alter_topic(topic, read_queues=8)
    altered = config_of(cluster, topic)
    assert altered == TopicConfig(
        topic_name=topic,
        read_queue_nums=8,
        write_queue_nums=4,
        perm=6,
        topic_filter_type="MULTI_TAG",
        topic_sys_flag=1,
        order=True,
        attributes={"message.type": "FIFO"},
    )
    assert len(admin.queues(topic)) == 8


def test_messages_that_would_become_unreachable_are_counted_first(
    cluster: LocalCluster, admin: Admin, group: str
) -> None:
    topic = f"shrunk-{group}"
    admin.create_topic(topic, 4)
    with Producer("source", namesrv=cluster.namesrv) as producer:
        producer.send_many([Message(topic, b"x", sharding_key=str(n)) for n in range(40)])
    stored = {q: at.max_offset for q, at in admin.topic_stats(topic).items()}
    hidden = {queue: count for queue, count in stored.items() if queue.queue_id >= 2}
    assert all(hidden.values())
    for change in ({"queues": 2}, {"perm": "w"}):
        with pytest.raises(WouldHideMessages, match="--yes") as caught:
            admin.alter_topic(topic, **change)
        wanted = hidden if "queues" in change else stored
        assert caught.value.messages == wanted
        assert f"{sum(wanted.values())} messages lie in them" in str(caught.value)
    admin.alter_topic(topic, write_queues=2)  # what is there is still read
    assert config_of(cluster, topic).read_queue_nums == 4
    admin.alter_topic(topic, 2, may_hide_messages=True)
    assert len(admin.queues(topic)) == 2
    admin.alter_topic(topic, 4)
    again = {q: at.max_offset for q, at in admin.topic_stats(topic).items()}
    assert again == stored, "they are back"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ({}, "nothing"),
        ({"queues": QUEUES_MAX + 1}, "65536"),
        ({"read_queues": 0}, "within 1 and"),
        ({"perm": "x"}, "one of r, w, rw"),
        ({"write_queues": 9}, "would never be read"),
        ({"queues": 4, "brokers": ["nobody"]}, "no broker named nobody"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(
    admin: Admin, group: str, call: dict[str, object], said: str
) -> None:
    topic = f"refused-{group}"
    admin.create_topic(topic, 2)
    with pytest.raises((ClientError, ConnectFailed), match=said):
        admin.alter_topic(topic, **call)


def test_an_unknown_topic_is_not_altered(admin: Admin) -> None:
    with pytest.raises(RouteNotFound, match="does not exist on any broker"):
        admin.alter_topic("never-made", 4)


def test_a_broker_refuses_too_many_queues(cluster: LocalCluster, group: str) -> None:
    header = CreateTopicRequestHeader(
        topic=f"wide-{group}", read_queue_nums=QUEUES_MAX + 1, write_queue_nums=8, perm=6
    )
    with BlockingChannel(cluster.broker, 5.0) as channel:
        answer = channel.call(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    assert (answer.code, "give 0 to 65536" in (answer.remark or "")) == (29, True)
