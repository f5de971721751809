"""Sending: results, queues by key, batches, many at once, and what is refused."""

import asyncio
import threading
import zlib

import pytest

from client.short_delay_cluster import until
from cometmq import Admin, AsyncProducer, Message, MessageQueue, Producer, SendStatus
from cometmq.client.session import routes
from cometmq.errors import (
    BrokerError,
    ClientError,
    ConnectFailed,
    InvalidMessage,
    NotStarted,
    PartlySent,
    RemotingTimeout,
    RouteNotFound,
    SettingsError,
)
from cometmq.wire.java_hash import java_hash


@pytest.fixture
def producer(cluster):
    with Producer("producers", namesrv=cluster.namesrv) as running:
        yield running


def stored(cluster, topic):
    with Admin(namesrv=cluster.namesrv) as admin:
        return {queue.queue_id: at.max_offset for queue, at in admin.topic_stats(topic).items()}


def test_a_message_sent_is_stored_once_and_has_an_id_and_a_place(producer, cluster, topic):
    result = producer.send(Message(topic, b"hello", tags="A", keys=["k1", "k2"]))
    assert result.status is SendStatus.SEND_OK
    assert len(result.msg_id) == len(result.offset_msg_id) == 32
    assert (
        stored(cluster, topic)[result.queue.queue_id] == 1 == sum(stored(cluster, topic).values())
    )


def test_messages_without_key_take_the_queues_in_turn(producer, topic):
    producer.send(Message(topic, b"x"))  # asks for the route; each thread begins where it likes
    used = [producer.send(Message(topic, b"x")).queue.queue_id for _ in range(8)]
    assert sorted(used[:4]) == sorted(used[4:]) == [0, 1, 2, 3]


def test_a_sharding_key_chooses_the_queue_that_java_chooses(producer, topic):
    for key in ("order-123", "N14228", "ä€𝄞"):
        result = producer.send(Message(topic, b"x", sharding_key=key))
        assert result.queue.queue_id == abs(java_hash(key)) % 4
    assert producer.send(Message(topic, b"x", sharding_key="order-123")).queue.queue_id == 1


def test_a_message_goes_to_the_queue_that_is_given(producer, topic):
    for queue in producer.queues(topic):
        assert producer.send(Message(topic, b"x"), queue=queue).queue == queue


def test_sends_of_one_key_arrive_in_the_order_of_the_calls(producer, topic):
    futures = [
        producer.send_async(Message(topic, b"%d" % n, sharding_key=f"key-{n % 3}"))
        for n in range(300)
    ]
    results = [future.result(10) for future in futures]
    for key in range(3):
        offsets = [result.queue_offset for result in results[key::3]]
        assert offsets == sorted(offsets)


def test_a_batch_has_one_result_a_message_in_the_order_given(producer, cluster, topic):
    results = producer.send_batch([Message(topic, b"%d" % n) for n in range(50)])
    assert [result.queue_offset for result in results] == list(range(50))
    assert len({result.queue for result in results}) == 1
    assert len({result.msg_id for result in results}) == 50
    assert len({result.offset_msg_id for result in results}) == 50
    assert sum(stored(cluster, topic).values()) == 50


def test_a_batch_with_keys_is_split_by_queue_and_keeps_the_order_of_each(producer, topic):
    results = producer.send_batch(
        [Message(topic, b"x", sharding_key=str(n % 7)) for n in range(70)]
    )
    for n, result in enumerate(results):
        assert result.queue.queue_id == abs(java_hash(str(n % 7))) % 4
    for key in range(7):
        offsets = [result.queue_offset for result in results[key::7]]
        assert offsets == sorted(offsets)


def test_a_batch_larger_than_a_frame_is_split_by_size(producer, cluster, topic):
    results = producer.send_batch([Message(topic, b"x" * 700_000) for _ in range(8)], timeout_s=20)
    assert len(results) == 8
    assert sum(stored(cluster, topic).values()) == 8


def test_many_messages_are_spread_over_the_queues_and_all_stored(producer, cluster, make_topic):
    one, other = make_topic(cluster), make_topic(cluster)
    messages = [Message((one, other)[n % 2], b"%d" % n) for n in range(2_000)]
    results = producer.send_many(messages)
    assert len(results) == 2_000
    assert [r.queue.topic for r in results] == [m.topic for m in messages]
    assert sum(stored(cluster, one).values()) == sum(stored(cluster, other).values()) == 1_000
    assert min(stored(cluster, one).values()) > 0


