"""Queues go on whatever their handler raised, and whatever broke off."""

import asyncio

import pytest

from client.short_delay_cluster import until
from cometmq import (
    Admin,
    AsyncProducer,
    AsyncPushConsumer,
    ConsumeFrom,
    Message,
    Producer,
    PushConsumer,
    RetryLater,
)
from cometmq.client.consumer import message_decoder as decode


def ends_badly(is_async):
    """A handler that fails once on "0", in a way that is no Exception; and what it saw."""
    seen = []

    def plain(messages):
        seen.append(messages[0].body)
        if seen.count(b"0") == 1 and seen[-1] == b"0":
            raise asyncio.CancelledError

    async def awaits(messages):
        seen.append(messages[0].body)
        if seen.count(b"0") == 1 and seen[-1] == b"0":
            cancelled = asyncio.get_running_loop().create_future()
            cancelled.cancel()
            await cancelled

    return (awaits if is_async else plain), seen


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("orderly", [True, False], ids=["orderly", "concurrent"])
def test_a_queue_goes_on_whatever_its_handler_raised(cluster, group, make_topic, orderly, is_async):
    topic = make_topic(cluster, 1)
    handler, seen = ends_badly(is_async)
    with Producer("producers", namesrv=cluster.namesrv) as producer:
        producer.send_batch([Message(topic, b"%d" % n) for n in range(3)])
    options = {"orderly": orderly, "suspend_ms": 10, "consume_from": ConsumeFrom.FIRST}
    consumer = PushConsumer(group, namesrv=cluster.namesrv, **options)
    consumer.subscribe(topic, "*", handler)
    with consumer:
        until(lambda: len(seen) >= 4)
    with Admin(namesrv=cluster.namesrv) as admin:
        offsets = admin.group_offsets(group, topic)
    assert list(offsets.values()) == [3]
    assert seen.count(b"0") == 2


def test_retried_messages_go_to_the_handlers_of_their_own_topics(cluster, group, make_topic):
    topics, seen = [make_topic(cluster, 1) for _ in range(2)], []

    def handler_of(own):
        def handler(messages):
            seen.extend((own, message.topic, message.reconsume_times) for message in messages)
            if messages[0].reconsume_times == 0:
                raise RetryLater("once more", delay_level=1)

        return handler

    def consumer():
        options = {"batch_size": 32, "consume_from": ConsumeFrom.FIRST}
        made = PushConsumer(group, namesrv=cluster.namesrv, **options)
        for topic in topics:
            made.subscribe(topic, "*", handler_of(topic))
        return made

    with Producer("producers", namesrv=cluster.namesrv) as producer:
        for number in range(5):  # the two take turns in the retry queue as well
            for topic in topics:
                producer.send(Message(topic, b"%d" % number))
    with consumer():
        until(lambda: len(seen) >= 10)
    with Admin(namesrv=cluster.namesrv) as admin:
        retry = f"%RETRY%{group}"
        until(lambda: sum(at.max_offset for at in admin.topic_stats(retry).values()) >= 10)
    with consumer():  # finds all ten in one pull
        until(lambda: len(seen) >= 20)
    assert [entry for entry in seen if entry[0] != entry[1]] == []
    assert sorted(times for _, _, times in seen) == [0] * 10 + [1] * 10


@pytest.mark.parametrize("orderly", [True, False], ids=["orderly", "concurrent"])
def test_a_queue_whose_work_broke_off_is_begun_anew(
    cluster, group, topic, orderly, monkeypatch, caplog
):
    real, seen = decode.decode_messages, []

    def broken_once(body, broker_name, inflated_bytes_max):
        monkeypatch.setattr(decode, "decode_messages", real)
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr(decode, "decode_messages", broken_once)

    async def scenario():
        async with AsyncProducer("producers", namesrv=cluster.namesrv) as producer:
            await producer.send(Message(topic, b"one"))
        options = {"orderly": orderly, "consume_from": ConsumeFrom.FIRST}
        consumer = AsyncPushConsumer(group, namesrv=cluster.namesrv, **options)
        consumer.subscribe(topic, "*", seen.extend)
        async with consumer, asyncio.timeout(20):
            while not seen:
                await asyncio.sleep(0.01)

    asyncio.run(scenario())
    assert [message.body for message in seen] == [b"one"]
    assert "nobody foresaw this" in caplog.text
