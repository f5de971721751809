"""The message trace: what it says, and that it never gets in the way."""

import asyncio

import pytest

from client.scripted_broker import TOPIC
from client.short_delay_cluster import until
from cometmq import (
    AsyncPushConsumer,
    BrokerError,
    ConsumeFrom,
    Message,
    Producer,
    PushConsumer,
    SettingsError,
)
from cometmq.client.middleware import trace
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import response
from cometmq.wire.compression import inflate

SEND = RequestCode.SEND_MESSAGE_V2


def traced(scripted_broker, topic="tr"):
    """The records of the trace topic, each a list of fields, and the keys of the messages."""
    sent = [command for command in scripted_broker.requests(SEND) if command.ext["b"] == topic]
    bodies = [inflate(command.body, int(command.ext["f"])) for command in sent]
    records = b"".join(bodies).decode().split("\x02")
    return [record.split("\x01") for record in records if record], [c.ext["i"] for c in sent]


def test_a_producer_tells_of_each_message_and_of_the_end_of_a_transaction(scripted_broker):
    with Producer("g", namesrv=scripted_broker.addr, trace="tr") as producer:
        plain = producer.send(Message(TOPIC, b"hello", tags="t", keys="k1 k2"))
        delayed = producer.send(Message(TOPIC, b"x", delay_level=3))
        with producer.transaction() as tx:
            half = tx.send(Message(TOPIC, b"xy", sharding_key="s"))
        scripted_broker.answers[SEND] = refuse_but("tr", scripted_broker)
        with pytest.raises(BrokerError):
            producer.send(Message(TOPIC, b"refused"))
    records, keys = traced(scripted_broker)
    kinds = [record[0] for record in records]
    assert kinds == ["Pub", "Pub", "Pub", "EndTransaction", "Pub"]
    first = records[0]
    assert [first[3], *first[4:10]] == [
        "g",
        TOPIC,
        plain.msg_id,
        "t",
        "k1 k2",
        scripted_broker.addr,
        "5",
    ]
    assert first[11:] == ["0", plain.offset_msg_id, "true"]
    assert int(first[1]) > 1_600_000_000_000
    assert [record[11] for record in records[1:3]] == ["3", "1"]
    assert records[3][5:7] == [half.msg_id, ""]
    assert records[3][9:] == ["2", half.msg_id, "COMMIT_MESSAGE", "false"]
    assert records[4][13] == "false"
    assert {"k1", "k2", plain.msg_id, delayed.msg_id} <= set(
        keys[0].partition("KEYS\x01")[2].partition("\x02")[0].split()
    )


def test_a_batch_is_one_record_with_all_ids_and_a_oneway_message_none(scripted_broker):
    scripted_broker.answers[RequestCode.SEND_BATCH_MESSAGE] = scripted_broker.stored
    with Producer("g", namesrv=scripted_broker.addr, trace="tr") as producer:
        results = producer.send_batch([Message(TOPIC, b"a"), Message(TOPIC, b"b", keys="k")])
        more = producer.send_many([Message(TOPIC, b"alone")])
        producer.send_oneway(Message(TOPIC, b"x"))
    records, keys = traced(scripted_broker)
    batched, alone = records
    ids = [result.msg_id for result in results]
    assert batched[:1] + batched[3:9] == [
        "Pub",
        "g",
        TOPIC,
        ",".join(ids),
        "",
        "",
        scripted_broker.addr,
    ]
    assert int(batched[9]) > 2
    assert batched[11:] == ["0", ",".join(["0" * 32] * 2), "true"]
    assert (alone[5], alone[9]) == (more[0].msg_id, "5")
    assert set(ids) <= set(keys[0].partition("KEYS\x01")[2].partition("\x02")[0].split())


def test_the_keys_of_large_batches_stay_within_what_a_message_may_have(scripted_broker):
    scripted_broker.answers[RequestCode.SEND_BATCH_MESSAGE] = scripted_broker.stored
    with Producer("g", namesrv=scripted_broker.addr, trace="tr") as producer:
        producer.send_batch([Message(TOPIC, b"x") for _ in range(1_200)])
        assert producer._inner.pipeline.trace is not None
        trace_of = producer._inner.pipeline.trace
    records, keys = traced(scripted_broker)
    assert sum(record[5].count(",") + 1 for record in records) == 1_200
    assert trace_of.dropped == 0
    assert all(len(one) < 20_000 for one in keys)


def refuse_but(topic, scripted_broker):
    def answer(command):
        if command.ext["b"] == topic:
            return scripted_broker.stored(command)
        return response(command.opaque, ResponseCode.MESSAGE_ILLEGAL, remark="no")

    return answer


