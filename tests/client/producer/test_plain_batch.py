"""Batches of usual messages: encoded in columns, sent by the thread that called or by the loop."""

import asyncio
import threading

import pytest

from client.scripted_broker import TOPIC
from cometmq import AsyncProducer, BrokerError, Message, Producer, RemotingTimeout
from cometmq.client.producer import thread_sender
from cometmq.client.producer.plain_batch import plain_batch as plain_batch_of
from cometmq.client.producer.prepared_message import PreparedBatch
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import response
from cometmq.wire.records import message_batch, properties

pytestmark = pytest.mark.usefixtures("each_form")

BATCH = RequestCode.SEND_BATCH_MESSAGE


def tail_of(tags):
    found = b"WAIT\x01true\x02"
    return found if tags is None else b"%bTAGS\x01%b\x02" % (found, tags.encode())


def plain_batch(messages):
    return plain_batch_of(messages, tail_of, 32, 1 << 20)


def items_of(body):
    return [
        (item.flag, item.body, properties.decode(item.properties))
        for item in message_batch.decode(body)
    ]


@pytest.mark.parametrize(
    ("keys", "tags"),
    [
        ([None, None, None], ["a", "a", "a"]),
        (["k-1", "k-2", "k-3"], ["a", "a", "a"]),
        (["k-1", None, "k-3 k-4"], [None, None, None]),
        (["", "k", ""], ["a", "b", "a"]),
        (["short", "x" * 1024, '"\\'], ["a", None, "b"]),
    ],
)
def test_a_plain_batch_says_the_same_as_the_slow_path(keys, tags):
    messages = [
        Message(TOPIC, b"x" * (at + 1), tags=tag, keys=key, properties={})
        for at, (key, tag) in enumerate(zip(keys, tags, strict=True))
    ]
    batch = plain_batch(messages)
    ids = [f"{at:032X}" for at in range(3)]
    slow = PreparedBatch(TOPIC, 0)
    for message, msg_id in zip(messages, ids, strict=True):
        slow.add(message, msg_id)
    body = batch.body(ids)
    assert items_of(body) == items_of(slow.body())
    assert plain_batch_of(messages, tail_of, 32, len(body)) is not None
    assert plain_batch_of(messages, tail_of, 32, len(body) - 1) is None


@pytest.mark.parametrize(
    "unusual",
    [
        {"keys": "a\x01b"},
        {"keys": "  "},
        {"keys": "ü"},
        {"keys": "x" * 1025},
        {"keys": 7},
        {"tags": 7},
        {"properties": {"a": "b"}},
        {"sharding_key": "k"},
        {"flag": 1},
        {"delay_level": 1},
        {"wait_store_ok": False},
    ],
)
def test_what_is_unusual_takes_the_slow_path(unusual):
    odd = Message(TOPIC, b"x")
    for name, value in unusual.items():
        setattr(odd, name, value)
    usual = Message(TOPIC, b"y", keys="k")
    assert plain_batch([usual, usual]) is not None
    assert plain_batch([usual, odd]) is None
    assert plain_batch([odd, usual]) is None
    assert plain_batch([usual]) is None
    assert plain_batch([usual, Message("other", b"x")]) is None
    assert plain_batch([usual, "text"]) is None
    assert plain_batch([usual] * 513) is None


def pair(text):
    return [Message(TOPIC, b"%b-%d" % (text, at), keys=f"k-{at}") for at in range(2)]


def ids_of(command):
    return [found["UNIQ_KEY"] for _, _, found in items_of(command.body)]


