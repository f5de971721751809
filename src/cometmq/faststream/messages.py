"""Messages between FastStream and the client: what handlers get, and what is to be published.

Owns how FastStream's fields become properties and back: `content-type`, `correlation-id`,
`reply-to`, headers as properties of their names; and bodies that are empty, which RocketMQ does not
have. Knows no client. Java: none
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from faststream._internal.parser import DefaultCodec
from faststream.message import StreamMessage, decode_message
from faststream.response.publish_type import PublishType
from faststream.response.response import BatchPublishCommand, PublishCommand, Response

from cometmq.errors import ClientError
from cometmq.model.message import RESERVED_PROPERTIES, Message, MessageExt, Property

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from fast_depends.library.serializer import SerializerProto
    from faststream._internal.parser import CodecProto

CONTENT_TYPE, CORRELATION, REPLY_TO, EMPTY_BODY = (
    "content-type",
    "correlation-id",
    "reply-to",
    "empty-body",
)
_OURS = {CONTENT_TYPE, CORRELATION, REPLY_TO, EMPTY_BODY}
REQUESTER = "requester:"
"""What `reply_to` begins with where the reply goes to the client that waits for it."""


class DeliveryVerdict:
    """What a handler has said about its message: done, again later, or never again."""

    __slots__ = ("said",)

    def __init__(self) -> None:
        self.said: str | None = None

    def say(self, said: str) -> None:
        """Take the first word; later ones change nothing."""
        self.said = self.said or said


current_verdict: ContextVar[DeliveryVerdict | None] = ContextVar("verdict", default=None)
"""The verdict of the delivery that runs in this task."""


class CometMessage(StreamMessage[MessageExt]):
    """A message as FastStream's handlers get it; `raw_message` is the `MessageExt`.

    `ack` counts it as done, `nack` has it delivered again later, `reject` makes it a dead letter of
    the group at once. The first of them counts.
    """

    verdict: DeliveryVerdict | None = None

    async def ack(self) -> None:
        """Count the message as done."""
        await super().ack()
        self._say("ack")

    async def nack(self) -> None:
        """Have the message delivered again later."""
        await super().nack()
        self._say("nack")

    async def reject(self) -> None:
        """Make the message a dead letter of its group."""
        await super().reject()
        self._say("reject")

    def _say(self, said: str) -> None:
        if self.verdict is not None:
            self.verdict.say(said)


async def parse_message(raw: MessageExt) -> CometMessage:
    """The message for FastStream's handlers."""
    properties = raw.properties
    requester = properties.get(Property.REPLY_TO_CLIENT)
    found = CometMessage(
        raw_message=raw,
        body=b"" if EMPTY_BODY in properties else raw.body,
        headers={
            name: value
            for name, value in properties.items()
            if name not in RESERVED_PROPERTIES and name not in _OURS
        }
        | ({CONTENT_TYPE: properties[CONTENT_TYPE]} if CONTENT_TYPE in properties else {}),
        reply_to=f"{REQUESTER}{requester}" if requester else properties.get(REPLY_TO, ""),
        content_type=properties.get(CONTENT_TYPE),
        correlation_id=properties.get(CORRELATION) or properties.get(Property.CORRELATION_ID),
        message_id=raw.msg_id,
    )
    found.verdict = current_verdict.get()
    return found


async def parse_batch(raw: tuple[MessageExt, ...]) -> CometMessage:
    """Several messages as one, whose body is the list of their bodies."""
    each = [await parse_message(one) for one in raw]
    found = CometMessage(
        raw_message=raw,  # type: ignore[arg-type]
        body=[one.body for one in each],
        headers=each[0].headers,
        batch_headers=[one.headers for one in each],
        content_type=each[0].content_type,
        correlation_id=each[0].correlation_id,
        message_id=each[0].message_id,
    )
    found.verdict = current_verdict.get()
    return found


async def decode_body(message: StreamMessage[Any]) -> Any:
    """What a body holds, by its content type."""
    return decode_message(message)


async def decode_batch(message: StreamMessage[Any]) -> list[Any]:
    """What each body of a batch holds."""
    return [decode_message(await parse_message(one)) for one in message.raw_message]