def test_a_broker_that_wants_no_trace_gets_none_and_a_refused_trace_harms_nobody(scripted_broker):
    stored = scripted_broker.stored

    def quiet(command):
        answer = stored(command)
        answer.ext["TRACE_ON"] = "false"
        return answer

    scripted_broker.answers[SEND] = quiet
    with Producer("g", namesrv=scripted_broker.addr, trace="tr") as producer:
        producer.send(Message(TOPIC, b"x"))
    assert traced(scripted_broker) == ([], [])

    def refuse_trace(command):
        if command.ext["b"] == "tr":
            return response(command.opaque, ResponseCode.MESSAGE_ILLEGAL, remark="no")
        return stored(command)

    scripted_broker.answers[SEND] = refuse_trace
    with Producer("g", namesrv=scripted_broker.addr, trace="tr") as producer:
        for _ in range(3):
            producer.send(Message(TOPIC, b"x"))
        sender = producer._inner.pipeline.trace
    assert sender.dropped == 3


def test_records_beyond_the_bound_are_dropped_and_messages_of_the_topic_are_cut(
    scripted_broker, monkeypatch, caplog
):
    monkeypatch.setattr(trace, "WAITING_MAX", 30)
    monkeypatch.setattr(trace, "LOOK_S", 3600.0)
    with Producer("g", namesrv=scripted_broker.addr, trace="tr") as producer:
        for _ in range(35):
            producer.send(Message(TOPIC, b"x"))
        assert producer._inner.pipeline.trace.dropped == 5
    records, keys = traced(scripted_broker)
    assert (len(records), len(keys)) == (30, 2)
    assert caplog.text.count("records of the message trace are dropped: 30 wait to be sent") == 1


def test_a_consumer_tells_before_and_after_each_handling(cluster, make_topic, group):
    topic, to = make_topic(cluster), make_topic(cluster, queues=1)
    seen, records = [], []

    def handle(messages):
        seen.append(messages[0].body)
        if seen == [b"one"]:
            raise ValueError("once more")

    def note(messages):
        for message in messages:
            records.extend(r.split("\x01") for r in message.body.decode().split("\x02") if r)

    with Producer(group, namesrv=cluster.namesrv) as producer:
        sent = producer.send(Message(topic, b"one", keys="k"))
    first = {"namesrv": cluster.namesrv, "consume_from": ConsumeFrom.FIRST}
    consumer = PushConsumer(group, trace=to, **first)
    consumer.subscribe(topic, "*", handle)
    reader = PushConsumer(f"{group}-reader", **first)
    reader.subscribe(to, "*", note)
    with reader:
        with consumer:
            until(lambda: len(seen) >= 2)
        until(lambda: len(records) >= 4)
    by_kind = {kind: [r for r in records if r[0] == kind] for kind in ("SubBefore", "SubAfter")}
    assert [r[5] for r in by_kind["SubBefore"]] == [sent.msg_id] * 2
    assert [r[6] for r in by_kind["SubBefore"]] == ["0", "1"]
    assert [(r[4], r[6], r[8]) for r in by_kind["SubAfter"]] == [
        ("false", "2", group),
        ("true", "0", group),
    ]
    assert [r[1] for r in by_kind["SubAfter"]] == [r[4] for r in by_kind["SubBefore"]]


def test_an_async_handler_is_traced_as_well(cluster, make_topic, group):
    topic, to = make_topic(cluster), make_topic(cluster, queues=1)

    async def scenario():
        seen = asyncio.Event()

        async def handle(messages):
            seen.set()

        consumer = AsyncPushConsumer(
            group, namesrv=cluster.namesrv, consume_from=ConsumeFrom.FIRST, trace=to
        )
        consumer.subscribe(topic, "*", handle)
        async with consumer, asyncio.timeout(30):
            await seen.wait()

    with Producer(group, namesrv=cluster.namesrv) as producer:
        producer.send(Message(topic, b"one"))
        asyncio.run(scenario())
        got = []
        reader = PushConsumer(
            f"{group}-reader", namesrv=cluster.namesrv, consume_from=ConsumeFrom.FIRST
        )
        reader.subscribe(to, "*", lambda messages: got.extend(m.body for m in messages))
        with reader:
            until(lambda: got)
    assert b"SubBefore" in got[0]
    assert b"SubAfter" in got[0]


def test_a_bad_trace_topic_is_refused():
    for wrong in ("no spaces", 5):
        with pytest.raises(SettingsError, match="trace"):
            Producer("g", namesrv="127.0.0.1:1", trace=wrong)
