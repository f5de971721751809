"""A subscriber of FastStream over the client's AsyncPushConsumer.

Owns how what FastStream did with a message becomes done, later or dead letter; refuses to know
parsing (`messages`). Invariant: a message counts as done only after its handler, its publishers and
the policy's acknowledgement are through; one that nobody acknowledged comes again.
Java: none
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from faststream._internal.configs import SubscriberSpecificationConfig, SubscriberUsecaseConfig
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.endpoint.utils import process_msg
from faststream.middlewares import AckPolicy
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message as MessageSchema
from faststream.specification.schema import Operation, SubscriberSpec

from cometmq.client.consumer.async_push_consumer import AsyncPushConsumer
from cometmq.client.handling.handler_call import PartlyHandled, RetryLater
from cometmq.client.polling.async_lite_pull_consumer import AsyncLitePullConsumer
from cometmq.faststream.config import StreamBrokerConfig, client_settings
from cometmq.faststream.messages import (
    DeliveryVerdict,
    current_verdict,
    decode_batch,
    decode_body,
    parse_batch,
    parse_message,
)
from cometmq.faststream.reply_publisher import ReplyPublisher
from cometmq.model.subscription import TAG
from cometmq.rules.failures.failure_policy import FailurePolicy, OnFailure
from cometmq.rules.filters.tag_expressions import split_expression

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from faststream._internal.endpoint.publisher import PublisherProto
    from faststream.message import StreamMessage

    from cometmq.faststream.messages import CometMessage
    from cometmq.model.message import MessageExt
    from cometmq.model.selector import MessageSelector
    from cometmq.rules.failures.failure_policy import Policies


_NUMBERS = count()


@dataclass(kw_only=True)
class StreamSubscriberConfig(SubscriberUsecaseConfig):
    """What one subscriber subscribes to, and how."""

    _outer_config: StreamBrokerConfig = field(default_factory=StreamBrokerConfig)
    topic: str
    group: str | None
    expression: str | MessageSelector
    is_batch: bool
    settings: dict[str, Any]

    @property
    def ack_policy(self) -> AckPolicy:
        """The policy given, else the broker's, else NACK_ON_ERROR: what fails comes again."""
        if self._ack_policy is not EMPTY:
            return self._ack_policy
        outer = self._outer_config.ack_policy
        return AckPolicy.NACK_ON_ERROR if outer is EMPTY else outer


@dataclass(kw_only=True)
class StreamSubscriberSpecificationConfig(SubscriberSpecificationConfig):
    """What AsyncAPI says of one subscriber."""

    topic: str


class StreamSubscriberSpecification(
    SubscriberSpecification[StreamBrokerConfig, StreamSubscriberSpecificationConfig]
):
    """One subscriber in AsyncAPI."""

    __slots__ = ()

    @property
    def address(self) -> str:
        """The topic."""
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def channel_labels(self) -> list[str]:
        """The topic, in a list."""
        return [self.address]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        """The channel of this subscriber; AsyncAPI has no binding of RocketMQ's."""
        return {
            self.name: SubscriberSpec(
                address=self.address,
                description=self.description,
                operation=Operation(
                    message=MessageSchema(
                        title=f"{self.name}:Message",
                        payload=resolve_payloads(self.get_payloads()),
                    ),
                    bindings=None,
                ),
                bindings=None,
            )
        }


