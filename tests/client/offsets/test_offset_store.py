"""Where a group without an offset starts: before the first message that it could miss."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from client.scripted_broker import TOPIC, ScriptedBroker
from client.short_delay_cluster import until
from cometmq import AsyncAdmin, AsyncProducer, AsyncPushConsumer, Message, PushConsumer
from cometmq.testing.cluster import InProcessCluster
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import response
from cometmq.wire.headers.offset import OffsetResponseHeader
from cometmq.wire.headers.pull import PullMessageRequestHeader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cometmq import MessageExt
    from cometmq.wire.command import Command

STARTS = 50


def test_no_group_misses_messages_that_arrive_while_it_starts(tmp_path: Path) -> None:
    """Each group starts amid the first sends to its topic, each a little later than the last."""
    handled: dict[str, list[bytes]] = {f"T{number}": [] for number in range(STARTS)}
    bodies = [b"%d" % number for number in range(8)]

    def handle(messages: Sequence[MessageExt]) -> None:
        for message in messages:
            handled[message.topic].append(message.body)

    async def send(producer: AsyncProducer, topic: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        for body in bodies:
            await producer.send(Message(topic, body))
            await asyncio.sleep(0.000_5)

    async def start(namesrv: str, topic: str) -> AsyncPushConsumer:
        consumer = AsyncPushConsumer(f"group-{topic}", namesrv=namesrv)
        consumer.subscribe(topic, "*", handle)
        await consumer.start()
        return consumer

    async def scenario() -> None:
        async with (
            InProcessCluster(tmp_path) as cluster,
            AsyncAdmin(namesrv=cluster.namesrv) as admin,
            AsyncProducer("source", namesrv=cluster.namesrv) as producer,
        ):
            await asyncio.gather(*(admin.create_topic(topic, 1) for topic in handled))
            for at in range(0, STARTS, 10):
                topics = [f"T{number}" for number in range(at, at + 10)]
                consumers = await asyncio.gather(
                    *(start(cluster.namesrv, topic) for topic in topics),
                    *(send(producer, topic, number * 0.003) for number, topic in enumerate(topics)),
                )
                async with asyncio.timeout(10):
                    while any(len(handled[topic]) < len(bodies) for topic in topics):
                        await asyncio.sleep(0.01)
                await asyncio.gather(*(one.stop() for one in consumers if one is not None))

    asyncio.run(scenario())
    assert {topic: sorted(found) for topic, found in handled.items()} == dict.fromkeys(
        handled, bodies
    )


def test_a_broker_that_knows_no_start_in_an_empty_queue_is_asked_twice(
    scripted_broker: ScriptedBroker,
) -> None:
    """Apache's: 'not found' while the queue is empty, 0 once its first message has come."""
    asked: list[int] = []

    def offset(command: Command) -> Command:
        asked.append(command.code)
        if len(asked) == 1:
            return response(command.opaque, ResponseCode.QUERY_NOT_FOUND)
        found = 3 if command.code == RequestCode.GET_MAX_OFFSET else 0
        return response(command.opaque, 0, header=OffsetResponseHeader(offset=found))

    for code in (RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.GET_MAX_OFFSET):
        scripted_broker.answers[code] = offset
    scripted_broker.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = scripted_broker.consumer_list
    consumer = PushConsumer("new", namesrv=scripted_broker.addr)
    consumer.subscribe(TOPIC, "*", lambda _messages: None)
    with consumer:
        until(lambda: scripted_broker.requests(RequestCode.PULL_MESSAGE))
        pulls = [
            PullMessageRequestHeader.decode(pull.ext)
            for pull in scripted_broker.requests(RequestCode.PULL_MESSAGE)
        ]
    assert [pull.queue_offset for pull in pulls if pull.topic == TOPIC] == [0]
    assert RequestCode.GET_MAX_OFFSET in asked