def test_calls_of_send_many_side_by_side_do_not_mix_up_a_queue(cluster, topic):
    async def scenario():
        async with AsyncProducer("producers", namesrv=cluster.namesrv) as producer:
            parts = [[Message(topic, b"%d" % n, sharding_key="k")] * 600 for n in range(4)]
            return await asyncio.gather(*(producer.send_many(part) for part in parts))

    for results in asyncio.run(scenario()):
        offsets = [result.queue_offset for result in results]
        assert offsets == list(range(offsets[0], offsets[0] + 600))


def test_a_delayed_message_among_many_goes_alone(producer, cluster, topic):
    messages = [Message(topic, b"now"), Message(topic, b"later", delay_level=1)]
    assert len(producer.send_many(messages)) == 2
    until(lambda: sum(stored(cluster, topic).values()) == 2)
    with pytest.raises(InvalidMessage, match="delay"):
        producer.send_batch(messages)


def test_a_one_way_message_arrives(producer, cluster, topic):
    producer.send_oneway(Message(topic, b"x"))
    until(lambda: sum(stored(cluster, topic).values()) == 1)


def test_sending_to_an_unknown_topic_creates_it(producer, cluster):
    result = producer.send(Message("made-by-sending", b"x"))
    assert result.status is SendStatus.SEND_OK
    with Admin(namesrv=cluster.namesrv) as admin:
        until(lambda: "made-by-sending" in admin.topics())


def test_a_topic_without_a_queue_to_write_is_an_error_and_borrows_none(cluster, topic):
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.alter_topic(topic, perm="r")
    with Producer("producers", namesrv=cluster.namesrv) as producer:

        def is_refused():
            try:
                return not producer.queues(topic)
            except RouteNotFound:
                return True

        until(is_refused)  # the name server hears of it a moment later
        with pytest.raises(RouteNotFound, match="read-only"):
            producer.send(Message(topic, b"x"))
    assert sum(stored(cluster, topic).values()) == 0


def test_threads_may_share_a_producer(producer, cluster, topic):
    def work():
        for _ in range(50):
            producer.send(Message(topic, b"x"))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sum(stored(cluster, topic).values()) == 400


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (Message("", b"x"), "blank"),
        (Message("no spaces", b"x"), "characters"),
        (Message("x" * 128, b"x"), "limit is 127"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), "belongs to RocketMQ"),
        (Message("t", b""), "empty"),
        (Message("t", b"x" * (4 * 1024 * 1024 + 1)), "limit is 4194304"),
        (Message("t", "text"), "must be bytes"),
        (Message("t", b"x", properties={"KEYS": "k"}), "reserved"),
        (Message("t", b"x", properties={"": "v"}), "not blank"),
        (Message("t", b"x", properties={"n": ""}), "not blank"),
        (Message("t", b"x", properties={"n": "a\x01b"}), "character 1 or 2"),
        (Message("t", b"x", tags="a\x02"), "character 1 or 2"),
        (Message("t", b"x", properties={"n": "v" * 32_767}), "limit is 32767"),
    ],
)
def test_a_message_that_breaks_the_rules_is_refused_before_it_is_sent(producer, message, sentence):
    for send in (producer.send, producer.send_oneway, lambda m: producer.send_many([m, m])):
        with pytest.raises(InvalidMessage, match=sentence):
            send(message)


def test_a_queue_that_does_not_exist_is_an_error_at_once(producer, topic):
    with pytest.raises(BrokerError):
        producer.send(Message(topic, b"x"), queue=producer.queues(topic)[0]._replace(queue_id=99))
    nowhere = MessageQueue(topic, "no-such-broker", 0)
    with pytest.raises(ConnectFailed, match="no-such-broker"):
        producer.send(Message(topic, b"x"), queue=nowhere)


def test_a_large_body_travels_compressed(cluster, topic):
    from cometmq.client.producer.prepared_message import prepare
    from cometmq.client.producer.producer_options import ProducerOptions

    options = ProducerOptions(group="g")
    large = prepare(Message(topic, b"a" * 5_000), options, "A" * 32, 0)
    assert large.sys_flag == 0x301
    assert zlib.decompress(large.body) == b"a" * 5_000
    noise = bytes(range(256)) * 15
    assert prepare(Message(topic, noise), options, "A" * 32, 0).sys_flag == 0


def test_nothing_can_be_sent_before_start_and_after_stop(cluster, topic):
    producer = Producer("producers", namesrv=cluster.namesrv)
    with pytest.raises(NotStarted, match="producer"):
        producer.send(Message(topic, b"x"))
    with producer:
        producer.send(Message(topic, b"x"))
    with pytest.raises(NotStarted):
        producer.send(Message(topic, b"x"))
    with producer:
        producer.send(Message(topic, b"x"))


