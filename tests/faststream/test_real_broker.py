"""FastStream applications on a real cluster, over sockets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from faststream.exceptions import SetupError
from pydantic import BaseModel

from bounded_runs import run, until
from cometmq import (
    Admin,
    AsyncProducer,
    ClientError,
    Message,
    PushConsumer,
    RemotingTimeout,
    SendStatus,
)
from cometmq.faststream import CometBroker, CometMessage, CometResponse, CometRouter
from faststream import AckPolicy, Context, FastStream

if TYPE_CHECKING:
    from cometmq.testing import LocalCluster

FIRST = {"consume_from": "first"}


class Order(BaseModel):
    number: int


def test_a_handler_gets_models_and_its_result_goes_to_a_topic(
    cometmq_cluster: LocalCluster, topic: str
) -> None:
    broker = CometBroker(cometmq_cluster.namesrv, group=f"app-{topic}")
    seen: list[Any] = []

    @broker.subscriber(topic, **FIRST)
    @broker.publisher(f"{topic}-out", headers={"step": "booked"})
    async def book(order: Order, message: CometMessage = Context()) -> Any:
        seen.append((order, message.headers["who"], message.raw_message.tags))
        return CometResponse({"booked": order.number}, keys=["K"], sharding_key="s")

    @broker.subscriber(f"{topic}-out", **FIRST)
    async def note(body: dict[str, int], message: CometMessage = Context()) -> None:
        seen.append((body, message.headers["step"], message.raw_message.keys))
        seen.append(message.correlation_id)

    async def scenario() -> None:
        async with broker:
            assert await broker.ping(5.0)
            await broker.start()
            sent = await broker.publish(
                Order(number=7), topic, headers={"who": "me"}, tags="A", correlation_id="c-1"
            )
            assert sent.status is SendStatus.SEND_OK
            await until(lambda: len(seen) == 3)

    run(scenario())
    assert seen == [(Order(number=7), "me", "A"), ({"booked": 7}, "booked", ["K"]), "c-1"]


@pytest.mark.parametrize(
    ("policy", "calls", "letters"),
    [
        (AckPolicy.NACK_ON_ERROR, 2, 0),
        (AckPolicy.REJECT_ON_ERROR, 1, 1),
        (AckPolicy.ACK, 1, 0),
        (AckPolicy.ACK_FIRST, 1, 0),
    ],
)
def test_a_policy_says_what_becomes_of_a_failure(
    cometmq_cluster: LocalCluster, topic: str, policy: AckPolicy, calls: int, letters: int
) -> None:
    group, seen = f"g-{topic}", list[str]()
    broker = CometBroker(cometmq_cluster.namesrv, logger=None)

    @broker.subscriber(topic, group=group, ack_policy=policy, order="queue", suspend_ms=10, **FIRST)
    async def handle(text: str) -> None:
        seen.append(text)
        if text == "bad" and seen.count("bad") == 1:
            raise ZeroDivisionError

    async def scenario() -> None:
        async with broker:
            await broker.start()
            await broker.publish("bad", topic)
            await broker.publish("good", topic)
            await until(lambda: "good" in seen)

    run(scenario())
    assert seen == ["bad"] * calls + ["good"]
    with Admin(namesrv=cometmq_cluster.namesrv) as admin:
        known = f"%DLQ%{group}" in admin.topics()
        stored = admin.topic_stats(f"%DLQ%{group}").values() if known else ()
    assert sum(one.max_offset for one in stored) == letters


def test_a_message_that_nobody_acknowledged_comes_again(
    cometmq_cluster: LocalCluster, topic: str
) -> None:
    broker, seen = CometBroker(cometmq_cluster.namesrv, logger=None), list[int]()

    @broker.subscriber(
        topic, group=f"g-{topic}", ack_policy=AckPolicy.MANUAL, order="queue", suspend_ms=10,
        **FIRST,
    )  # fmt: skip
    async def handle(number: int, message: CometMessage = Context()) -> None:
        seen.append(number)
        if len(seen) == 2:
            await message.nack()
        elif len(seen) > 2:
            await message.ack()

    async def scenario() -> None:
        async with broker:
            await broker.start()
            await broker.publish(1, topic)
            await broker.publish(2, topic)
            await until(lambda: 2 in seen)

    run(scenario())
    assert seen == [1, 1, 1, 2]


def test_a_request_gets_what_the_handler_returns(cometmq_cluster: LocalCluster, topic: str) -> None:
    broker = CometBroker(cometmq_cluster.namesrv, group=f"app-{topic}")

    @broker.subscriber(topic, **FIRST)
    async def double(number: int) -> int:
        return 2 * number

    async def scenario() -> None:
        async with broker:
            await broker.start()
            reply = await broker.request(21, topic, timeout=20.0, correlation_id="asked")
            assert await reply.decode() == 42
            assert reply.content_type == "application/json"
            with pytest.raises(RemotingTimeout):
                await broker.request(1, f"{topic}-out", timeout=0.5)

    run(scenario())


def test_batches_come_as_lists_and_leave_in_few_requests(
    cometmq_cluster: LocalCluster, topic: str
) -> None:
    broker, batches = CometBroker(cometmq_cluster.namesrv, group=f"app-{topic}"), list[list[int]]()

    @broker.subscriber(topic, batch=True, order="queue", **FIRST)
    async def handle(numbers: list[int]) -> None:
        batches.append(numbers)

    async def scenario() -> None:
        async with broker:
            sent = await broker.publish_batch(1, 2, 3, topic=topic, sharding_key="k")
            assert [one.queue_offset for one in sent] == [0, 1, 2]
            await broker.start()
            await until(lambda: sum(map(len, batches)) == 3)

    run(scenario())
    assert [number for batch in batches for number in batch] == [1, 2, 3]


def test_other_clients_send_to_handlers_and_read_what_is_published(
    cometmq_cluster: LocalCluster, topic: str
) -> None:
    broker, seen = CometBroker(cometmq_cluster.namesrv, group=f"app-{topic}"), list[Any]()
    router = CometRouter(prefix="topic-")

    @router.subscriber(topic.removeprefix("topic-"), expression="A || B", **FIRST)
    async def handle(body: Any) -> None:
        seen.append(body)

    broker.include_router(router)

    async def scenario() -> None:
        async with broker, AsyncProducer("plain", namesrv=cometmq_cluster.namesrv) as producer:
            await broker.start()
            for body, tag in ((b'{"a":1}', "A"), (b"no json", "B"), (b"left out", "C")):
                await producer.send(Message(topic, body, tags=tag))
            await broker.publish(None, topic, tags="A")  # RocketMQ has no empty bodies
            await until(lambda: len(seen) == 3)

    run(scenario())
    assert sorted(map(repr, seen)) == sorted(map(repr, ({"a": 1}, b"no json", b"")))


def test_one_group_subscribes_to_one_thing(cometmq_cluster: LocalCluster, topic: str) -> None:
    broker = CometBroker(cometmq_cluster.namesrv)
    for name in (topic, f"{topic}-out"):
        broker.subscriber(name, group="one")(lambda body: None)

    async def scenario() -> None:
        with pytest.raises(SetupError, match="all members of a group must subscribe to the same"):
            await broker.start()
        await broker.stop()
        async with broker:
            with pytest.raises(ClientError, match="published to no topic: say topic="):
                await broker.publish("x")

    run(scenario())


def test_a_stop_finishes_what_is_in_hand(cometmq_cluster: LocalCluster, topic: str) -> None:
    group, begun, done = f"g-{topic}", asyncio.Event(), list[str]()
    broker = CometBroker(cometmq_cluster.namesrv)
    app = FastStream(broker)

    @broker.subscriber(topic, group=group, **FIRST)
    async def slow(text: str) -> None:
        begun.set()
        await asyncio.sleep(0.5)
        done.append(text)

    async def scenario() -> None:
        running = asyncio.create_task(app.run())
        await until(lambda: broker.running)
        await broker.publish("x", topic)
        await begun.wait()
        app.exit()
        await running

    run(scenario())
    assert done == ["x"]
    with Admin(namesrv=cometmq_cluster.namesrv) as admin:
        assert [one.lag for one in admin.group_lag(group) if one.queue.topic == topic] == [0]
    again: list[Any] = []
    consumer = PushConsumer(group, namesrv=cometmq_cluster.namesrv)
    consumer.subscribe(topic, "*", again.extend)
    with consumer:
        consumer.wait(0.5)
    assert again == []
