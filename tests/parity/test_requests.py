"""Requests and their replies, on our broker and on Apache RocketMQ's: one sentence a test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from cometmq import (
    AsyncProducer,
    AsyncPushConsumer,
    BrokerError,
    ConsumeFrom,
    InvalidMessage,
    Message,
    MessageExt,
    Producer,
    RemotingTimeout,
)
from parity.clients import Seen, consumer, send

if TYPE_CHECKING:
    from parity.conftest import Cluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]
Answering = Callable[[Callable[[MessageExt], bytes | None]], Producer]


@pytest.fixture
def answering(cluster: Cluster, topic: str, group: str) -> Iterator[Answering]:
    """Starts a consumer that replies with what a function of the request gives."""
    with ExitStack() as started:
        replier = started.enter_context(Producer(f"{group}-replies", namesrv=cluster.namesrv))

        def start(answer: Callable[[MessageExt], bytes | None]) -> Producer:
            def handle(messages: Sequence[MessageExt]) -> None:
                for message in messages:
                    body = answer(message)
                    if body is not None:
                        replier.reply(message, body)

            started.enter_context(consumer(cluster, group, topic, handle))
            return replier

        yield start


def test_a_request_gets_its_reply(cluster: Cluster, topic: str, answering: Answering) -> None:
    answering(lambda message: b"re: " + message.body)
    with Producer("askers", namesrv=cluster.namesrv) as asker:
        for n in range(5):
            reply = asker.request(Message(topic, b"%d" % n, keys="k"), timeout_s=60)
            assert reply.body == b"re: %d" % n


def test_requests_side_by_side_get_their_own_replies(
    cluster: Cluster, topic: str, answering: Answering
) -> None:
    answering(lambda message: b"re: " + message.body)

    async def scenario() -> list[bytes]:
        async with AsyncProducer("askers", namesrv=cluster.namesrv) as asker:
            messages = [Message(topic, b"%d" % n) for n in range(30)]
            replies = await asyncio.gather(*(asker.request(one, 60.0) for one in messages))
            return [reply.body for reply in replies]

    assert asyncio.run(scenario()) == [b"re: %d" % n for n in range(30)]


def test_an_async_handler_replies(cluster: Cluster, topic: str, group: str) -> None:
    async def scenario() -> bytes:
        replier = AsyncProducer("repliers", namesrv=cluster.namesrv)

        async def handle(messages: Sequence[MessageExt]) -> None:
            for message in messages:
                await replier.reply(message, message.body[::-1])

        member = AsyncPushConsumer(
            group, namesrv=cluster.namesrv, consume_from=ConsumeFrom.FIRST, rebalance_s=1.0
        )
        member.subscribe(topic, "*", handle)
        asker = AsyncProducer("askers", namesrv=cluster.namesrv)
        async with replier, member, asker:
            return (await asker.request(Message(topic, b"abc"), 60.0)).body

    assert asyncio.run(scenario()) == b"cba"


def test_a_large_reply_comes_back_whole(cluster: Cluster, topic: str, answering: Answering) -> None:
    body = b"x" * 100_000
    answering(lambda message: body)
    with Producer("askers", namesrv=cluster.namesrv) as asker:
        assert asker.request(Message(topic, b"?"), timeout_s=60).body == body


def test_a_request_that_nobody_answers_ends_at_its_time(
    cluster: Cluster, topic: str, answering: Answering
) -> None:
    answering(lambda message: None)
    with Producer("askers", namesrv=cluster.namesrv) as asker:
        began = time.monotonic()
        with pytest.raises(RemotingTimeout):
            asker.request(Message(topic, b"?"), timeout_s=1.0)
        assert 0.9 < time.monotonic() - began < 5


def test_only_a_request_can_be_answered(cluster: Cluster, topic: str, group: str) -> None:
    send(cluster, topic, [1])
    seen = Seen()
    with consumer(cluster, group, topic, seen), Producer("x", namesrv=cluster.namesrv) as replier:
        seen.wait(1)
        with pytest.raises(InvalidMessage):
            replier.reply(seen.messages[0], b"?")


def test_a_reply_to_a_client_that_is_gone_is_refused(
    cluster: Cluster, topic: str, group: str
) -> None:
    seen = Seen()
    with (
        Producer("askers", namesrv=cluster.namesrv) as asker,
        pytest.raises(RemotingTimeout),
    ):
        asker.request(Message(topic, b"1"), timeout_s=5.0)
    with consumer(cluster, group, topic, seen), Producer("x", namesrv=cluster.namesrv) as replier:
        seen.wait(1)
        with pytest.raises(BrokerError):
            replier.reply(seen.messages[0], b"?")
