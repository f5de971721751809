"""TestCometBroker: a FastStream application without servers, for its tests.

What is published goes straight to the subscribers of the topic, one of each group. Java: none
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import AsyncMock

import anyio
from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import DefaultCodec
from faststream._internal.testing.broker import EnterType, TestBroker, change_producer
from faststream.exceptions import SubscriberNotFound

from cometmq.client.producer.async_producer import AsyncProducer
from cometmq.faststream.broker import CometBroker
from cometmq.faststream.messages import (
    CometPublishCommand,
    decode_body,
    encoded,
    parse_message,
)
from cometmq.faststream.producer import StreamProducer
from cometmq.model.message import Message, MessageExt, Property
from cometmq.model.queue import MessageQueue
from cometmq.model.results import SendResult, SendStatus
from cometmq.wire.records import properties as property_bytes

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from cometmq.faststream.publisher import StreamPublisher
    from cometmq.faststream.subscriber import CometSubscriber

_HOST = b"\x7f\0\0\1\0\0\0\0"


class TestCometBroker(TestBroker[CometBroker, EnterType], broker=CometBroker):
    """`async with TestCometBroker(broker):` runs the application in memory.

    With `with_real=True` it is the real broker, and handlers keep their mocks. Tags decide who gets
    a message, other conditions are taken to hold; orders, delays and retries are not played: the
    test kit's clusters have those (`cometmq.testing`).
    """

    def create_publisher_fake_subscriber(
        self, broker: CometBroker, publisher: StreamPublisher
    ) -> tuple[CometSubscriber, bool]:
        """The subscriber whose mock sees what a publisher publishes."""
        for one in _subscribers(self.brokers):
            if one.topic == publisher.topic:
                return one, True
        return broker.subscriber(publisher.topic, persistent=False), False

    @contextmanager
    def _patch_producer(self, broker: CometBroker) -> Generator[None, None, None]:
        with change_producer(broker.config.broker_config, MemoryProducer(broker, self.brokers)):
            yield

    async def _fake_connect(  # type: ignore[override]
        self, broker: CometBroker, *args: Any, **kwargs: Any
    ) -> AsyncMock:
        del broker, args, kwargs
        return AsyncMock(spec=AsyncProducer)


class MemoryProducer(StreamProducer):
    """Hands what is published to subscribers."""

    def __init__(self, broker: CometBroker, brokers: Sequence[CometBroker]) -> None:
        self._broker, self._brokers = broker, brokers
        self._offset = 0
        self._parser = ParserComposition(broker._parser, parse_message)
        self._decoder = ParserComposition(broker._decoder, decode_body)
        self.codec = broker.config.broker_codec or DefaultCodec()

    async def publish(self, cmd: CometPublishCommand) -> SendResult:
        """Have one subscriber of each group process the message."""
        received = await self._received(cmd, cmd.body)
        for one in self._takers(received):
            await one.process_message((received,) if one.is_batch else received)
        return self._result(received)

    async def publish_batch(self, cmd: CometPublishCommand) -> list[SendResult]:
        """The same with several, which a subscriber of batches gets as one."""
        found = [await self._received(cmd, body) for body in cmd.batch_bodies]
        for one in self._takers(found[0]) if found else ():
            if one.is_batch:
                await one.process_message(tuple(found))
            else:
                for received in found:
                    await one.process_message(received)
        return [self._result(received) for received in found]

    async def request(self, cmd: CometPublishCommand) -> MessageExt:
        """What the first subscriber returns. Raises SubscriberNotFound where there is none."""
        received = await self._received(cmd, cmd.body)
        for one in self._takers(received):
            with anyio.fail_after(cmd.timeout):
                response = await one.process_message((received,) if one.is_batch else received)
            answer = CometPublishCommand(
                response.body,
                topic=cmd.destination,
                headers=response.headers,
                correlation_id=response.correlation_id,
                _publish_type=cmd.publish_type,
            )
            return await self._received(answer, answer.body)
        raise SubscriberNotFound

    def _takers(self, received: MessageExt) -> Iterable[CometSubscriber]:
        """One subscriber of each group that takes the message."""
        groups: set[str] = set()
        for one in _subscribers(self._brokers):
            if one.topic == received.topic and one.group not in groups and one.takes(received.tags):
                groups.add(one.group)
                yield one

    async def _received(self, cmd: CometPublishCommand, body: Any) -> MessageExt:
        serializer = self._broker.config.fd_config._serializer
        message = await encoded(cmd, body, self.codec, serializer)
        self._offset += 1
        return received_from(message, self._offset)

    def _result(self, received: MessageExt) -> SendResult:
        return SendResult(
            SendStatus.SEND_OK,
            received.msg_id,
            MessageQueue(received.topic, "memory", 0),
            received.queue_offset,
            received.offset_msg_id,
            None,
            "DefaultRegion",
            True,
            None,
        )


def received_from(message: Message, offset: int) -> MessageExt:
    """A message as a consumer would get it."""
    named = {
        Property.UNIQ_KEY: f"{offset:032X}",
        Property.KEYS: message.keys,
        Property.TAGS: message.tags,
        Property.SHARDING_KEY: message.sharding_key,
    }
    pairs = {name: value for name, value in named.items() if value}
    raw = property_bytes.encode({**(message.properties or {}), **pairs})
    return MessageExt(
        message.topic, 0, offset, message.body, raw, 0, message.flag, 0, 0, 0, _HOST, 0, _HOST, 0,
        "memory",
    )  # fmt: skip


def _subscribers(brokers: Iterable[CometBroker]) -> list[CometSubscriber]:
    """In the order in which they were declared."""
    found = [cast("CometSubscriber", one) for broker in brokers for one in broker.subscribers]
    return sorted(found, key=lambda one: one.number)
