"""Routers: subscribers and publishers that are declared apart and included in a broker later.

Java: none
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faststream._internal.broker.router import ArgsContainer, BrokerRouter, SubscriberRoute
from faststream._internal.constants import EMPTY

from cometmq.faststream.config import StreamBrokerConfig
from cometmq.faststream.registrator import CometRegistrator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fast_depends.dependencies import Dependant
    from faststream._internal.types import BrokerMiddleware, CustomCallable
    from faststream.middlewares import AckPolicy


class CometPublisher(ArgsContainer):
    """The arguments of `CometRouter.publisher`, for a CometRoute."""

    def __init__(self, topic: str, **settings: Any) -> None:
        super().__init__(topic, **settings)


class CometRoute(SubscriberRoute):
    """A handler with the arguments of `CometRouter.subscriber`, for a CometRouter."""

    def __init__(
        self,
        call: Callable[..., Any],
        topic: str,
        *,
        publishers: Iterable[CometPublisher] = (),
        **settings: Any,
    ) -> None:
        super().__init__(call, topic, publishers=publishers, **settings)


class CometRouter(CometRegistrator, BrokerRouter[Any, StreamBrokerConfig]):
    """Subscribers and publishers whose topics begin with `prefix`."""

    def __init__(
        self,
        prefix: str = "",
        handlers: Iterable[CometRoute] = (),
        *,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any]] = (),
        routers: Iterable[CometRegistrator] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        include_in_schema: bool | None = None,
        ack_policy: AckPolicy = EMPTY,
    ) -> None:
        super().__init__(
            handlers=handlers,
            config=StreamBrokerConfig(
                prefix=prefix,
                ack_policy=ack_policy,
                broker_dependencies=dependencies,
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                include_in_schema=include_in_schema,
            ),
            routers=routers,
        )
