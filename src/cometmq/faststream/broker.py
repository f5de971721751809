"""CometBroker: what a FastStream application talks to CometMQ or RocketMQ through.

Owns the connection's start and stop. Java: none
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, cast

from fast_depends import dependency_provider
from faststream._internal.broker import BrokerUsecase
from faststream._internal.constants import EMPTY
from faststream._internal.context.repository import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream.exceptions import SetupError
from faststream.message import gen_cor_id
from faststream.response.publish_type import PublishType
from faststream.specification.schema import BrokerSpec

from cometmq.client.producer.async_producer import AsyncProducer
from cometmq.errors import CometError
from cometmq.faststream.config import StreamBrokerConfig, client_settings, logger_state
from cometmq.faststream.messages import CometPublishCommand, PublishOptions
from cometmq.faststream.producer import StreamProducer
from cometmq.faststream.registrator import CometRegistrator

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from fast_depends import Provider
    from fast_depends.dependencies import Dependant
    from fast_depends.library.serializer import SerializerProto
    from faststream._internal.basic_types import LoggerProto, SendableMessage
    from faststream._internal.parser import CodecProto
    from faststream._internal.types import BrokerMiddleware, CustomCallable, IdGenerator
    from faststream.middlewares import AckPolicy
    from faststream.specification.schema.extra import Tag, TagDict

    from cometmq.faststream.messages import CometMessage
    from cometmq.faststream.subscriber import CometSubscriber
    from cometmq.model.results import SendResult

_DEFAULT_TOPIC = "TBW102"


class CometBroker(CometRegistrator, BrokerUsecase[Any, AsyncProducer, StreamBrokerConfig]):
    """A broker for FastStream: `CometBroker("127.0.0.1:9876", group="orders")`.

    `namesrv` are the name servers, as for every client. `group` is the producer group; a subscriber
    that names no group has the consumer group `<group>-<topic>`, as all members of a group must
    subscribe to the same. `client_settings` are settings of all clients that it makes (access_key,
    secret_key, tls, namespace, ...). `graceful_timeout` is how long a stop waits for handlers (s),
    unless a subscriber has its own `stop_timeout_s`. The other arguments are FastStream's.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str = "faststream",
        client_settings: dict[str, Any] | None = None,
        graceful_timeout: float | None = 15.0,
        decoder: CustomCallable | None = None,
        parser: CustomCallable | None = None,
        codec: CodecProto | None = None,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any]] = (),
        routers: Iterable[CometRegistrator] = (),
        ack_policy: AckPolicy = EMPTY,
        id_generator: IdGenerator = gen_cor_id,
        specification_url: str | None = None,
        protocol: str = "rocketmq",
        protocol_version: str | None = None,
        description: str | None = None,
        tags: Iterable[Tag | TagDict] = (),
        logger: LoggerProto | None = EMPTY,
        log_level: int = logging.INFO,
        apply_types: bool = True,
        serializer: SerializerProto | None = EMPTY,
        provider: Provider | None = None,
        context: ContextRepo | None = None,
    ) -> None:
        super().__init__(
            routers=routers,
            config=StreamBrokerConfig(
                producer=StreamProducer(parser, decoder),
                client_settings={"namesrv": namesrv, **(client_settings or {})},
                group=group,
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                broker_codec=codec,
                logger=logger_state(logger, log_level),
                fd_config=FastDependsConfig(
                    use_fastdepends=apply_types,
                    serializer=serializer,
                    provider=provider or dependency_provider,
                    context=context or ContextRepo(),
                ),
                broker_dependencies=dependencies,
                graceful_timeout=graceful_timeout,
                ack_policy=ack_policy,
                id_generator=id_generator,
                extra_context={"broker": self},
            ),
            specification=BrokerSpec(
                description=description,
                url=[specification_url or _url_of(namesrv)],
                protocol=protocol,
                protocol_version=protocol_version,
                tags=tags,
                security=None,
            ),
        )

    async def _connect(self) -> AsyncProducer:
        client = AsyncProducer(self.config.group, **client_settings(self.config.broker_config))
        await client.start()
        self.config.connect(client)
        return client

    async def start(self) -> None:
        """Connect, and start all subscribers that do not run.

        Raises SetupError where subscribers of one group subscribe to different topics or tags.
        """
        self._check_groups()
        await self.connect()
        self.config.logger.log("connected", logging.INFO, {"topic": "", "group": ""})
        await super().start()

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Stop all subscribers, each after what it has in hand, then the producer."""
        await super().stop(exc_type, exc_val, exc_tb)
        client, self._connection = self._connection, None
        if client is not None:
            await client.stop()
        self.config.disconnect()

    def _check_groups(self) -> None:
        wanted: dict[str, tuple[str, str]] = {}
        for one in self.subscribers:
            subscriber = cast("CometSubscriber", one)
            first = wanted.setdefault(subscriber.group, subscriber.wanted)
            if first != subscriber.wanted:
                raise SetupError(
                    f"the group {subscriber.group} is to subscribe to {first} and to "
                    f"{subscriber.wanted}: all members of a group must subscribe to the same, so "
                    "give one of these subscribers another group"
                )

    async def ping(self, timeout: float | None = None) -> bool:
        """Whether a name server answers in time and knows a broker; `timeout` is 3 s by default."""
        if self._connection is None:
            return False
        try:
            async with asyncio.timeout(timeout or 3.0):
                return bool(await self._connection.queues(_DEFAULT_TOPIC))
        except (CometError, TimeoutError):
            return False

    async def publish(
        self,
        message: SendableMessage = None,
        topic: str = "",
        *,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        timeout: float = 3.0,
        **options: Any,
    ) -> SendResult:
        """Publish one message and return where it was stored.

        Headers are properties of the message; `reply_to` is the topic for what its handler returns.
        The options are those of `Message`: tags, keys, sharding_key, delay_level, deliver_at,
        deliver_after. Raises the errors of `AsyncProducer.send`.
        """
        command = CometPublishCommand(
            message,
            topic=topic,
            options=PublishOptions(**options),
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            reply_to=reply_to,
            timeout=timeout,
            _publish_type=PublishType.PUBLISH,
        )
        found: SendResult = await self._basic_publish(command, producer=self.config.producer)
        return found

    async def publish_batch(
        self,
        *messages: SendableMessage,
        topic: str = "",
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        timeout: float = 3.0,
        **options: Any,
    ) -> list[SendResult]:
        """Publish several messages to one topic in as few requests as possible."""
        command = CometPublishCommand(
            *(messages or (None,)),
            topic=topic,
            options=PublishOptions(**options),
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            timeout=timeout,
            _publish_type=PublishType.PUBLISH,
        )
        found: list[SendResult] = await self._basic_publish_batch(
            command, producer=self.config.producer
        )
        return found

    async def request(
        self,
        message: SendableMessage = None,
        topic: str = "",
        /,
        timeout: float = 3.0,
        *,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        **options: Any,
    ) -> CometMessage:
        """Publish one message, wait for what its handler returns, and return that.

        Raises RemotingTimeout when nothing comes in time.
        """
        command = CometPublishCommand(
            message,
            topic=topic,
            options=PublishOptions(**options),
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            timeout=timeout,
            _publish_type=PublishType.REQUEST,
        )
        found: CometMessage = await self._basic_request(command, producer=self.config.producer)
        return found


def _url_of(namesrv: str | Sequence[str] | None) -> str:
    return namesrv if isinstance(namesrv, str) else ";".join(namesrv or ("127.0.0.1:9876",))
