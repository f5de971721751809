"""The clients that are connected, and questions that are handed on to them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from broker.commands import records
from broker.harness import run, running
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies import admin as bodies
from cometmq.wire.bodies.json_fields import LENIENT_BYTES_MAX
from cometmq.wire.bodies.offset import (
    decode_consumer_status,
    encode_consumer_status,
)
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.codes import RequestCode as Code
from cometmq.wire.command import response

if TYPE_CHECKING:
    import pytest

QUEUE = MessageQueue("T", "b0", 0)


def test_connections_are_reported() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.beat("CG", "T")
            answer = await client.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="CG")
            found = bodies.decode_consumer_connections(answer.body)
            assert [(each.client_id, each.language) for each in found.connections] == [
                ("c1", "PYTHON")
            ]
            assert list(found.subscriptions) == ["T"]
            answer = await client.call(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="PG")
            assert bodies.decode_producer_connections(answer.body)[0].client_id == "c1"
            answer = await client.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="X")
            assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
            answer = await client.call(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="X")
            assert answer.code == ResponseCode.SYSTEM_ERROR

    run(scenario())


def test_a_question_is_handed_on_to_the_consumer_and_its_answer_back() -> None:
    async def scenario() -> None:
        async with running() as harness:
            consumer, asker = await harness.client(), await harness.client()
            await consumer.beat("CG", "T")
            await consumer.asked_next()  # the group changed
            fields = {"consumerGroup": "CG", "clientId": "c1"}
            asked = asyncio.create_task(asker.call(RequestCode.GET_CONSUMER_RUNNING_INFO, **fields))
            question = await consumer.asked_next()
            assert question.code == RequestCode.GET_CONSUMER_RUNNING_INFO
            assert question.ext["clientId"] == "c1"
            consumer.channel.answer(response(question.opaque, 0, body=b"{}"))
            assert (await asked).body == b"{}"
            answer = await asker.call(
                RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="CG", clientId="c9"
            )
            assert answer.code == ResponseCode.SYSTEM_ERROR

    run(scenario())


def test_a_stored_message_is_handed_to_a_consumer_to_be_handled_now() -> None:
    async def scenario() -> None:
        async with running() as harness:
            consumer, asker = await harness.client(), await harness.client()
            sent = await asker.send("T", b"now")
            await consumer.beat("CG", "T")
            await consumer.asked_next()
            fields = {"consumerGroup": "CG", "clientId": "c1", "msgId": sent.ext["msgId"]}
            asked = asyncio.create_task(asker.call(RequestCode.CONSUME_MESSAGE_DIRECTLY, **fields))
            question = await consumer.asked_next()
            assert records(question)[0].body == b"now"
            consumer.close()
            assert (await asked).code == ResponseCode.SYSTEM_ERROR

    run(scenario())


def test_the_offsets_that_consumers_hold_are_asked_of_them() -> None:
    async def scenario() -> None:
        async with running() as harness:
            one, two, admin = await harness.client(), await harness.client(), await harness.client()
            await one.beat("CG", "T", client_id="c1")
            await two.beat("CG", "T", client_id="c2")
            for client in (one, one, two):
                await client.asked_next()
            fields = {"topic": "T", "group": "CG"}
            asking = asyncio.create_task(
                admin.call(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, **fields)
            )
            question = await one.asked_next()
            assert question.code == Code.GET_CONSUMER_STATUS_FROM_CLIENT
            assert question.ext["topic"] == "T"
            body = encode_consumer_status({QUEUE: 7}, {})
            one.channel.answer(response(question.opaque, 0, body=body))
            await two.asked_next()
            two.close()
            answer = await asking
            assert decode_consumer_status(answer.body) == ({}, {"c1": {QUEUE: 7}})
            fields["group"] = "XG"
            answer = await admin.call(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, **fields)
            assert answer.code == ResponseCode.SYSTEM_ERROR

    run(scenario())


def test_producers_and_subscriptions_are_reported() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.beat("CG", "T")
            answer = await client.call(Code.GET_ALL_PRODUCER_INFO)
            (one,) = json.loads(answer.body)["data"]["PG"]
            assert (one["clientId"], one["language"]) == ("c1", "PYTHON")
            assert one["lastUpdateTimestamp"] > 1_700_000_000_000
            assert one["remoteIP"].startswith("/127.0.0.1:")
            for topic, is_subscribed in (("T", True), ("U", False)):
                fields = {"group": "CG", "topic": topic}
                answer = await client.call(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, **fields)
                found = json.loads(answer.body)
                assert (found["group"], found["topic"]) == ("CG", topic)
                assert ("subscriptionData" in found) is is_subscribed

    run(scenario())


def test_a_consumer_that_reports_no_offsets_is_left_out_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    many = {QUEUE._replace(queue_id=number): number for number in range(7_000)}
    some = dict(list(many.items())[:1_000])
    bodies_sent = {
        "broken": b"{",
        "long": encode_consumer_status(many, {}),
        "fine": encode_consumer_status(some, {}),
    }
    assert len(bodies_sent["fine"]) > LENIENT_BYTES_MAX

    async def scenario() -> None:
        async with running() as harness:
            admin, consumers = await harness.client(), {}
            for name in bodies_sent:
                consumers[name] = await harness.client()
                await consumers[name].beat("CG", "T", client_id=name)
            code = Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
            asking = asyncio.create_task(admin.call(code, topic="T", group="CG"))
            for name, client in consumers.items():
                while (asked := await client.asked_next()).is_oneway:
                    pass
                client.channel.answer(response(asked.opaque, 0, body=bodies_sent[name]))
            assert decode_consumer_status((await asking).body) == ({}, {"fine": some})

    run(scenario())
    said = [line for line in caplog.messages if "reports no offsets that can be read" in line]
    assert len(said) == 2
