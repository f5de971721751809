"""Programs written for rocketmq-client-python and Java's listeners."""

import threading

import pytest

from client.conftest import cluster, group, topic  # noqa: F401 - fixtures
from client.short_delay_cluster import until
from cometmq import ClientError, ConsumeFrom, PushConsumer, compat
from cometmq import ConsumeStatus as Status
from cometmq.compat import (
    ConsumeStatus,
    Message,
    MessageListenerConcurrently,
    MessageListenerOrderly,
    MessageModel,
    Producer,
    SendStatus,
)
from cometmq.compat import PushConsumer as OldConsumer

FIRST = ConsumeFrom.FIRST


def old_message(topic, body):  # noqa: F811
    msg = Message(topic)
    msg.set_keys("k1 k2")
    msg.set_tags("blue")
    msg.set_property("colour", "azure")
    msg.set_body(body)
    return msg


def test_a_program_of_the_old_client_runs(cluster, group, topic):  # noqa: F811
    producer = Producer("PID-XXX", timeout=5000, compress_level=1, max_message_size=1 << 20)
    producer.set_name_server_address(cluster.namesrv)
    producer.set_session_credentials("key", "secret", "ALIYUN")  # signed; nobody checks it here
    producer.start()
    ret = producer.send_sync(old_message(topic, "XXXX"))
    assert (ret.status, ret.offset) == (SendStatus.OK, 0)
    assert ret.msg_id
    for step in range(3):
        producer.send_orderly_with_sharding_key(old_message(topic, f"step {step}"), "order-1")
    producer.send_oneway(old_message(topic, b"nobody knows"))
    producer.shutdown()

    seen, attempts = [], []

    def callback(msg):
        attempts.append(msg.id)
        if msg.body == b"XXXX" and msg.reconsume_times == 0:
            return None  # later, as it was with the old client
        seen.append((str(msg), msg.tags, msg.keys, msg.get_property("colour"), msg.topic))
        return ConsumeStatus.CONSUME_SUCCESS

    consumer = OldConsumer(group, message_model=MessageModel.CLUSTERING)
    consumer.set_namesrv_addr(cluster.namesrv)
    consumer.set_thread_count(4)
    consumer.set_message_batch_max_size(1)
    consumer._settings["consume_from"] = FIRST  # the old client knew no such setting
    consumer.subscribe(topic, callback)
    consumer.start()
    until(lambda: len(seen) == 5)
    consumer.shutdown()
    assert attempts.count(ret.msg_id) == 2
    assert ("XXXX", b"blue", b"k1 k2", "azure", topic) in seen


@pytest.mark.parametrize("verdict", [None, 0.5, True, "CONSUME_SUCCESS"])
def test_a_listener_that_does_not_return_success_gets_the_message_again(verdict):
    handler = compat._CallbackHandler(lambda message: verdict)
    with pytest.raises(compat.RetryLater):
        handler([_Received()])


class _Received:
    topic, body, keys, tags, properties = "t", b"", [], None, {}
    msg_id, queue_id, queue_offset, reconsume_times = "id", 0, 0, 0
    born_ms = store_ms = phy_offset = prepared_offset = 0


def test_listeners_keep_javas_rules(cluster, group, topic):  # noqa: F811
    with _producer(cluster) as producer:
        for step in range(4):
            producer.send_orderly_with_sharding_key(old_message(topic, str(step)), "one")
    calls, done = [], threading.Event()

    class Steps(MessageListenerOrderly):
        def consume_message(self, messages, context):
            calls.append(messages[0].body)
            context.suspend_current_queue_time_millis = 10
            if len(calls) == 2:
                return None
            if messages[0].body == b"3":
                done.set()
            return Status.SUCCESS

    consumer = PushConsumer(group, namesrv=cluster.namesrv, orderly=True, consume_from=FIRST)
    consumer.subscribe(topic, "*", Steps())
    with consumer:
        assert done.wait(20)
    assert calls == [b"0", b"1", b"1", b"2", b"3"]


def test_an_orderly_listener_commits_by_the_context_of_each_call(cluster, group, topic):  # noqa: F811
    with _producer(cluster) as producer:
        for step in range(4):
            producer.send_orderly_with_sharding_key(old_message(topic, str(step)), "one")
    calls = []

    class Steps(MessageListenerOrderly):
        def consume_message(self, messages, context):
            calls.append(messages[0].body)
            context.auto_commit = messages[0].body in (b"0", b"3")
            return Status.ROLLBACK if len(calls) == 3 else Status.SUCCESS

    consumer = PushConsumer(
        group, namesrv=cluster.namesrv, orderly=True, consume_from=FIRST, suspend_ms=10
    )
    consumer.subscribe(topic, "*", Steps())
    with consumer:
        until(lambda: len(calls) == 6)
    # 0 was committed by its call; 1 was done and not committed when 2 rolled back
    assert calls == [b"0", b"1", b"2", b"1", b"2", b"3"]
    consumer = PushConsumer(group, namesrv=cluster.namesrv, orderly=True)
    again = []
    consumer.subscribe(topic, "*", again.extend)
    with consumer, _producer(cluster) as producer:
        producer.send_orderly_with_sharding_key(old_message(topic, "4"), "one")
        until(lambda: again)
    assert [one.body for one in again] == [b"4"]  # 3 has committed 1 and 2 as well


def test_a_concurrent_listener_acknowledges_a_part_of_its_batch(cluster, group, topic):  # noqa: F811
    with _producer(cluster) as producer:
        for step in range(4):
            producer.send_orderly_with_sharding_key(old_message(topic, str(step)), "one")
    calls = []

    class Batch(MessageListenerConcurrently):
        def consume_message(self, messages, context):
            calls.append(sorted(message.body for message in messages))
            context.delay_level_when_next_consume = 1
            if len(messages) == 4:
                context.ack_index = 1
            return Status.CONSUME_SUCCESS

    settings = {"namesrv": cluster.namesrv, "consume_from": FIRST, "batch_size": 8}
    consumer = PushConsumer(group, **settings)
    consumer.subscribe(topic, "*", Batch())
    with consumer:
        until(lambda: sum(map(len, calls)) == 6)
    assert calls[0] == [b"0", b"1", b"2", b"3"]
    assert sorted(body for call in calls[1:] for body in call) == [b"2", b"3"]


def _producer(cluster):  # noqa: F811
    producer = Producer("PID-XXX")
    producer.set_name_server_address(cluster.namesrv)
    return producer


def test_methods_that_are_not_supported_raise_an_error_that_says_so():
    producer = Producer("PID-XXX")
    with pytest.raises(ClientError, match="set_name_server_address"):
        producer.set_name_server_domain("http://names")
    with pytest.raises(ClientError, match="start"):
        producer.send_sync(Message("t"))
