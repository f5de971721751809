"""FastStream applications that stop, start again, fork, or are given what is refused."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from faststream.exceptions import StopConsume

from bounded_runs import run, until
from cometmq import InvalidMessage
from cometmq.faststream import CometBroker, CometMessage
from faststream import AckPolicy, Context

if TYPE_CHECKING:
    from cometmq.testing import LocalCluster

FIRST = {"consume_from": "first"}


def test_what_no_handler_has_seen_is_not_acknowledged_first(
    cometmq_cluster: LocalCluster, topic: str
) -> None:
    seen: list[int] = []

    def subscribe() -> CometBroker:
        broker = CometBroker(cometmq_cluster.namesrv, logger=None)

        @broker.subscriber(
            topic, group=f"g-{topic}", ack_policy=AckPolicy.ACK_FIRST, max_workers=4, **FIRST
        )
        async def handle(number: int) -> None:
            seen.append(number)
            if len(seen) == 10:
                raise StopConsume

        return broker

    async def scenario() -> None:
        first, second = subscribe(), subscribe()
        async with first:
            await first.publish_batch(*range(200), topic=topic)
            await first.start()
            (subscriber,) = first.subscribers
            await until(lambda: not subscriber.running)
        async with second:
            await second.start()
            await until(lambda: len(set(seen)) == 200)

    run(scenario())


def test_graceful_timeout_bounds_a_stop(cometmq_cluster: LocalCluster, topic: str) -> None:
    broker, begun, ended = (
        CometBroker(cometmq_cluster.namesrv, graceful_timeout=0.2),
        list[str](),
        [],
    )

    @broker.subscriber(topic, group=f"g-{topic}", **FIRST)
    async def endless(text: str) -> None:
        begun.append(text)
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(text)

    async def scenario() -> None:
        async with broker:
            await broker.start()
            await broker.publish("x", topic)
            await until(lambda: begun)
        assert ended == ["x"]

    run(scenario())


def test_clients_have_ids_that_no_forked_process_has(
    cometmq_cluster: LocalCluster, topic: str
) -> None:
    broker, ids = CometBroker(cometmq_cluster.namesrv), list[str]()
    broker.subscriber(topic, group=f"g-{topic}")(lambda body: None)

    async def scenario() -> None:
        for _ in range(2):  # as two processes would that were forked with this object
            async with broker:
                await broker.start()
                (subscriber,) = broker.subscribers
                ids.append(subscriber.client_id)

    run(scenario())
    assert len(set(ids)) == 2
    assert all("faststream-" in one for one in ids)


def test_a_second_start_changes_nothing(cometmq_cluster: LocalCluster, topic: str) -> None:
    broker, seen = CometBroker(cometmq_cluster.namesrv), list[int]()

    @broker.subscriber(topic, group=f"g-{topic}", **FIRST)
    async def note(number: int) -> None:
        seen.append(number)

    async def scenario() -> None:
        before = asyncio.all_tasks()
        async with broker:
            await broker.start()
            await broker.start()
            await broker.publish_batch(*range(20), topic=topic)
            await until(lambda: len(seen) >= 20)
        await until(lambda: asyncio.all_tasks() == before)

    run(scenario())
    assert sorted(seen) == list(range(20))


def test_polls_at_once_share_one_member(cometmq_cluster: LocalCluster, topic: str) -> None:
    broker = CometBroker(cometmq_cluster.namesrv)
    subscriber = broker.subscriber(topic, group=f"g-{topic}", **FIRST)

    async def scenario() -> None:
        before = asyncio.all_tasks()
        async with broker:
            await broker.start()
            await broker.publish_batch(*range(4), topic=topic)
            found = await asyncio.gather(*(subscriber.get_one(timeout=30.0) for _ in range(4)))
            assert sorted(int(one.body) for one in found if one is not None) == [0, 1, 2, 3]
        await until(lambda: asyncio.all_tasks() == before)

    run(scenario())


def test_secrets_are_in_no_repr(caplog: pytest.LogCaptureFixture) -> None:
    keys = {"access_key": "me", "secret_key": "SECRET", "security_token": "TOKEN"}
    broker = CometBroker("names:9876", client_settings=keys)
    broker.subscriber("orders")(lambda body: None)
    with caplog.at_level(logging.DEBUG):
        shown = repr((broker, broker.config, vars(broker), list(broker.subscribers)))
    assert "SECRET" not in shown + caplog.text
    assert "TOKEN" not in shown + caplog.text


def test_options_of_a_call_come_before_those_of_its_publisher(
    cometmq_cluster: LocalCluster, topic: str
) -> None:
    broker, seen = CometBroker(cometmq_cluster.namesrv), list[Any]()
    later = broker.publisher(topic, delay_level=18, tags="A", headers={"a": "1"})

    @broker.subscriber(topic, group=f"g-{topic}", **FIRST)
    async def note(text: str, message: CometMessage = Context()) -> None:
        raw = message.raw_message
        seen.append((text, raw.tags, message.headers.get("a"), message.headers.get("b")))

    async def scenario() -> None:
        async with broker:
            await broker.start()
            await later.publish(
                "x",
                deliver_after=timedelta(seconds=1),
                headers={"b": None},  # type: ignore[dict-item]
            )
            await until(lambda: seen)
            for name in ("KEYS", "UNIQ_KEY"):
                with pytest.raises(InvalidMessage, match=name):
                    await broker.publish("x", topic, headers={name: "k"})

    run(scenario())
    assert seen == [("x", "A", "1", None)]
