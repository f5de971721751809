"""Topics whose messages carry values of one type: `Topic`, what it sends, and what handlers get.

Joins a topic's name and a serializer; refuses to know producers and consumers: `message` makes what
any producer sends, `handler` and `each` make what any consumer takes. Invariant: a value that
cannot be read reaches no handler; its message fails, and the error says why.
Java: none
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from cometmq.client.handling.handler_call import PartlyHandled, RetryLater
from cometmq.client.producer.message_checks import check_topic
from cometmq.errors import ClientError, InvalidMessage, ValueNotDecoded
from cometmq.model.message import Message, MessageExt
from cometmq.model.results import ConsumeStatus
from cometmq.serializers import Serializer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime, timedelta

T = TypeVar("T")
CONTENT_TYPE = "content-type"
"""The property that says what a body is, by the name that FastStream uses as well."""


class Received(NamedTuple, Generic[T]):
    """A value as received, and its message: where it was, its keys, how often it failed."""

    value: T
    message: MessageExt


Returned = ConsumeStatus | Awaitable[ConsumeStatus | None] | None
"""What a handler returns: nothing, a status of RocketMQ's, or, if async, either of them."""


class Topic(Generic[T]):
    """A topic and what its values are: `orders = Topic("orders", Typed(Order))`.

    Safe to use from several threads. Raises InvalidMessage for a bad name, ClientError for what is
    no serializer.
    """

    def __init__(self, name: str, serializer: Serializer[T]) -> None:
        check_topic(name)
        if not isinstance(serializer, Serializer):
            raise ClientError(
                f"the serializer of {name} is {serializer!r:.80}; it must be one of "
                "cometmq.serializers, as in Topic('orders', Json())"
            )
        self.name = name
        self.serializer = serializer

    def message(
        self,
        value: T,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: Mapping[str, str] | None = None,
        sharding_key: str | None = None,
        delay_level: int = 0,
        deliver_at: datetime | None = None,
        deliver_after: timedelta | None = None,
    ) -> Message:
        """The message with this value, for any producer; the rest is as for `Message`.

        The property `content-type` says what the body is. Raises InvalidMessage for a value that
        the serializer does not take, or that makes an empty body.
        """
        try:
            body = self.serializer.encode(value)
        except Exception as error:
            raise InvalidMessage(
                f"a value of {type(value).__name__} for {self.name} cannot be written by "
                f"{self.serializer!r}: {error}"
            ) from error
        return Message(
            self.name,
            body,
            tags=tags,
            keys=keys,
            properties={CONTENT_TYPE: self.serializer.content_type, **(properties or {})},
            sharding_key=sharding_key,
            delay_level=delay_level,
            deliver_at=deliver_at,
            deliver_after=deliver_after,
        )

    def value(self, message: MessageExt) -> T:
        """The value of a message that was received, polled, or came as a reply.

        Raises ValueNotDecoded (an InvalidMessage) where the body, or its content type, is another.
        """
        given = message.properties.get(CONTENT_TYPE, "").partition(";")[0].strip().lower()
        if given and given != self.serializer.content_type:
            raise ValueNotDecoded(
                f"{message!r} is {given}, and {self.serializer!r} reads "
                f"{self.serializer.content_type}"
            )
        try:
            return self.serializer.decode(message.body)
        except Exception as error:
            raise ValueNotDecoded(
                f"{message!r} cannot be read by {self.serializer!r}: {error}"
            ) from error

    def handler(self, function: Callable[[list[Received[T]]], Returned]) -> TypedHandler[T]:
        """Make a handler of a function, plain or async, that takes a list of values.

        For `subscribe` and `consumer.handler`; may be a decorator.
        """
        return _made(self, function, is_each=False)

    def each(self, function: Callable[[Received[T]], Returned]) -> TypedHandler[T]:
        """Make a handler of a function, plain or async, that takes one value at a time.

        Where one of a batch fails, those before it are done. A status is not looked at: returning
        means done.
        """
        return _made(self, function, is_each=True)

    def __repr__(self) -> str:
        """Return the name and the serializer."""
        return f"Topic({self.name!r}, {self.serializer!r})"


class TypedHandler(Generic[T]):
    """A handler whose function takes values. Made by `Topic.handler` and `Topic.each`."""

    def __init__(self, topic: Topic[T], function: Callable[[Any], Any], *, is_each: bool) -> None:
        self._topic, self._function, self._is_each = topic, function, is_each
        self.__name__ = self.__qualname__ = getattr(function, "__qualname__", repr(function))

    def __call__(self, messages: list[MessageExt]) -> Any:
        """Handle messages; those before one that cannot be read count as done."""
        found, problem = self._values(messages)
        if self._is_each:
            for at, one in enumerate(found):
                try:
                    self._function(one)
                except Exception as error:
                    raise _failed_at(at, error) from error
            status = None
        else:
            status = self._function(found) if found else None
        if problem is not None:
            raise problem
        return status

    def _values(self, messages: list[MessageExt]) -> tuple[list[Received[T]], Exception | None]:
        """The values up to the first that cannot be read, and why it cannot."""
        found: list[Received[T]] = []
        for message in messages:
            try:
                found.append(Received(self._topic.value(message), message))
            except ValueNotDecoded as error:
                error.done = len(found)
                return found, error
        return found, None


class AsyncTypedHandler(TypedHandler[T]):
    """The same for an async function."""

    async def __call__(self, messages: list[MessageExt]) -> Any:
        """Handle messages; those before one that cannot be read count as done."""
        found, problem = self._values(messages)
        if self._is_each:
            for at, one in enumerate(found):
                try:
                    await self._function(one)
                except Exception as error:
                    raise _failed_at(at, error) from error
            status = None
        else:
            status = await self._function(found) if found else None
        if problem is not None:
            raise problem
        return status


def _made(topic: Topic[T], function: object, *, is_each: bool) -> TypedHandler[T]:
    called = cast("Callable[[Any], Any]", function)
    is_async = iscoroutinefunction(called) or iscoroutinefunction(type(called).__call__)
    return (AsyncTypedHandler if is_async else TypedHandler)(topic, called, is_each=is_each)


def _failed_at(at: int, error: Exception) -> Exception:
    """The error with which a batch fails after its first `at` messages were done."""
    if at == 0:
        return error
    if isinstance(error, RetryLater):
        error.done += at
        return error
    return PartlyHandled(at, error)
