"""A publisher of FastStream: a topic, and how messages are sent to it.

Java: none
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from faststream._internal.configs import PublisherSpecificationConfig, PublisherUsecaseConfig
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream.response.publish_type import PublishType
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message as MessageSchema
from faststream.specification.schema import Operation, PublisherSpec

from cometmq.faststream.config import StreamBrokerConfig
from cometmq.faststream.messages import CometPublishCommand, PublishOptions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from faststream._internal.basic_types import SendableMessage
    from faststream._internal.types import PublisherMiddleware
    from faststream.response.response import PublishCommand

    from cometmq.model.results import SendResult


@dataclass(kw_only=True)
class StreamPublisherConfig(PublisherUsecaseConfig):
    """What one publisher publishes to, and how."""

    _outer_config: StreamBrokerConfig = field(default_factory=StreamBrokerConfig)
    topic: str
    options: PublishOptions
    headers: dict[str, str]
    reply_to: str
    is_batch: bool = False


@dataclass(kw_only=True)
class StreamPublisherSpecificationConfig(PublisherSpecificationConfig):
    """What AsyncAPI says of one publisher."""

    topic: str


class StreamPublisherSpecification(
    PublisherSpecification[StreamBrokerConfig, StreamPublisherSpecificationConfig]
):
    """One publisher in AsyncAPI."""

    __slots__ = ()

    @property
    def topic(self) -> str:
        """The topic, with the prefix of the routers that it is in."""
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def name(self) -> str:
        """The title given, else one of the topic."""
        return self.config.title_ or f"{self.topic}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        """The channel of this publisher."""
        return {
            self.name: PublisherSpec(
                address=self.topic,
                description=self.config.description_,
                operation=Operation(
                    message=MessageSchema(
                        title=f"{self.name}:Message",
                        payload=resolve_payloads(self.get_payloads(), "Publisher"),
                    ),
                    bindings=None,
                ),
                bindings=None,
            )
        }


class StreamPublisher(PublisherUsecase):
    """Publishes to one topic; as a decorator, what a handler returns."""

    _outer_config: StreamBrokerConfig

    def __init__(
        self, config: StreamPublisherConfig, specification: PublisherSpecification[Any, Any]
    ) -> None:
        super().__init__(config, specification)
        self._topic = config.topic
        self._options = config.options
        self._headers = config.headers
        self._reply_to = config.reply_to
        self._is_batch = config.is_batch

    @property
    def topic(self) -> str:
        """The topic, with the prefix of the routers that it is in."""
        return f"{self._outer_config.prefix}{self._topic}"

    async def publish(
        self,
        *messages: SendableMessage,
        topic: str = "",
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        timeout: float = 3.0,
        **options: Any,
    ) -> SendResult | list[SendResult]:
        """Publish one message, or with `batch=True` several; the options are `Message`'s.

        Raises the errors of `AsyncProducer.send`.
        """
        command = CometPublishCommand(
            *(messages or (None,)),
            topic=topic or self.topic,
            options=PublishOptions(**options) | self._options,
            headers=self._headers | (headers or {}),
            correlation_id=correlation_id or self._outer_config.id_generator(),
            reply_to=reply_to or self._reply_to,
            timeout=timeout,
            _publish_type=PublishType.PUBLISH,
        )
        send = self._basic_publish_batch if self._is_batch else self._basic_publish
        found: SendResult | list[SendResult] = await send(
            command, producer=self._outer_config.producer, _extra_middlewares=()
        )
        return found

    async def _publish(
        self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]
    ) -> None:
        """Publish what a handler returned."""
        command = CometPublishCommand.from_cmd(cmd, batch=self._is_batch)
        command.destination = self.topic
        command.reply_to = command.reply_to or self._reply_to
        command.add_headers(self._headers, override=False)
        command.options |= self._options
        send = self._basic_publish_batch if self._is_batch else self._basic_publish
        await send(
            command,
            producer=self._outer_config.producer,
            _extra_middlewares=_extra_middlewares,
        )

    async def request(
        self,
        message: SendableMessage,
        topic: str = "",
        *,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        timeout: float = 3.0,
        **options: Any,
    ) -> Any:
        """Publish one message and return what its handler returns, as a CometMessage."""
        command = CometPublishCommand(
            message,
            topic=topic or self.topic,
            options=PublishOptions(**options) | self._options,
            headers=self._headers | (headers or {}),
            correlation_id=correlation_id or self._outer_config.id_generator(),
            timeout=timeout,
            _publish_type=PublishType.REQUEST,
        )
        return await self._basic_request(command, producer=self._outer_config.producer)
