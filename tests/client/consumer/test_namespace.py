"""Instances of a shared cluster, for consumers: bare names inside, wrapped ones at brokers."""

import asyncio
import sqlite3
from itertools import count

import pytest

from client.failure_cases import table_at
from client.scripted_broker import ScriptedBroker
from client.short_delay_cluster import until
from cometmq import (
    Admin,
    AsyncLitePullConsumer,
    ConsumeFrom,
    LitePullConsumer,
    Message,
    MessageQueue,
    OnFailure,
    Producer,
    PushConsumer,
    RetryLater,
)
from cometmq.rules.namespace import with_namespace, without_namespace
from cometmq.wire.bodies.heartbeat import decode_heartbeat
from cometmq.wire.codes import RequestCode

NAMESPACE = "MQ_INST_1_a"
topic = f"{NAMESPACE}%scripted"
_numbers = count()


@pytest.fixture
def bare(cluster):
    """A topic of the instance, by its bare name."""
    name = f"inside-{next(_numbers)}"
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic(f"{NAMESPACE}%{name}", queues=2)
    return name


def settings(cluster, **more):
    return {"namesrv": cluster.namesrv, "namespace": NAMESPACE, **more}


def send(cluster, topic, *bodies):
    with Producer("senders", **settings(cluster)) as producer:
        for body in bodies:
            producer.send(Message(topic, body, sharding_key="k"))


@pytest.mark.parametrize(
    ("name", "wrapped"),
    [
        ("t", "N%t"),
        ("N%t", "N%t"),
        ("%RETRY%g", "%RETRY%N%g"),
        ("%RETRY%N%g", "%RETRY%N%g"),
        ("%DLQ%g", "%DLQ%N%g"),
        ("SCHEDULE_TOPIC_XXXX", "SCHEDULE_TOPIC_XXXX"),
        ("rmq_sys_x", "rmq_sys_x"),
        ("CID_RMQ_SYS_x", "CID_RMQ_SYS_x"),
    ],
)
def test_names_are_wrapped_by_rocketmqs_rules(name, wrapped):
    assert with_namespace("N", name) == wrapped
    assert without_namespace("N", wrapped) == name.replace("N%", "")


@pytest.mark.parametrize("order", ["none", "queue", "key"])
def test_a_message_fails_comes_again_and_its_handler_sees_bare_names(cluster, bare, group, order):
    seen = []

    def handle(messages):
        seen.extend((one.topic, one.message_queue.topic, one.reconsume_times) for one in messages)
        if len(seen) == 1:
            raise RetryLater(delay_level=1, suspend_ms=10)

    consumer = PushConsumer(group, **settings(cluster, consume_from="first", order=order))
    consumer.subscribe(bare, "*", handle)
    with consumer:
        send(cluster, bare, b"x")
        until(lambda: len(seen) == 2)
        assert {topic for topic, _, _ in seen} == {bare}
        assert [times for _, _, times in seen] == [0, 1]
        wanted = {bare, f"%RETRY%{group}"}
        until(lambda: {queue.topic for queue in consumer.assigned} == wanted)
        until(lambda: consumer.blocked == [])  # the second call may not have been heard of yet
    with Admin(namesrv=cluster.namesrv) as admin:
        offsets = admin.group_offsets(f"{NAMESPACE}%{group}", f"{NAMESPACE}%{bare}")
        assert sum(offset or 0 for offset in offsets.values()) == 1


def test_a_dead_letter_lies_in_the_instances_topic_and_a_key_function_sees_bare_names(
    cluster, bare, group
):
    topics = set()

    def key(message):
        topics.add(message.topic)
        return message.sharding_key

    def handle(messages):
        raise ValueError

    given = settings(cluster, consume_from="first", order="key", key=key)
    consumer = PushConsumer(group, on_failure=OnFailure.dead_letter(), **given)
    consumer.subscribe(bare, "*", handle)
    dead_letters = f"%DLQ%{NAMESPACE}%{group}"
    with consumer, Admin(namesrv=cluster.namesrv) as admin:
        send(cluster, bare, b"bad")
        until(lambda: dead_letters in admin.topics())
        until(lambda: sum(one.max_offset for one in admin.topic_stats(dead_letters).values()) == 1)
    assert topics == {bare}