class CometSubscriber(SubscriberUsecase[Any]):
    """A subscriber: one topic, in one consumer group."""

    _outer_config: StreamBrokerConfig

    def __init__(
        self,
        config: StreamSubscriberConfig,
        specification: SubscriberSpecification[Any, Any],
        calls: CallsCollection[Any],
    ) -> None:
        config.parser = parse_batch if config.is_batch else parse_message
        config.decoder = decode_batch if config.is_batch else decode_body
        super().__init__(config, specification, calls)
        self._topic = config.topic
        self._group = config.group
        self._expression = config.expression
        self._settings = config.settings
        self.is_batch = config.is_batch
        self.number = next(_NUMBERS)  # in the order of declaration, which FastStream's sets forget
        self._consumer: AsyncPushConsumer | None = None
        self._reader: AsyncLitePullConsumer | None = None
        self._handling: set[asyncio.Task[Any] | None] = set()

    @property
    def topic(self) -> str:
        """The topic, with the prefix of the routers that it is in."""
        return f"{self._outer_config.prefix}{self._topic}"

    @property
    def group(self) -> str:
        """The consumer group: the one given, else the broker's group and the topic."""
        return self._group or f"{self._outer_config.group}-{self.topic}"

    @property
    def client_id(self) -> str:
        """The id under which brokers know this member; empty while it does not run."""
        return self._consumer.client_id if self._consumer is not None else ""

    @property
    def wanted(self) -> tuple[str, str]:
        """The topic and the expression, which must be the same for all members of a group."""
        return self.topic, str(self._expression)

    def takes(self, tag: str | None) -> bool:
        """Whether the expression takes messages with this tag; SQL92 is taken to hold."""
        text = self._expression
        if not isinstance(text, str):
            if text.expression_type != TAG:
                return True
            text = text.expression
        wanted = split_expression(text)
        return not wanted or tag in wanted

    async def start(self) -> None:
        """Join the group and begin to receive, where there is a handler and it does not run."""
        if self._consumer is not None:
            return
        await super().start()
        self._post_start()
        if not self.calls:
            return
        settings = {**client_settings(self._outer_config), **self._settings}
        if (graceful_s := self._outer_config.graceful_timeout) is not None:
            settings.setdefault("stop_timeout_s", graceful_s)
        on_failure = _with_rejected(settings.pop("on_failure", None))
        consumer = AsyncPushConsumer(self.group, **settings)
        consumer.subscribe(self.topic, self._expression, self._handle, on_failure=on_failure)
        await consumer.start()
        self._consumer = consumer

    async def stop(self) -> None:
        """Finish what is in hand, commit, leave the group."""
        consumer, self._consumer = self._consumer, None
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.stop()
        if consumer is not None:
            if asyncio.current_task() in self._handling:
                consumer.stop_soon("a handler raised StopConsume")  # it waits for that handler
                self.running = False
                return
            await consumer.stop()
        await super().stop()

    async def _handle(self, messages: list[MessageExt]) -> None:
        """Have FastStream process messages, and tell the consumer what became of them."""
        task = asyncio.current_task()
        self._handling.add(task)
        try:
            if self.is_batch:
                await self._process(tuple(messages), 0)
            else:
                for at, message in enumerate(messages):
                    await self._process(message, at)
        finally:
            self._handling.discard(task)

    async def _process(self, raw: Any, done: int) -> None:
        verdict = DeliveryVerdict()
        token = current_verdict.set(verdict)
        try:
            await self.consume(raw)
        finally:
            current_verdict.reset(token)
        if verdict.said == "ack":
            return
        if verdict.said == "reject":
            raise PartlyHandled(done, Rejected("the message was rejected"))
        why = "nack" if verdict.said else "not acknowledged"
        raise RetryLater(why, done=done)

    async def get_one(self, *, timeout: float = 5.0) -> CometMessage | None:
        """The next message of a subscriber without handler; None when none comes in time.

        It counts as done: `ack`, `nack` and `reject` change nothing.
        """
        assert not self.calls, "a subscriber with handlers is not polled"
        reader = await self._polled()
        found = await reader.poll(timeout, max_count=1)
        return await self._parsed(found[0]) if found else None

    async def __aiter__(self) -> AsyncIterator[CometMessage]:
        """The messages of a subscriber without handler, as they come."""
        assert not self.calls, "a subscriber with handlers is not polled"
        reader = await self._polled()
        while self._reader is reader:
            for raw in await reader.poll(1.0, max_count=1):
                yield await self._parsed(raw)

    async def _polled(self) -> AsyncLitePullConsumer:
        if self._reader is None:
            settings = {**client_settings(self._outer_config), **self._settings}
            for name in ("consume_threads", "order", "batch_size", "max_attempts", "on_failure"):
                settings.pop(name, None)
            reader = AsyncLitePullConsumer(self.group, **settings)
            reader.subscribe(self.topic, self._expression)
            await reader.start()
            self._reader = reader
        return self._reader

    async def _parsed(self, raw: MessageExt) -> CometMessage:
        context = self._outer_config.context
        parser, decoder = self._get_parser_and_decoder()
        found: CometMessage = await process_msg(  # type: ignore[assignment]
            msg=raw,
            middlewares=(one(raw, context=context) for one in self._broker_middlewares),
            parser=parser,
            decoder=decoder,
        )
        return found

    def _make_response_publisher(self, message: StreamMessage[Any]) -> Sequence[PublisherProto]:
        return (ReplyPublisher(self._outer_config.producer, message),)

    def get_log_context(self, message: StreamMessage[Any] | None) -> dict[str, str]:
        """The columns of the log."""
        return {
            "topic": self.topic,
            "group": self.group,
            "message_id": getattr(message, "message_id", ""),
        }


class Rejected(Exception):
    """Raised for a message that was rejected: it becomes a dead letter, in every order."""


def _with_rejected(given: Policies | FailurePolicy | None) -> Policies:
    """The policies of a subscriber, with that of messages that are rejected."""
    own: dict[type[BaseException], FailurePolicy] = {Rejected: OnFailure.dead_letter()}
    return own | ({Exception: given} if isinstance(given, FailurePolicy) else dict(given or {}))


def create_subscriber(
    config: StreamSubscriberConfig,
    *,
    title: str | None,
    description: str | None,
    include_in_schema: bool,
) -> CometSubscriber:
    """A subscriber with what AsyncAPI says of it."""
    calls = CallsCollection[Any]()
    said = StreamSubscriberSpecificationConfig(
        topic=config.topic,
        title_=title,
        description_=description,
        include_in_schema=include_in_schema,
    )
    specification = StreamSubscriberSpecification(config._outer_config, said, calls)
    return CometSubscriber(config, specification, calls)