def test_bad_settings_are_refused_with_a_sentence(monkeypatch, cluster):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(SettingsError, match="NAMESRV_ADDR"):
        Producer("g")
    with pytest.raises(SettingsError, match="host:port"):
        Producer("g", namesrv="localhost")
    with pytest.raises(SettingsError, match="characters"):
        Producer("a group", namesrv=cluster.namesrv)
    with pytest.raises(SettingsError, match="reserved"):
        Producer("DEFAULT_PRODUCER", namesrv=cluster.namesrv)


def test_the_name_server_of_the_environment_is_used_and_a_dead_one_is_passed_over(
    monkeypatch, cluster, topic
):
    monkeypatch.setenv("NAMESRV_ADDR", f"127.0.0.1:1;{cluster.namesrv}")
    with Producer("producers") as producer:
        assert producer.send(Message(topic, b"x")).status is SendStatus.SEND_OK


def test_no_name_server_is_an_error_that_names_it():
    producer = Producer("g", namesrv="127.0.0.1:1")
    with producer, pytest.raises(ConnectFailed, match=r"127\.0\.0\.1:1"):
        producer.send(Message("t", b"x"), timeout_s=1.0)


def test_send_many_waits_for_a_broker_that_was_killed_and_keeps_each_queue_in_order(
    own_cluster, make_topic
):
    topic = make_topic(own_cluster)
    with Producer("producers", namesrv=own_cluster.namesrv) as producer:
        first = [Message(topic, b"%d" % n, sharding_key=f"k{n % 5}") for n in range(500)]
        producer.send_many(first)
        own_cluster.kill()
        back = threading.Timer(1.0, own_cluster.restart)
        back.start()
        results = producer.send_many(first, timeout_s=30)
        back.join()
        for key in range(5):
            offsets = [result.queue_offset for result in results[key::5]]
            assert offsets == sorted(offsets)
            assert offsets[0] >= 100  # what was acknowledged before the kill is still there


def test_a_queue_is_found_again_when_its_broker_comes_back_at_another_address(
    own_cluster, make_topic, monkeypatch
):
    # longer than a restart takes: the route is young when its address is refused
    monkeypatch.setattr(routes, "_REFRESH_GAP_S", 2.0)
    topic = make_topic(own_cluster)
    with Producer("producers", namesrv=own_cluster.namesrv) as producer:
        queue = producer.queues(topic)[0]
        keyed = [Message(topic, b"%d" % n, sharding_key=f"k{n % 5}") for n in range(20)]
        for send in (
            lambda: producer.send(Message(topic, b"x"), timeout_s=30.0, queue=queue),
            lambda: producer.send_many(keyed, timeout_s=30.0),
        ):
            send()
            own_cluster.kill()
            own_cluster.broker = "127.0.0.1:0"
            own_cluster.restart()
            send()


def test_a_broker_that_stays_away_ends_a_send_at_its_deadline(own_cluster, make_topic):
    topic = make_topic(own_cluster)
    with Producer("producers", namesrv=own_cluster.namesrv) as producer:
        producer.send(Message(topic, b"x"))
        own_cluster.kill()
        with pytest.raises((ConnectFailed, RemotingTimeout)):
            producer.send(Message(topic, b"x"), timeout_s=1.0)
        with pytest.raises(PartlySent) as caught:
            producer.send_many([Message(topic, b"x", sharding_key=str(n)) for n in range(9)], 1.0)
        assert caught.value.results == [None] * 9


def test_the_first_message_may_go_to_a_queue_of_the_callers_choice(cluster, topic):
    with Admin(namesrv=cluster.namesrv) as admin:
        queue = admin.queues(topic)[2]
    with Producer("p", namesrv=cluster.namesrv) as producer:
        assert producer.send(Message(topic, b"x"), queue=queue).queue == queue


def test_a_topic_and_a_body_are_no_message(producer):
    with pytest.raises(
        ClientError, match=r"one Message, as in send\(Message\('topic', b'body'\)\)"
    ):
        producer.send("x", b"a")


def test_a_function_that_chooses_beyond_the_queues_is_named(producer, topic):
    with pytest.raises(ClientError, match=f"given as queue= raised IndexError.*{topic}.* 4 queues"):
        producer.send(Message(topic, b"x"), queue=lambda queues, _message: queues[9])
