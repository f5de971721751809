"""An admin finds single messages: by id, key, place and time, and what became of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from client.short_delay_cluster import until
from cometmq import Admin, ClientError, CometError, Message, MessageQueue, Producer, PushConsumer
from cometmq.errors import MessageNotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq import MessageExt
    from cometmq.model.results import SendResult
    from cometmq.testing.cluster import LocalCluster


def is_indexed(admin: Admin, topic: str, sent: SendResult) -> bool:
    try:
        return bool(admin.message(topic, sent.msg_id))
    except CometError:
        return False


def test_a_message_is_found_by_id_place_key_and_time(
    cluster: LocalCluster, admin: Admin, group: str
) -> None:
    topic = f"found-{group}"
    admin.create_topic(topic, 2)
    queue = MessageQueue(topic, "broker-a", 1)
    with Producer("clerk", namesrv=cluster.namesrv) as producer:
        before_ms = int(time.time() * 1000)
        sent = [
            producer.send(Message(topic, b"%d" % number, keys=[f"k{number}", "all"]), queue=queue)
            for number in range(5)
        ]
        until(lambda: is_indexed(admin, topic, sent[-1]))
    for msg_id in (sent[3].msg_id, sent[3].offset_msg_id):
        assert admin.message(topic, msg_id).body == b"3"
    assert admin.message_at(queue, 3).msg_id == sent[3].msg_id
    assert [one.body for one in admin.messages_by_key(topic, "k2")] == [b"2"]
    assert len(admin.messages_by_key(topic, "all")) == 5
    assert admin.messages_by_key(topic, "none") == []
    after_ms = int(time.time() * 1000) + 1
    bodies = [one.body for one in admin.messages_by_time(topic, before_ms, after_ms)]
    assert bodies == [b"0", b"1", b"2", b"3", b"4"]
    assert len(admin.messages_by_time(topic, before_ms, after_ms, max_count=2)) == 2
    assert admin.messages_by_time(topic, 0, before_ms) == []
    assert [one.body for one in admin.peek(topic, 2)] == [b"3", b"4"]
    assert [one.body for one in admin.peek(topic, 2, oldest=True)] == [b"0", b"1"]
    assert admin.peek(topic, queue=MessageQueue(topic, "broker-a", 0)) == []
    pulled = admin.pull(queue, 4)
    assert ([one.body for one in pulled.messages], pulled.next_offset) == ([b"4"], 5)


def test_what_is_not_there_is_said(cluster: LocalCluster, admin: Admin, topic: str) -> None:
    with pytest.raises(MessageNotFound, match=f"no message of the topic {topic} has the id nope"):
        admin.message(topic, "nope")
    with pytest.raises(MessageNotFound, match="has no message at 99"):
        admin.message_at(MessageQueue(topic, "broker-a", 0), 99)
    with pytest.raises(ClientError, match=r"broker-z/0 is no readable queue; .* on broker-a"):
        admin.message_at(MessageQueue(topic, "broker-z", 0), 0)


def test_a_member_handles_a_stored_message_on_request(
    cluster: LocalCluster, admin: Admin, group: str
) -> None:
    topic = f"handed-{group}"
    admin.create_topic(topic, 1)
    seen: list[bytes] = []

    def handle(messages: Sequence[MessageExt]) -> None:
        seen.extend(one.body for one in messages)

    with Producer("clerk", namesrv=cluster.namesrv) as producer:
        producer.send(Message(topic, b"once"))
    consumer = PushConsumer(group, namesrv=cluster.namesrv, consume_from="first")
    consumer.subscribe(topic, "*", handle)
    with consumer:
        until(lambda: seen == [b"once"])
        message = admin.message_at(MessageQueue(topic, "broker-a", 0), 0)
        result = admin.hand_to_member(group, message)
        assert (result.consume_result, seen) == ("CR_SUCCESS", [b"once", b"once"])
        with pytest.raises(ClientError, match="nobody is no member"):
            admin.hand_to_member(group, message, "nobody")
    with pytest.raises(ClientError, match="there is no member"):
        admin.hand_to_member(group, message)


def test_a_trace_says_what_became_of_a_message(
    cluster: LocalCluster, admin: Admin, group: str
) -> None:
    admin.create_topic("traced", 1)
    with Producer("clerk", namesrv=cluster.namesrv, trace=True) as producer:
        sent = producer.send(Message("traced", b"x", tags="T", keys="k"))
    consumer = PushConsumer(group, namesrv=cluster.namesrv, consume_from="first", trace=True)
    seen: list[MessageExt] = []
    consumer.subscribe("traced", "*", seen.extend)
    with consumer:
        until(lambda: seen)
    until(lambda: len(admin.message_trace(sent.msg_id)) == 3)
    events = admin.message_trace(sent.msg_id)
    assert [(one.kind, one.group, one.is_ok) for one in events] == [
        ("sent", "clerk", True),
        ("handling", group, True),
        ("handled", group, True),
    ]
    assert (events[0].topic, events[0].tags, events[0].keys) == ("traced", "T", "k")