_TIMES = ("delay_level", "deliver_at", "deliver_after")


class PublishOptions:
    """How a message is sent, beside its body: as the arguments of `cometmq.Message`."""

    __slots__ = ("delay_level", "deliver_after", "deliver_at", "keys", "sharding_key", "tags")

    def __init__(
        self,
        *,
        tags: str | None = None,
        keys: list[str] | None = None,
        sharding_key: str | None = None,
        delay_level: int = 0,
        deliver_at: datetime | None = None,
        deliver_after: timedelta | None = None,
    ) -> None:
        self.tags = tags
        self.keys = keys
        self.sharding_key = sharding_key
        self.delay_level = delay_level
        self.deliver_at = deliver_at
        self.deliver_after = deliver_after

    def __or__(self, other: PublishOptions) -> PublishOptions:
        """These, and the other's where these say nothing; a time of either kind replaces both."""
        mine = {name: getattr(self, name) or getattr(other, name) for name in self.__slots__}
        if any(getattr(self, name) for name in _TIMES):
            mine |= {name: getattr(self, name) for name in _TIMES}
        return PublishOptions(**mine)

    def as_arguments(self) -> dict[str, Any]:
        """Arguments of `Message`."""
        return {name: getattr(self, name) for name in self.__slots__}


class CometResponse(Response):
    """What a handler returns to say more than the body: tag, keys, sharding key, delay."""

    def __init__(
        self,
        body: Any,
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(body, headers=headers, correlation_id=correlation_id)
        self.options = PublishOptions(**options)

    def as_publish_command(self) -> CometPublishCommand:
        """What is to be published."""
        return CometPublishCommand(
            self.body,
            headers=self.headers,
            correlation_id=self.correlation_id,
            options=self.options,
            _publish_type=PublishType.PUBLISH,
        )

    def get_publish_key(self) -> str | None:
        """The sharding key."""
        return self.options.sharding_key


class CometPublishCommand(BatchPublishCommand):
    """A message that is to be published, or several of one topic."""

    def __init__(
        self,
        body: Any,
        /,
        *bodies: Any,
        topic: str = "",
        options: PublishOptions | None = None,
        timeout: float = 3.0,
        request_of: MessageExt | None = None,
        correlation_id: str | None = None,
        headers: dict[str, Any] | None = None,
        reply_to: str = "",
        _publish_type: PublishType,
    ) -> None:
        super().__init__(
            body,
            *bodies,
            destination=topic,
            correlation_id=correlation_id,
            headers=headers,
            reply_to=reply_to,
            _publish_type=_publish_type,
        )
        self.options = options or PublishOptions()
        self.timeout = timeout
        self.request_of = request_of

    @classmethod
    def from_cmd(cls, cmd: PublishCommand, *, batch: bool = False) -> CometPublishCommand:
        """The same command as one of ours."""
        if isinstance(cmd, CometPublishCommand):
            return cmd
        body, extra = cls._parse_bodies(cmd.body, batch=batch)
        return cls(
            body,
            *extra,
            topic=cmd.destination,
            correlation_id=cmd.correlation_id,
            headers=cmd.headers,
            reply_to=cmd.reply_to,
            _publish_type=cmd.publish_type,
        )


async def encoded(
    command: CometPublishCommand,
    body: Any,
    codec: CodecProto | None,
    serializer: SerializerProto | None,
) -> Message:
    """One body of a command as a message of the client. Raises ClientError without a topic.

    Headers without a value are left out, as RocketMQ has no empty properties.
    """
    if not command.destination:
        raise ClientError("a message is published to no topic: say topic=")
    data, content_type = await (codec or DefaultCodec()).encode(body, serializer)
    properties = {
        str(name): str(value) for name, value in command.headers.items() if value not in (None, "")
    }
    for name, one in (
        (CONTENT_TYPE, content_type),
        (CORRELATION, command.correlation_id),
        (REPLY_TO, command.reply_to),
    ):
        if one:
            properties.setdefault(name, one)
    if not data:
        properties[EMPTY_BODY] = "true"
    return Message(
        command.destination,
        data or b"\0",
        properties=properties,
        **command.options.as_arguments(),
    )