def test_a_sink_gets_bare_names(cluster, bare, group, tmp_path):
    file = tmp_path / "failed.db"
    sink = table_at(file)

    def handle(messages):
        raise ValueError

    consumer = PushConsumer(
        group,
        **settings(cluster, consume_from="first", orderly=True),
        on_failure=OnFailure.store(sink),
    )
    consumer.subscribe(bare, "*", handle)

    def rows():
        reader = sqlite3.connect(file)
        try:
            return reader.execute("SELECT topic FROM failed").fetchall()
        finally:
            reader.close()

    with consumer:
        send(cluster, bare, b"bad")
        until(rows)
    assert rows() == [(bare,)]


def test_a_lite_pull_consumer_speaks_bare_names_everywhere(cluster, bare, group):
    send(cluster, bare, b"a", b"b", b"c")
    with LitePullConsumer(group, **settings(cluster)) as consumer:
        queues = consumer.fetch_message_queues(bare)
        assert [queue.topic for queue in queues] == [bare, bare]
        consumer.assign(queues)
        (full,) = [queue for queue in queues if consumer.max_offset(queue)]
        assert (consumer.min_offset(full), consumer.max_offset(full)) == (0, 3)
        assert [m.topic for m in consumer.pull(full, "*", 0).messages] == [bare] * 3
        consumer.seek_to_begin(full)
        assert consumer.offset_for_timestamp(full, 0) == 0
        found = []
        until(lambda: found.extend(consumer.poll(0.2)) or len(found) == 3)
        assert {message.message_queue for message in found} == {full}
        assert consumer.position(full) == 3
        consumer.commit({full: 2})
        assert consumer.committed(full) == 2
        consumer.pause([full])
        consumer.resume([full])
        assert consumer.assigned == sorted(queues)
    with Admin(namesrv=cluster.namesrv) as admin:
        kept = admin.group_offsets(f"{NAMESPACE}%{group}", f"{NAMESPACE}%{bare}")
        wrapped = MessageQueue(f"{NAMESPACE}%{bare}", full.broker_name, full.queue_id)
        assert kept[wrapped] in (2, 3)


def test_the_asyncio_lite_pull_consumer_iterates_over_bare_names(cluster, bare, group):
    send(cluster, bare, b"a", b"b")

    async def scenario():
        given = settings(cluster, consume_from=ConsumeFrom.FIRST)
        async with AsyncLitePullConsumer("async-" + group, **given) as consumer:
            consumer.assign(await consumer.fetch_message_queues(bare))
            found = []
            async for message in consumer:
                found.append((message.topic, message.body))
                if len(found) == 2:
                    break
        assert found == [(bare, b"a"), (bare, b"b")]

    asyncio.run(asyncio.wait_for(scenario(), 30))


def names_received(scripted_broker):
    """All names of topics and groups that a broker or a name server received."""
    names = set()
    for command in list(scripted_broker.received):
        if command.code == RequestCode.HEART_BEAT:
            for consumer in decode_heartbeat(command.body).consumers:
                names |= {consumer.group_name, *(one.topic for one in consumer.subscriptions)}
        names |= {command.ext[key] for key in ("topic", "consumerGroup") if key in command.ext}
    return names


@pytest.mark.parametrize("orderly", [False, True])
def test_brokers_receive_wrapped_names_only(orderly):
    scripted_broker = ScriptedBroker()
    consumer = PushConsumer("g", namesrv=scripted_broker.addr, namespace=NAMESPACE, orderly=orderly)
    consumer.subscribe("scripted", "*", print)
    try:
        with consumer:
            until(
                lambda: (
                    {one.ext["topic"] for one in scripted_broker.requests(RequestCode.PULL_MESSAGE)}
                    >= {topic}
                )
            )
    finally:
        scripted_broker.close()
    assert names_received(scripted_broker) == {topic, f"{NAMESPACE}%g", f"%RETRY%{NAMESPACE}%g"}


@pytest.mark.parametrize("kind", [PushConsumer, LitePullConsumer])
def test_the_second_kind_of_namespace_is_in_every_request_of_a_consumer(kind):
    scripted_broker = ScriptedBroker()
    consumer = kind("g", namesrv=scripted_broker.addr, namespace_v2="inst")
    consumer.subscribe("scripted", "*", *([print] if kind is PushConsumer else []))
    code = RequestCode.PULL_MESSAGE if kind is PushConsumer else RequestCode.LITE_PULL_MESSAGE
    scripted_broker.answers[code] = scripted_broker.hold
    try:
        with consumer:
            until(lambda: scripted_broker.requests(code))
    finally:
        scripted_broker.close()
    for command in scripted_broker.received:
        assert (command.ext["nsd"], command.ext["ns"]) == ("true", "inst")
    assert names_received(scripted_broker) - {"%RETRY%g"} == {"scripted", "g"}
