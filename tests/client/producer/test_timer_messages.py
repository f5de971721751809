"""Messages at a time of their own, through producers on a real cluster."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from client.short_delay_cluster import until
from cometmq import AsyncProducer, ConsumeFrom, Message, Producer, PushConsumer
from cometmq.errors import BrokerError, InvalidMessage
from cometmq.testing.cluster import LocalCluster
from cometmq.wire.codes import ResponseCode

TOPIC = "Timers"


@pytest.fixture(scope="module")
def timers(tmp_path_factory):
    store = tmp_path_factory.mktemp("timers") / "store"
    with LocalCluster(store, recall_message_enable=True) as cluster:
        yield cluster


def test_messages_come_at_their_times_and_a_recalled_one_does_not(timers):
    came = {}

    def handler(messages):
        came.update((message.body, message.store_ms) for message in messages)

    consumer = PushConsumer("G", namesrv=timers.namesrv, consume_from=ConsumeFrom.FIRST)
    consumer.subscribe(TOPIC, "*", handler)
    with Producer("P", namesrv=timers.namesrv) as producer, consumer:
        now = datetime.now(UTC)
        at, after = now + timedelta(seconds=2), timedelta(milliseconds=1500)
        sent = producer.send(Message(TOPIC, b"at", deliver_at=at))
        producer.send(Message(TOPIC, b"after", deliver_after=after))
        recalled = producer.send(Message(TOPIC, b"recalled", deliver_at=at))
        producer.send(Message(TOPIC, b"last", deliver_at=at + timedelta(seconds=1)))
        assert sent.recall_handle
        assert producer.recall(TOPIC, recalled.recall_handle) == recalled.msg_id
        until(lambda: b"last" in came, 15)
    assert set(came) == {b"at", b"after", b"last"}
    assert came[b"at"] >= at.timestamp() * 1_000
    assert came[b"after"] >= (now + after).timestamp() * 1_000


def test_only_messages_at_a_time_of_their_own_have_a_handle(timers):
    with Producer("P", namesrv=timers.namesrv) as producer:
        assert producer.send(Message("plain", b"x")).recall_handle is None
        assert [each.recall_handle for each in producer.send_batch([Message("plain", b"x")])] == [
            None
        ]


def test_the_broker_says_what_is_wrong_with_a_time(timers):
    with Producer("P", namesrv=timers.namesrv, retries=0) as producer:
        with pytest.raises(BrokerError, match="timerMaxDelaySec allows 259200 s") as refused:
            producer.send(Message(TOPIC, b"x", deliver_after=timedelta(days=4)))
        assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
        handle = producer.send(Message(TOPIC, b"x", deliver_after=timedelta(days=1))).recall_handle
        producer.send(Message("other", b"x"))
        with pytest.raises(BrokerError, match="of the topic Timers"):
            producer.recall("other", handle)


@pytest.mark.parametrize("bad", ["", "x", "djEgYQ==", None, 5])
def test_what_is_no_handle_is_refused_before_anything_is_sent(timers, bad):
    async def scenario():
        async with AsyncProducer("P", namesrv=timers.namesrv) as producer:
            with pytest.raises(InvalidMessage, match="is no handle"):
                await producer.recall(TOPIC, bad)

    asyncio.run(scenario())


NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"deliver_at": datetime(2030, 1, 1)}, "which says no time zone"),  # noqa: DTZ001
        ({"deliver_at": 5}, "deliver_at a datetime or deliver_after a timedelta"),
        ({"deliver_after": 5}, "deliver_at a datetime or deliver_after a timedelta"),
        ({"deliver_after": timedelta(seconds=-1)}, "less than nothing"),
        ({"deliver_at": NOW, "delay_level": 1}, "not both"),
        ({"deliver_at": NOW, "deliver_after": timedelta(1)}, "not both"),
    ],
)
def test_a_time_that_makes_no_sense_is_refused(timers, given, said):
    with (
        Producer("P", namesrv=timers.namesrv) as producer,
        pytest.raises(InvalidMessage, match=said),
    ):
        producer.send(Message(TOPIC, b"x", **given))


def test_neither_batches_nor_transactions_hold_one(timers):
    later = Message(TOPIC, b"x", deliver_after=timedelta(hours=1))
    with Producer("P", namesrv=timers.namesrv, check=lambda _: None) as producer:
        with pytest.raises(InvalidMessage, match="cannot be sent in a batch"):
            producer.send_batch([later])
        with pytest.raises(InvalidMessage, match="cannot be delayed"):
            producer.send_in_transaction(later, lambda _: True)
        alone, plain = producer.send_many([later, Message(TOPIC, b"y")])
        assert alone.recall_handle
        assert not plain.recall_handle
