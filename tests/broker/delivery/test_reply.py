"""Request and reply through the broker: the reply is pushed to who asked, stored, and confirmed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.commands import Client, properties_of, send_header
from broker.delivery.transaction_commands import produce
from broker.harness import run, running
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import Command, response
from cometmq.wire.headers.send import ReplyMessageRequestHeader, SendMessageRequestHeader

TOPIC = "DefaultCluster_REPLY_TOPIC"
ASKS = {"CORRELATION_ID": "c-1", "REPLY_TO_CLIENT": "asker", "TTL": "3000", "MSG_TYPE": "reply"}


async def reply_to(client: Client, code: int = 325, **more: Any) -> Command:
    pairs = more.pop("properties", ASKS)
    header = send_header(TOPIC, properties=pairs, **more)
    if code == RequestCode.SEND_REPLY_MESSAGE:
        fields = {name: getattr(header, name) for name in SendMessageRequestHeader.__slots__}
        return await client.call(code, SendMessageRequestHeader(**fields), b"the answer")
    return await client.call(code, header, b"the answer")


async def answered(asker: Client, answerer: Client, *, code: int = 0, **more: Any) -> Any:
    """Reply, take the push with the code, and give the push and the broker's answer."""
    reply = asyncio.create_task(reply_to(answerer, **more))
    pushed = await asker.asked_next()
    asker.channel.answer(_taken(pushed, code))
    return pushed, await reply


def _taken(pushed: Command, code: int) -> Command:
    return response(pushed.opaque, code)


@pytest.mark.parametrize("code", [324, 325])
def test_a_reply_reaches_the_client_that_waits_and_is_kept(code: int) -> None:
    async def scenario() -> None:
        async with running() as harness:
            asker, answerer = await harness.client(), await harness.client()
            await produce(asker, "asker")
            task = asyncio.create_task(reply_to(answerer, code, flag=5, queue_id=-1))
            pushed = await asker.asked_next()
            assert (pushed.code, pushed.is_oneway) == (326, False)
            assert pushed.body == b"the answer"
            header = ReplyMessageRequestHeader.decode(pushed.ext)
            assert (header.topic, header.producer_group, header.flag) == (TOPIC, "PG", 5)
            assert header.store_host == harness.broker.address
            assert header.born_host.startswith("127.0.0.1:")
            for key, value in {**ASKS, "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}.items():
                assert f"{key}\x01{value}\x02" in (header.properties or "")
            assert "PUSH_REPLY_TIME\x01" in (header.properties or "")
            asker.channel.answer(_taken(pushed, 0))
            answer = await task
            assert answer.code == 0
            (kept,) = await answerer.drain(TOPIC)
            assert (kept.body, kept.flag) == (b"the answer", 5)
            assert properties_of(kept)["CORRELATION_ID"] == "c-1"
            assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("0", "0")
            assert len(answer.ext["msgId"]) == 32
            assert answer.ext["MSG_REGION"] == "DefaultRegion"

    run(scenario())


def test_a_reply_may_be_pushed_without_being_kept() -> None:
    async def scenario() -> None:
        async with running(store_reply_message_enable=False) as harness:
            asker, answerer = await harness.client(), await harness.client()
            await produce(asker, "asker")
            _, answer = await answered(asker, answerer)
            assert (answer.code, answer.ext["msgId"], answer.ext["queueOffset"]) == (0, "0", "0")
            assert await answerer.drain(TOPIC) == []

    run(scenario())


def test_a_reply_that_the_client_refuses_has_failed_but_is_kept() -> None:
    async def scenario() -> None:
        async with running() as harness:
            asker, answerer = await harness.client(), await harness.client()
            await produce(asker, "asker")
            _, answer = await answered(asker, answerer, code=1)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "asker" in (answer.remark or "")
            assert len(await answerer.drain(TOPIC)) == 1

    run(scenario())


@pytest.mark.parametrize(
    "pairs", [{"CORRELATION_ID": "c"}, {"REPLY_TO_CLIENT": "nobody", "CORRELATION_ID": "c"}]
)
def test_a_reply_to_nobody_fails_and_is_kept(pairs: dict[str, str]) -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await produce(client, "asker")
            answer = await reply_to(client, properties=pairs)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("0", "0")
            assert len(await client.drain(TOPIC)) == 1

    run(scenario())


def test_a_client_that_left_gets_no_reply() -> None:
    async def scenario() -> None:
        async with running() as harness:
            asker, answerer = await harness.client(), await harness.client()
            await produce(asker, "asker")
            task = asyncio.create_task(reply_to(answerer))
            await asker.asked_next()
            asker.close()
            assert (await task).code == ResponseCode.SYSTEM_ERROR
            again = await reply_to(answerer)
            assert again.code == ResponseCode.SYSTEM_ERROR
            assert harness.broker.state.clients.find_producer("asker") is None

    run(scenario())


def test_a_client_that_came_back_gets_the_reply_on_its_new_connection() -> None:
    async def scenario() -> None:
        async with running() as harness:
            old, new, answerer = [await harness.client() for _ in range(3)]
            await produce(old, "asker")
            await produce(new, "asker")
            old.close()
            _, answer = await answered(new, answerer)
            assert answer.code == 0

    run(scenario())


def test_a_reply_is_checked_like_a_send() -> None:
    async def scenario() -> None:
        async with running(auto_create_topic_enable=False) as harness:
            client = await harness.client()
            codes = [
                (await client.call(325, send_header(topic), b"x")).code
                for topic in ("unknown", "SCHEDULE_TOPIC_XXXX", "bad name")
            ]
            assert codes == [
                ResponseCode.TOPIC_NOT_EXIST,
                ResponseCode.NO_PERMISSION,
                ResponseCode.INVALID_PARAMETER,
            ]

    run(scenario())