def test_threads_send_batches_over_connections_of_their_own(scripted_broker):
    results = []

    def work(name):
        results.extend(producer.send_batch(pair(name)) for _ in range(20))

    with Producer("g", namesrv=scripted_broker.addr) as producer:
        producer.send(Message(TOPIC, b"first"))
        threads = [threading.Thread(target=work, args=(b"%d" % at,)) for at in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        (sends,) = producer.stats().brokers.values()
        assert sends.in_flight == 0
        loops = producer._bridge.run(lambda: len(producer._inner._session.pool._channels))
        assert len(scripted_broker.connections) > loops
    sent = scripted_broker.requests(BATCH)
    assert len(sent) == len(results) == 80
    found = {ids_of(command)[at]: at for command in sent for at in range(2)}
    assert all(found[one.msg_id] == at for pair in results for at, one in enumerate(pair))


def test_a_batch_that_failed_on_a_thread_goes_on_under_the_same_ids(scripted_broker):
    def busy(command):
        scripted_broker.answers[BATCH] = scripted_broker.stored
        return response(command.opaque, ResponseCode.SYSTEM_BUSY, remark="busy")

    with Producer("g", namesrv=scripted_broker.addr) as producer:
        producer.send(Message(TOPIC, b"first"))
        scripted_broker.answers[BATCH] = busy
        results = producer.send_batch(pair(b"x"))
        first, second = scripted_broker.requests(BATCH)
        assert ids_of(first) == ids_of(second) == [result.msg_id for result in results]
        assert first.body == second.body or items_of(first.body) == items_of(second.body)
        scripted_broker.answers[BATCH] = lambda command: response(
            command.opaque, ResponseCode.MESSAGE_ILLEGAL, remark="no"
        )
        with pytest.raises(BrokerError, match="no"):
            producer.send_batch(pair(b"y"))
        scripted_broker.answers[BATCH] = lambda command: None
        with pytest.raises(RemotingTimeout):
            producer.send_batch(pair(b"z"), timeout_s=0.3)


def test_a_thread_without_connection_sends_its_batch_over_the_loop(scripted_broker, monkeypatch):
    monkeypatch.setattr(thread_sender, "THREADS_MAX", 0)
    with Producer("g", namesrv=scripted_broker.addr) as producer:
        producer.send(Message(TOPIC, b"first"))
        before = len(scripted_broker.connections)
        assert len(producer.send_batch(pair(b"x"))) == 2
        assert len(scripted_broker.connections) == before


def test_a_batch_with_keys_takes_the_fast_path_of_the_loop(scripted_broker, monkeypatch):
    async def scenario():
        async with AsyncProducer("g", namesrv=scripted_broker.addr) as producer:
            await producer.send(Message(TOPIC, b"first"))
            monkeypatch.setattr(producer.pipeline, "send_list", None)
            return await producer.send_batch(pair(b"x"))

    results = asyncio.run(scenario())
    (sent,) = scripted_broker.requests(BATCH)
    assert ids_of(sent) == [result.msg_id for result in results]
    assert [found["KEYS"] for _, _, found in items_of(sent.body)] == ["k-0", "k-1"]


def test_a_list_that_changes_while_its_batch_waits_is_sent_as_it_was_given(scripted_broker):
    async def scenario():
        async with AsyncProducer("g", namesrv=scripted_broker.addr, retries=0) as producer:
            await producer.send(Message(TOPIC, b"first"))
            queues = len(await producer.queues(TOPIC))
            scripted_broker.answers[BATCH] = lambda command: None
            before = [
                asyncio.create_task(producer.send_batch(pair(b"before"), 1.0))
                for _ in range(queues)
            ]
            while len(scripted_broker.requests(BATCH)) < queues:
                await asyncio.sleep(0.01)
            scripted_broker.answers[BATCH] = scripted_broker.stored
            given = pair(b"mine")
            waiting = asyncio.create_task(producer.send_batch(given, 20.0))
            await asyncio.sleep(0)
            assert len(scripted_broker.requests(BATCH)) == queues, "it did not wait"
            given[:] = [Message(TOPIC, b"another")] * 3
            await asyncio.gather(*before, return_exceptions=True)
            return await waiting

    assert len(asyncio.run(scenario())) == 2
    sent = items_of(scripted_broker.requests(BATCH)[-1].body)
    assert [body for _, body, _ in sent] == [b"mine-0", b"mine-1"]
