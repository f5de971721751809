"""The checks of a sender, in RocketMQ's order and with its codes, and what the broker adds."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from broker.commands import properties_of, records, send_header
from broker.harness import SMALL_STORE, run, running
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request
from cometmq.wire.headers.send import SendMessageRequestHeader
from cometmq.wire.records import message_batch, properties


def refused(code: int, topic: str = "T", body: bytes = b"x", **more: Any) -> None:
    """The send is answered with the code, and nothing can be pulled afterwards."""
    settings = more.pop("settings", {})

    async def scenario() -> None:
        async with running(**settings) as harness:
            client = await harness.client()
            answer = await client.send(topic, body, **more)
            assert answer.code == code, answer
            assert answer.remark, "a refusal says why"
            assert answer.ext["MSG_REGION"] == "DefaultRegion"
            assert harness.broker.store.max_phy_offset == 0

    run(scenario())


def test_the_answer_has_all_that_clients_need() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            answer = await client.send("T", properties={"UNIQ_KEY": "ABC"})
            host = "7F000001" + f"{harness.broker.port:08X}"
            assert answer.ext == {
                "msgId": host + "0" * 16,
                "queueId": "0",
                "queueOffset": "0",
                "transactionId": "ABC",
                "MSG_REGION": "DefaultRegion",
                "TRACE_ON": "true",
            }

    run(scenario())


def test_the_broker_adds_its_properties_and_drops_what_is_reserved() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.send("T", properties={"UNIQ_KEY": "K", "x": "y", "POP_CK": "1 2"})
            (record,) = records(await client.pull("T"))
            assert properties_of(record) == {
                "UNIQ_KEY": "K",
                "WAIT": "true",
                "x": "y",
                "MSG_REGION": "DefaultRegion",
                "TRACE_ON": "true",
                "CLUSTER": "DefaultCluster",
            }

    run(scenario())


def test_a_missing_unique_key_is_made_and_returned() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            answer = await client.send("T", properties={"UNIQ_KEY": ""})
            (record,) = records(await client.pull("T"))
            key = properties_of(record)["UNIQ_KEY"]
            assert answer.ext["transactionId"] == key
            assert len(key) == 32

    run(scenario())


def test_what_a_client_read_and_sends_again_has_nothing_twice() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.send("T")
            (record,) = records(await client.pull("T"))
            header = send_header("T", properties={})
            header.properties = record.properties.decode()
            await client.call(RequestCode.SEND_MESSAGE_V2, header, b"again")
            again = records(await client.pull("T", queue_offset=1))[0]
            for key in (b"CLUSTER", b"MSG_REGION", b"TRACE_ON", b"UNIQ_KEY", b"__CRC32#"):
                assert again.properties.count(key + b"\x01") == 1, key

    run(scenario())


def test_the_long_form_of_the_header_does_the_same() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            header = SendMessageRequestHeader(**asdict(send_header("T")))
            answer = await client.call(RequestCode.SEND_MESSAGE, header, b"long")
            assert answer.code == 0, answer
            assert records(await client.pull("T"))[0].body == b"long"

    run(scenario())


def test_the_first_send_makes_the_topic_after_the_template() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            assert (await client.send("T", default_topic_queue_nums=20)).code == 0
            config = harness.broker.state.topics.get("T")
            assert config is not None
            assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (8, 8, 6)
            assert (await client.send("U", default_topic_queue_nums=3)).code == 0
            config = harness.broker.state.topics.get("U")
            assert config is not None
            assert config.write_queue_nums == 3

    run(scenario())


@pytest.mark.parametrize("wanted", [0, -1])
def test_a_send_creates_no_topic_without_queues(wanted: int) -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            answer = await client.send("T", default_topic_queue_nums=wanted)
            assert answer.code == ResponseCode.INVALID_PARAMETER
            assert f"{wanted} were asked for" in (answer.remark or "")
            assert harness.broker.state.topics.get("T") is None
            assert (await client.send("T")).code == 0

    run(scenario())


def test_an_unknown_topic_is_refused_where_sends_make_none() -> None:
    settings = {"auto_create_topic_enable": False}
    refused(ResponseCode.TOPIC_NOT_EXIST, settings=settings)


def test_an_unknown_topic_is_refused_when_the_default_topic_may_not_be_inherited() -> None:
    refused(ResponseCode.TOPIC_NOT_EXIST, default_topic="BenchmarkTest")


@pytest.mark.parametrize("topic", ["a b", "T!", "x" * 128, "%RETRY%" + "x" * 249])
def test_a_bad_name_is_refused(topic: str) -> None:
    refused(ResponseCode.INVALID_PARAMETER, topic)


@pytest.mark.parametrize(
    "topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "SELF_TEST_TOPIC"]
)
def test_the_brokers_own_topics_take_no_sends(topic: str) -> None:
    refused(ResponseCode.NO_PERMISSION, topic)


def test_a_queue_that_does_not_exist_is_refused() -> None:
    refused(ResponseCode.INVALID_PARAMETER, queue_id=4)


def test_a_body_above_the_limit_is_refused_and_the_connection_stays() -> None:
    async def scenario() -> None:
        async with running(replace(SMALL_STORE, max_message_bytes=1000)) as harness:
            client = await harness.client()
            answer = await client.send("T", b"x" * 1001)
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
            assert "1001" in (answer.remark or "")
            assert "1000" in (answer.remark or "")
            assert (await client.send("T", b"x" * 1000)).code == 0

    run(scenario())


def test_an_empty_body_is_refused() -> None:
    refused(ResponseCode.MESSAGE_ILLEGAL, body=b"")


def test_properties_above_the_limit_are_refused() -> None:
    refused(ResponseCode.MESSAGE_ILLEGAL, properties={"x": "y" * 32_768})


def test_an_order_topic_obeys_the_brokers_permission_others_do_not() -> None:
    async def scenario() -> None:
        async with running(broker_permission=4) as harness:
            client = await harness.client()
            assert (await client.send("T")).code == 0
            harness.broker.state.topics.ensure("O", 1, order=True)
            assert (await client.send("O")).code == ResponseCode.NO_PERMISSION

    run(scenario())


def test_a_negative_queue_lets_the_broker_choose() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            chosen = {(await client.send("T", queue_id=-1)).ext["queueId"] for _ in range(60)}
            assert chosen == {"0", "1", "2", "3"}

    run(scenario())


def test_nobody_answers_a_oneway_send() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            header = send_header("T")
            for body in (b"one", b"two", b""):  # the last one is refused, also without an answer
                client.channel.oneway(
                    request(RequestCode.SEND_MESSAGE_V2, 0, header, body, oneway=True)
                )
            await client.send("T", b"three", queue_id=1)  # the others are visible after this one
            pulled = await client.pull("T")
            assert [record.body for record in records(pulled)] == [b"one", b"two"]

    run(scenario())


def test_a_batch_is_stored_message_by_message_in_order() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            items = [
                message_batch.BatchItem(
                    n, b"b%d" % n, properties.encode({"UNIQ_KEY": f"K{n}", "TAGS": "A"})
                )
                for n in range(3)
            ]
            header = send_header("T", batch=True)
            answer = await client.call(
                RequestCode.SEND_BATCH_MESSAGE, header, message_batch.encode(items)
            )
            assert answer.code == 0, answer
            assert answer.ext["queueOffset"] == "0"
            pulled = records(await client.pull("T"))
            assert [(record.body, record.flag) for record in pulled] == [
                (b"b0", 0),
                (b"b1", 1),
                (b"b2", 2),
            ]
            assert [properties_of(record)["UNIQ_KEY"] for record in pulled] == ["K0", "K1", "K2"]
            assert answer.ext["msgId"].split(",") == [
                (record.store_host + record.phy_offset.to_bytes(8, "big")).hex().upper()
                for record in pulled
            ]

    run(scenario())


@pytest.mark.parametrize(
    ("topic", "items"),
    [
        ("%RETRY%G", [message_batch.BatchItem(0, b"x", b"")]),
        ("T", []),
        ("T", [message_batch.BatchItem(0, b"x", b""), message_batch.BatchItem(0, b"", b"")]),
        ("T", [message_batch.BatchItem(0, b"x", properties.encode({"DELAY": "1"}))]),
    ],
)
def test_an_invalid_batch_is_refused_as_a_whole(
    topic: str, items: list[message_batch.BatchItem]
) -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            header = send_header(topic, batch=True)
            answer = await client.call(
                RequestCode.SEND_BATCH_MESSAGE, header, message_batch.encode(items)
            )
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL, answer
            assert harness.broker.store.max_phy_offset == 0

    run(scenario())


def test_a_missing_field_is_named() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            answer = await client.call(RequestCode.SEND_MESSAGE_V2, None, b"x", b="T")
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "header field a" in (answer.remark or "")

    run(scenario())


@pytest.mark.parametrize(
    ("more", "queue_id", "kept"),
    [
        ({}, 1, None),
        ({"_SYS_MSG_PRIORITY_": "0"}, 0, "0"),
        ({"_SYS_MSG_PRIORITY_": "2"}, 2, "2"),
        ({"_SYS_MSG_PRIORITY_": "+3"}, 3, "+3"),
        ({"_SYS_MSG_PRIORITY_": "99"}, 3, "99"),
        ({"_SYS_MSG_PRIORITY_": "-1"}, 1, "-1"),
        ({"_SYS_MSG_PRIORITY_": "high"}, 1, "high"),
        ({"_SYS_MSG_PRIORITY_": "4294967296"}, 1, "4294967296"),
        ({"_SYS_MSG_PRIORITY_": "2", "__SHARDINGKEY": "k"}, 1, None),
        ({"_SYS_MSG_PRIORITY_": "2", "TRAN_MSG": "false"}, 2, "2"),
    ],
)
def test_a_priority_chooses_the_queue(
    more: dict[str, str], queue_id: int, kept: str | None
) -> None:
    """As in 5.5.0: min(priority, write queues - 1), but for half, delayed and sharded messages."""

    async def scenario() -> None:
        async with running(default_topic_queue_nums=4) as harness:
            client = await harness.client()
            for number in range(3):  # the fast path comes with the second of a form
                answer = await client.send(
                    "T", queue_id=1, properties={"UNIQ_KEY": f"K{number}", **more}
                )
                assert answer.ext["queueId"] == str(queue_id)
                assert answer.ext["queueOffset"] == str(number)
            stored = await client.drain("T", queue_id=queue_id)
            assert [properties_of(each).get("_SYS_MSG_PRIORITY_") for each in stored] == [kept] * 3

    run(scenario())


@pytest.mark.parametrize("more", [{"DELAY": "1"}, {"TRAN_MSG": "TRUE", "PGROUP": "g"}])
def test_a_delayed_or_half_message_has_no_priority(more: dict[str, str]) -> None:
    async def scenario() -> None:
        async with running(default_topic_queue_nums=4, message_delay_level="1s") as harness:
            client = await harness.client()
            fields = {"UNIQ_KEY": "K", "_SYS_MSG_PRIORITY_": "2", **more}
            answer = await client.send("T", queue_id=1, properties=fields)
            assert (answer.code, answer.ext["queueId"]) == (0, "1")
            topic = "SCHEDULE_TOPIC_XXXX" if "DELAY" in more else "RMQ_SYS_TRANS_HALF_TOPIC"
            at = harness.broker.store.entry(topic, 0, 0)
            assert at is not None
            record = harness.broker.store.record_at(at[0])
            assert record is not None
            assert b"_SYS_MSG_PRIORITY_" not in record

    run(scenario())
