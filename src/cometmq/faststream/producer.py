"""Publishes for a FastStream broker: by the client's AsyncProducer.

Owns the client's producer while the broker is connected. Java: none
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream.exceptions import IncorrectState

from cometmq.faststream.messages import (
    CometPublishCommand,
    decode_body,
    encoded,
    parse_message,
)

if TYPE_CHECKING:
    from fast_depends.library.serializer import SerializerProto
    from faststream._internal.parser import CodecProto
    from faststream._internal.types import CustomCallable

    from cometmq.client.producer.async_producer import AsyncProducer
    from cometmq.model.message import MessageExt
    from cometmq.model.results import SendResult


class StreamProducer(ProducerProto[CometPublishCommand]):
    """What FastStream publishes through."""

    def __init__(
        self, parser: CustomCallable | None = None, decoder: CustomCallable | None = None
    ) -> None:
        self.codec: CodecProto = DefaultCodec()
        self.serializer: SerializerProto | None = None
        self._client: AsyncProducer | None = None
        self._parser = ParserComposition(parser, parse_message)
        self._decoder = ParserComposition(decoder, decode_body)

    def connect(
        self,
        client: AsyncProducer,
        serializer: SerializerProto | None,
        codec: CodecProto | None,
    ) -> None:
        """Publish through this client from now on."""
        self._client, self.serializer = client, serializer
        self.codec = codec or DefaultCodec()

    def disconnect(self) -> None:
        """Publish nothing any more."""
        self._client = None

    async def publish(self, cmd: CometPublishCommand) -> SendResult:
        """Send one message, or the reply to a request, and return where it was stored."""
        message = await encoded(cmd, cmd.body, self.codec, self.serializer)
        if cmd.request_of is not None:
            return await self._running.reply(
                cmd.request_of, message.body, cmd.timeout, properties=message.properties
            )
        return await self._running.send(message, cmd.timeout)

    async def publish_batch(self, cmd: CometPublishCommand) -> list[SendResult]:
        """Send all bodies of a command in as few requests as possible."""
        messages = [
            await encoded(cmd, body, self.codec, self.serializer) for body in cmd.batch_bodies
        ]
        return await self._running.send_batch(messages, cmd.timeout) if messages else []

    async def request(self, cmd: CometPublishCommand) -> MessageExt:
        """Send one message and return the reply that its handler sends."""
        message = await encoded(cmd, cmd.body, self.codec, self.serializer)
        return await self._running.request(message, cmd.timeout)

    @property
    def _running(self) -> AsyncProducer:
        if self._client is None:
            raise IncorrectState("the broker is not connected: use it inside 'async with'")
        return self._client
