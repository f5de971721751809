"""What a dead letter says of the place where its message was first stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.commands import send_header
from client.short_delay_cluster import until
from cometmq import Admin, Message, OnFailure, Producer, PushConsumer
from cometmq.model.queue import MessageQueue
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.wire.codes import RequestCode
from cometmq.wire.records import properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq import MessageExt
    from cometmq.testing.cluster import LocalCluster

PLACE = ("DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_QUEUE_ID", "DLQ_ORIGIN_OFFSET")


def places(letters: list[MessageExt]) -> dict[bytes, tuple[str | None, ...]]:
    """By body: what a dead letter says of its message's first place."""
    return {letter.body: tuple(letter.properties.get(name) for name in PLACE) for letter in letters}


def send_raw(cluster: LocalCluster, topic: str, body: bytes, **more: Any) -> None:
    """Send to queue 1 with these properties only, without the id of a producer."""
    with BlockingChannel(cluster.broker) as channel:
        pairs = more.pop("properties", {})
        header = send_header(topic, queue_id=more.pop("queue_id", 1), **more)
        header.properties = properties.encode(pairs).decode()
        assert channel.call(RequestCode.SEND_MESSAGE_V2, header, body).code == 0


def test_a_message_that_came_back_says_where_it_was_first_stored_and_not_where_it_was_read(
    cluster: LocalCluster, make_topic: Callable[..., str], group: str
) -> None:
    topic = make_topic(cluster, queues=2)
    with Producer("origins", namesrv=cluster.namesrv) as producer:
        broker = producer.queues(topic)[0].broker_name
        for body in (b"0", b"1", b"bad"):
            sent = producer.send(Message(topic, body), queue=MessageQueue(topic, broker, 1))
    send_raw(cluster, topic, b"without id")
    came_back = {
        b"a producer's id": {"ORIGIN_MESSAGE_ID": "7F0000010FA118B4AAC2000000000001"},
        b"another message's": {"ORIGIN_MESSAGE_ID": sent.offset_msg_id, "UNIQ_KEY": "other"},
        b"no id at all": {"ORIGIN_MESSAGE_ID": "O1"},
    }

    def refuse(messages: list[MessageExt]) -> None:
        if messages[0].body not in (b"0", b"1"):
            raise ValueError("bad")

    letters: list[MessageExt] = []
    again: list[MessageExt] = []

    def refuse_letter(messages: list[MessageExt]) -> None:
        letters.extend(messages)
        raise ValueError("bad again")

    given: dict[str, Any] = {"namesrv": cluster.namesrv, "consume_from": "first"}
    consumer = PushConsumer(group, on_failure=OnFailure.dead_letter(after=2), **given)
    consumer.subscribe(topic, "*", refuse)
    reader = PushConsumer(f"{group}-R", on_failure=OnFailure.dead_letter(), **given)
    reader.subscribe(f"%DLQ%{group}", "*", refuse_letter)
    last = PushConsumer(f"{group}-L", **given)
    last.subscribe(f"%DLQ%{group}-R", "*", again.extend)
    with Admin(namesrv=cluster.namesrv) as admin, consumer:
        for body, pairs in came_back.items():
            send_raw(
                cluster,
                f"%RETRY%{group}",
                body,
                queue_id=0,
                properties={"RETRY_TOPIC": topic, **pairs},
                reconsume_times=1,
            )
        until(lambda: f"%DLQ%{group}" in admin.topics())
        with reader:
            until(lambda: f"%DLQ%{group}-R" in admin.topics())
            with last:
                until(lambda: len(again) == 5)
    assert places(letters) == {
        b"bad": (topic, "1", "2"),
        b"without id": (topic, "1", "3"),
        b"a producer's id": (topic, None, None),
        b"another message's": (topic, None, None),
        b"no id at all": (topic, None, None),
    }
    assert places(again) == places(letters), "a letter that failed has come from the same place"
    said = {one.body: one.properties for one in letters}
    assert said[b"bad"]["DLQ_ORIGIN_MESSAGE_ID"] == sent.msg_id
    assert {pairs["DLQ_ATTEMPTS"] for pairs in said.values()} == {"2"}
