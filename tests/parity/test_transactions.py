"""Transactions and requests, on our broker and on Apache RocketMQ's: one sentence a test."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from client.short_delay_cluster import until
from cometmq import (
    AsyncProducer,
    ClientError,
    InvalidMessage,
    Message,
    Producer,
    TransactionState,
)
from parity.clients import Seen, consumer, stored

if TYPE_CHECKING:
    from parity.conftest import Cluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


def visible(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    """The bodies that can be read, once there are so many and a moment later.

    A broker that asks while the end is on its way may make a message visible twice, under one id.
    """
    stored(cluster, topic, count)
    time.sleep(0.5)
    found = {message.msg_id: message.body for message in stored(cluster, topic, count)}
    return sorted(found.values())


def test_a_block_commits_at_its_end_and_rolls_back_when_it_raises(
    cluster: Cluster, topic: str, group: str
) -> None:
    with Producer(group, namesrv=cluster.namesrv) as producer:
        with producer.transaction() as tx:
            sent = tx.send(Message(topic, b"one", tags="t", keys="k", properties={"p": "v"}))
            tx.send(Message(topic, b"two"))
            assert stored(cluster, topic, 0) == [], "nobody reads a half message"
        with pytest.raises(ZeroDivisionError), producer.transaction() as tx:
            assert not tx.send(Message(topic, b"never")).queue_offset / 0
        with producer.transaction() as tx:
            tx.send(Message(topic, b"not this one"))
            tx.end(False)
            with pytest.raises(ClientError, match="ended"):
                tx.send(Message(topic, b"too late"))
    assert visible(cluster, topic, 2) == [b"one", b"two"]
    one = next(message for message in stored(cluster, topic, 2) if message.body == b"one")
    assert (one.msg_id, one.tags, one.keys) == (sent.msg_id, "t", ["k"])
    assert one.properties["p"] == "v"


def test_a_block_on_asyncio_does_the_same(cluster: Cluster, topic: str, group: str) -> None:
    async def scenario() -> None:
        async with AsyncProducer(group, namesrv=cluster.namesrv) as producer:
            async with producer.transaction() as tx:
                await tx.send(Message(topic, b"one", sharding_key="key"))
                await tx.send(Message(topic, b"two", sharding_key="key"))
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction() as tx:
                    assert not (await tx.send(Message(topic, b"never"))).queue_offset / 0

    asyncio.run(scenario())
    assert visible(cluster, topic, 2) == [b"one", b"two"]
    assert len({message.queue_id for message in stored(cluster, topic, 2)}) == 1


def test_a_transaction_with_a_listener_ends_as_the_local_transaction_says(
    cluster: Cluster, topic: str, group: str
) -> None:
    with Producer(group, namesrv=cluster.namesrv, check=lambda half: False) as producer:
        ends = [
            producer.send_in_transaction(Message(topic, body), lambda half, v=verdict: v).state
            for body, verdict in ((b"yes", True), (b"no", False), (b"later", None))
        ]
        with pytest.raises(KeyError):
            producer.send_in_transaction(Message(topic, b"raised"), lambda half: {}["x"])
    assert ends == [TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN]
    assert visible(cluster, topic, 1) == [b"yes"]


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_broker_checks_back_on_open_transactions(
    cluster: Cluster, topic: str, group: str, kind: str
) -> None:
    asked = []

    def check(half: Message) -> bool:
        asked.append((half.body, half.topic, half.tags))
        return half.body == b"later yes"

    async def ask(half: Message) -> bool:
        await asyncio.sleep(0)
        return check(half)

    judge = ask if kind == "async" else check
    with Producer(group, namesrv=cluster.namesrv, check=judge) as producer:
        for body in (b"later yes", b"later no"):
            with producer.transaction() as tx:
                tx.send(Message(topic, body, tags="t"))
                tx.end(None)
        until(lambda: len(asked) >= 2, 60)
        assert visible(cluster, topic, 1) == [b"later yes"]
    assert set(asked) == {(b"later yes", topic, "t"), (b"later no", topic, "t")}


def test_a_block_that_is_still_open_is_left_alone(cluster: Cluster, topic: str, group: str) -> None:
    asked = []

    def check(half: Message) -> bool:
        asked.append(half.body)
        return False

    with (
        Producer(group, namesrv=cluster.namesrv, check=check) as producer,
        producer.transaction() as tx,
    ):
        tx.send(Message(topic, b"slow"))
        time.sleep(10 if cluster.name == "apache" else 2)  # it is asked about meanwhile
    assert visible(cluster, topic, 1) == [b"slow"]
    assert asked == []


def test_another_member_is_asked_when_the_one_that_sent_is_gone(
    cluster: Cluster, topic: str, group: str
) -> None:
    with Producer(group, namesrv=cluster.namesrv) as gone, gone.transaction() as tx:
        tx.send(Message(topic, b"left behind"))
        tx.end(None)
    options = {"namesrv": cluster.namesrv, "heartbeat_s": 1.0}
    with Producer(group, check=lambda half: True, **options) as heir:
        heir.queues(topic)  # it must be known at the broker to be asked
        assert visible(cluster, topic, 1) == [b"left behind"]


def test_half_messages_have_neither_delay_nor_batch(
    cluster: Cluster, topic: str, group: str
) -> None:
    with (
        Producer(group, namesrv=cluster.namesrv) as producer,
        pytest.raises(InvalidMessage, match="delay"),
        producer.transaction() as tx,
    ):
        tx.send(Message(topic, b"x", delay_level=1))


def test_a_consumer_gets_committed_messages_only(cluster: Cluster, topic: str, group: str) -> None:
    seen = Seen()
    with (
        consumer(cluster, group, topic, seen),
        Producer(group, namesrv=cluster.namesrv) as producer,
    ):
        for n in range(10):
            with producer.transaction() as tx:
                tx.send(Message(topic, b"%d" % n))
                tx.end(n % 2 == 0)
        until(lambda: len(set(seen.numbers)) == 5, 60)
        time.sleep(0.5)
    assert sorted(set(seen.numbers)) == [0, 2, 4, 6, 8]
