"""Where subscribers and publishers are declared: what brokers and routers have in common.

Java: none
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from faststream._internal.broker.registrator import Registrator
from faststream._internal.constants import EMPTY

from cometmq.faststream.config import StreamBrokerConfig
from cometmq.faststream.messages import PublishOptions
from cometmq.faststream.publisher import (
    StreamPublisher,
    StreamPublisherConfig,
    StreamPublisherSpecification,
    StreamPublisherSpecificationConfig,
)
from cometmq.faststream.subscriber import (
    CometSubscriber,
    StreamSubscriberConfig,
    create_subscriber,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fast_depends.dependencies import Dependant
    from faststream._internal.parser import CodecProto
    from faststream._internal.types import BrokerMiddleware, CustomCallable
    from faststream.middlewares import AckPolicy

    from cometmq.model.selector import MessageSelector


class CometRegistrator(Registrator[Any, StreamBrokerConfig]):
    """Declares subscribers and publishers."""

    def subscriber(  # type: ignore[override]
        self,
        topic: str,
        *,
        group: str | None = None,
        expression: str | MessageSelector = "*",
        batch: bool = False,
        max_workers: int = 20,
        ack_policy: AckPolicy = EMPTY,
        no_reply: bool = False,
        dependencies: Sequence[Dependant] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        codec: CodecProto | None = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
        **settings: Any,
    ) -> CometSubscriber:
        """Declare a subscriber of a topic, to be put over a handler.

        `group` is its consumer group (`<the broker's>-<topic>`), `expression` what `subscribe`
        takes, `max_workers` how many messages are handled at once, `batch` gives the handler lists
        of up to `batch_size`. Further settings are those of `AsyncPushConsumer`, as `order`.
        `ack_policy` is NACK_ON_ERROR unless the broker has another.
        """
        config = StreamSubscriberConfig(
            topic=topic,
            group=group,
            expression=expression,
            is_batch=batch,
            settings={
                "consume_threads": max_workers,
                **({"batch_size": 32} if batch else {}),
                **settings,
            },
            no_reply=no_reply,
            _outer_config=cast("StreamBrokerConfig", self.config),
            _ack_policy=ack_policy,
        )
        made = create_subscriber(
            config, title=title, description=description, include_in_schema=include_in_schema
        )
        super().subscriber(made, persistent=persistent)
        return made.add_call(
            parser_=parser or self._parser,
            decoder_=decoder or self._decoder,
            codec_=codec,
            dependencies_=dependencies,
        )

    def publisher(  # type: ignore[override]
        self,
        topic: str,
        *,
        headers: dict[str, str] | None = None,
        reply_to: str = "",
        batch: bool = False,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        schema: Any | None = None,
        include_in_schema: bool = True,
        **options: Any,
    ) -> StreamPublisher:
        """Declare a publisher of a topic. The options are those of `Message`, as tags and keys."""
        config = StreamPublisherConfig(
            topic=topic,
            options=PublishOptions(**options),
            headers=headers or {},
            reply_to=reply_to,
            is_batch=batch,
            _outer_config=cast("StreamBrokerConfig", self.config),
        )
        said = StreamPublisherSpecificationConfig(
            topic=topic,
            schema_=schema,
            title_=title,
            description_=description,
            include_in_schema=include_in_schema,
        )
        made = StreamPublisher(
            config,
            StreamPublisherSpecification(cast("StreamBrokerConfig", self.config), said),
        )
        super().publisher(made, persistent=persistent)
        return made

    def include_router(
        self,
        router: Registrator[Any, Any],
        *,
        prefix: str = "",
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any]] = (),
        include_in_schema: bool | None = None,
    ) -> None:
        """Take over what a router declares. Raises TypeError for a router of another broker."""
        if not isinstance(router, CometRegistrator):
            raise TypeError(
                f"Router must be an instance of CometRegistrator, got {type(router).__name__} "
                "instead."
            )
        super().include_router(
            router,
            prefix=prefix,
            dependencies=dependencies,
            middlewares=middlewares,
            include_in_schema=include_in_schema,
        )
