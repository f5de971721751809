"""What producers promise, on our broker and on Apache RocketMQ's: one sentence a test."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from client.short_delay_cluster import until
from cometmq import (
    Admin,
    AsyncProducer,
    BrokerError,
    CometError,
    InvalidMessage,
    Message,
    Producer,
    RouteNotFound,
    SendStatus,
)
from parity.clients import Seen, consumer, stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq import SendResult
    from parity.conftest import Cluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]
COUNT = 60


def bodies(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    return sorted(message.body for message in stored(cluster, topic, count))


def has_queues(producer: Producer, topic: str) -> bool:
    """Whether there are queues to send to; an answer that has none is not kept for long."""
    try:
        return bool(producer.queues(topic))
    except RouteNotFound:
        return False


def test_a_message_arrives_whole(cluster: Cluster, topic: str) -> None:
    began_ms = int(time.time() * 1000)
    sent = Message(
        topic,
        "grüße".encode(),
        tags="red",
        keys=["one", "two"],
        properties={"city": "Å", "n": "1"},
        sharding_key="account",
        flag=7,
    )
    with Producer("parity", namesrv=cluster.namesrv) as producer:
        result = producer.send(sent)
    (got,) = stored(cluster, topic, 1)
    assert result.status is SendStatus.SEND_OK
    assert (got.body, got.tags, got.keys, got.flag) == (sent.body, "red", ["one", "two"], 7)
    assert got.properties.items() >= {"city": "Å", "n": "1"}.items()
    assert (got.sharding_key, got.msg_id) == ("account", result.msg_id)
    place = (got.broker_name, got.queue_id, got.queue_offset)
    assert place == (result.queue.broker_name, result.queue.queue_id, result.queue_offset)
    assert got.offset_msg_id == result.offset_msg_id
    assert began_ms <= got.born_ms <= int(time.time() * 1000)
    assert abs(got.store_ms - got.born_ms) < 10_000


def test_messages_without_key_take_the_queues_in_turn(cluster: Cluster, topic: str) -> None:
    with Producer("parity", namesrv=cluster.namesrv) as producer:
        producer.send(Message(topic, b"the first makes the connection"))
        found = [producer.send(Message(topic, b"x")).queue.queue_id for _ in range(8)]
    assert found[:4] == found[4:]
    assert sorted(found[:4]) == [0, 1, 2, 3]


def test_asyncio_sends_side_by_side(cluster: Cluster, topic: str) -> None:
    async def scenario() -> list[SendResult]:
        async with AsyncProducer("parity", namesrv=cluster.namesrv) as producer:
            messages = [Message(topic, b"%d" % n) for n in range(COUNT)]
            return await asyncio.gather(*map(producer.send, messages))

    results = asyncio.run(scenario())
    assert len({result.msg_id for result in results}) == COUNT
    assert bodies(cluster, topic, COUNT) == sorted(b"%d" % n for n in range(COUNT))


def test_threads_share_a_producer(cluster: Cluster, topic: str) -> None:
    with Producer("parity", namesrv=cluster.namesrv) as producer:

        def work(who: int) -> None:
            for n in range(10):
                producer.send(Message(topic, b"%d %d" % (who, n)), timeout_s=20)

        threads = [threading.Thread(target=work, args=(who,)) for who in range(6)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert bodies(cluster, topic, 60) == sorted(
        b"%d %d" % (who, n) for who in range(6) for n in range(10)
    )


def test_futures_end_with_results_and_keep_the_order_of_a_key(cluster: Cluster, topic: str) -> None:
    with Producer("parity", namesrv=cluster.namesrv) as producer:
        futures = [
            producer.send_async(Message(topic, b"%d" % n, sharding_key=f"key-{n % 5}"))
            for n in range(COUNT)
        ]
        statuses: list[SendStatus] = []
        futures[0].add_done_callback(lambda done: statuses.append(done.result().status))
        results = [future.result(20) for future in futures]
    assert statuses == [SendStatus.SEND_OK]
    for key in range(5):
        offsets = [result.queue_offset for result in results[key::5]]
        assert offsets == sorted(offsets)
        assert len({result.queue for result in results[key::5]}) == 1


def test_one_way_messages_arrive(cluster: Cluster, topic: str) -> None:
    with Producer("parity", namesrv=cluster.namesrv) as producer:
        for n in range(10):
            producer.send_oneway(Message(topic, b"%d" % n))
        assert bodies(cluster, topic, 10) == sorted(b"%d" % n for n in range(10))


def test_a_batch_has_a_result_for_each_of_its_messages(cluster: Cluster, topic: str) -> None:
    batch = [Message(topic, b"%d" % n, tags="t", keys=f"k{n}") for n in range(20)]
    with Producer("parity", namesrv=cluster.namesrv) as producer:
        results = producer.send_batch(batch)
    found = stored(cluster, topic, 20)
    assert [message.body for message in found] == [message.body for message in batch]
    assert [message.keys for message in found] == [[f"k{n}"] for n in range(20)]
    assert [message.msg_id for message in found] == [result.msg_id for result in results]
    assert [m.queue_offset for m in found] == [result.queue_offset for result in results]
    assert [m.offset_msg_id for m in found] == [result.offset_msg_id for result in results]
    assert len({result.queue for result in results}) == 1


def test_a_batch_with_keys_goes_to_the_queues_of_its_keys(cluster: Cluster, topic: str) -> None:
    batch = [Message(topic, b"%d" % n, sharding_key=f"key-{n % 7}") for n in range(70)]
    with Producer("parity", namesrv=cluster.namesrv) as producer:
        results = producer.send_batch(batch)
        alone = [producer.send(Message(topic, b"x", sharding_key=f"key-{n}")) for n in range(7)]
    for n, one in enumerate(alone):
        assert {result.queue for result in results[n::7]} == {one.queue}
    by_key = defaultdict(list)
    for message in stored(cluster, topic, 77):
        if message.body != b"x":
            by_key[message.sharding_key].append(int(message.body))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_a_large_batch_is_split_by_its_size(cluster: Cluster, topic: str) -> None:
    body = b"z" * 200_000
    with Producer("parity", namesrv=cluster.namesrv) as producer:
        results = producer.send_batch([Message(topic, body) for _ in range(30)], timeout_s=30)
    assert len({result.msg_id for result in results}) == 30
    assert bodies(cluster, topic, 30) == [body] * 30


def test_many_messages_are_spread_over_the_queues(cluster: Cluster, topic: str) -> None:
    with Producer("parity", namesrv=cluster.namesrv) as producer:
        results = producer.send_many([Message(topic, b"%d" % n) for n in range(500)])
    assert len({result.queue for result in results}) == 4
    assert bodies(cluster, topic, 500) == sorted(b"%d" % n for n in range(500))


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_large_bodies_travel_and_lie_compressed(cluster: Cluster, topic: str, kind: str) -> None:
    body = b"a body worth the work " * 1_000
    with Producer("parity", namesrv=cluster.namesrv, compression=kind) as producer:
        producer.send(Message(topic, body))
        producer.send(Message(topic, b"short"))
        producer.send_async(Message(topic, body)).result(20)
        producer.send_oneway(Message(topic, body))
    found = stored(cluster, topic, 4)
    assert sorted(message.body for message in found) == sorted([body, body, body, b"short"])
    places = [message.phy_offset for message in found]
    assert max(places) - min(places) < len(body), "three large ones take less room than one"


def test_a_delay_level_holds_a_message_back(cluster: Cluster, topic: str, group: str) -> None:
    seen = Seen()
    with (
        consumer(cluster, group, topic, seen) as running,
        Producer("parity", namesrv=cluster.namesrv) as producer,
    ):
        until(lambda: len(running.assigned) >= 4)
        results = [
            producer.send(Message(topic, b"%d" % level, delay_level=level)) for level in (5, 1, 0)
        ]
        seen.wait(3)
    assert seen.numbers == [0, 1, 5]
    late_ms = {int(message.body): message.store_ms - message.born_ms for message in seen.messages}
    assert late_ms[1] >= 1_000
    assert late_ms[5] >= 2_000
    assert all(result.status is SendStatus.SEND_OK for result in results)


def test_a_level_beyond_the_last_means_the_last(cluster: Cluster, topic: str, group: str) -> None:
    seen = Seen()
    with Producer("parity", namesrv=cluster.namesrv) as producer:
        producer.send(Message(topic, b"1", delay_level=99))
    with consumer(cluster, group, topic, seen):
        seen.wait(1, 20)  # the last level of both is 2 s


def test_delayed_messages_among_many_go_alone(cluster: Cluster, topic: str) -> None:
    messages = [Message(topic, b"%d" % n, delay_level=n % 2) for n in range(10)]
    with Producer("parity", namesrv=cluster.namesrv) as producer:
        with pytest.raises(CometError, match="delay"):
            producer.send_batch(messages)
        producer.send_many(messages)
    assert bodies(cluster, topic, 10) == sorted(b"%d" % n for n in range(10))


def test_the_first_message_makes_its_topic(cluster: Cluster, unmade_topic: str) -> None:
    with Producer("parity", namesrv=cluster.namesrv, default_topic_queues=3) as producer:
        producer.send(Message(unmade_topic, b"first"), timeout_s=20)
        assert bodies(cluster, unmade_topic, 1) == [b"first"]
    with Admin(namesrv=cluster.namesrv) as admin:
        assert len(admin.queues(unmade_topic)) == 3


def test_what_breaks_the_rules_is_refused_before_it_is_sent(cluster: Cluster, topic: str) -> None:
    wrong = [
        Message("no blanks", b"x"),
        Message("x" * 128, b"x"),
        Message(topic, b""),
        Message(topic, bytes(4 * 1024 * 1024 + 1)),
        Message(topic, b"x", properties={"KEYS": "x"}),
        Message("SCHEDULE_TOPIC_XXXX", b"x"),
    ]
    with Producer("parity", namesrv=cluster.namesrv) as producer:
        for message in wrong:
            with pytest.raises(InvalidMessage):
                producer.send(message)


def test_a_queue_that_may_not_be_written_is_an_error(cluster: Cluster, topic: str) -> None:
    with Producer("parity", namesrv=cluster.namesrv) as producer:
        producer.send(Message(topic, b"x"))
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.alter_topic(topic, perm="r")
    with Producer("parity", namesrv=cluster.namesrv) as producer:
        until(lambda: not has_queues(producer, topic))  # name servers hear of it a moment later
        with pytest.raises(RouteNotFound, match=topic):
            producer.send(Message(topic, b"y"), timeout_s=2)
    assert bodies(cluster, topic, 1) == [b"x"]


def test_properties_that_are_too_long_are_refused(cluster: Cluster, topic: str) -> None:
    with (
        Producer("parity", namesrv=cluster.namesrv) as producer,
        pytest.raises((InvalidMessage, BrokerError)),
    ):
        producer.send(Message(topic, b"x", properties={"p": "x" * 40_000}))


def test_the_trace_tells_of_sends_and_handlers(
    cluster: Cluster, topic: str, make_topic: Callable[[int], str], group: str
) -> None:
    trace_topic, seen = make_topic(1), Seen()
    with Producer(group, namesrv=cluster.namesrv, trace=trace_topic) as producer:
        sent = [producer.send(Message(topic, b"%d" % n, tags="t", keys="k")) for n in range(3)]
    with consumer(cluster, group, topic, seen, trace=trace_topic):
        seen.wait(3)
    records = []

    def all_traced() -> bool:
        texts = [message.body.decode() for message in stored(cluster, trace_topic, 1)]
        records[:] = [one.split("\x01") for text in texts for one in text.split("\x02") if one]
        return len(records) >= 9

    until(all_traced, 30)
    ids = sorted(result.msg_id for result in sent)
    pubs = [record for record in records if record[0] == "Pub"]
    assert sorted(record[5] for record in pubs) == ids
    assert {(record[3], record[4], record[6], record[7]) for record in pubs} == {
        (group, topic, "t", "k")
    }
    assert sorted(r[5] for r in records if r[0] == "SubBefore") == ids
    assert len([r for r in records if r[0] == "SubAfter" and r[4] == "true"]) == 3


def test_the_trace_goes_to_rocketmqs_own_topic(cluster: Cluster, topic: str, group: str) -> None:
    with Producer(group, namesrv=cluster.namesrv, trace=True) as producer:
        sent = producer.send(Message(topic, b"x"))
    until(
        lambda: any(
            sent.msg_id.encode() in message.body
            for message in stored(cluster, "RMQ_SYS_TRACE_TOPIC", 1)
        ),
        30,
    )


def test_an_instance_of_a_shared_cluster_has_topics_of_its_own(
    cluster: Cluster, topic: str
) -> None:
    instance = "MQ_INST_1"
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic(f"{instance}%{topic}", queues=4)
    with Producer("parity", namesrv=cluster.namesrv, namespace=instance) as producer:
        result = producer.send(Message(topic, b"inside"))
    with Producer("parity", namesrv=cluster.namesrv) as producer:
        producer.send(Message(topic, b"outside"))
    assert result.queue.topic == topic
    assert bodies(cluster, f"{instance}%{topic}", 1) == [b"inside"]
    assert bodies(cluster, topic, 1) == [b"outside"]


def test_an_instance_of_the_second_kind_keeps_the_names(
    cluster: Cluster, topic: str, group: str
) -> None:
    seen, second = Seen(), {"namespace_v2": "instance-2", "unit_name": "unit"}
    with Producer("parity", namesrv=cluster.namesrv, **second) as producer:
        producer.send(Message(topic, b"5"))
    with consumer(cluster, group, topic, seen, **second) as running:
        seen.wait(1)
        assert running.client_id.endswith("@unit")
    assert seen.numbers == [5]
