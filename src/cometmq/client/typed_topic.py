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
from cometmq.client.handling.handler_signature import function_problem
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
    no serializer or has a content type that is no text.
    """

    def __init__(self, name: str, serializer: Serializer[T]) -> None:
        check_topic(name)
        if not isinstance(serializer, Serializer):
            raise ClientError(
                f"the serializer of {name} is {serializer!r:.80}; it must be one of "
                "cometmq.serializers, as in Topic('orders', Json())"
            )
        if not isinstance(serializer.content_type, str):
            raise ClientError(
                f"the content_type of {serializer!r:.80} is {serializer.content_type!r}; it must "
                "be a text, as 'application/json'"
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
                f"{self.serializer!r}: {_reason_of(error)}"
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
        given = _media_type(message.properties.get(CONTENT_TYPE, ""))
        if given and given != _media_type(self.serializer.content_type):
            raise ValueNotDecoded(
                f"{message!r} is {given}, and {self.serializer!r} reads "
                f"{self.serializer.content_type}"
            )
        try:
            return self.serializer.decode(message.body)
        except Exception as error:
            raise ValueNotDecoded(
                f"{message!r} cannot be read by {self.serializer!r}: {_reason_of(error)}"
            ) from error

    def handler(self, function: Callable[[list[Received[T]]], Returned]) -> TypedHandler[T]:
        """Make a handler of a function, plain or async, that takes a list of values.

        For `subscribe` and `consumer.handler`; may be a decorator. Raises ClientError for what
        cannot be called so.
        """
        return _made(self, function, is_each=False)

    def each(self, function: Callable[[Received[T]], Returned]) -> TypedHandler[T]:
        """Make a handler of a function, plain or async, that takes one value at a time.

        What it returns or raises is about its value: where one of a batch fails, those before it
        are done. Raises ClientError for what cannot be called so.
        """
        return _made(self, function, is_each=True)

    def __repr__(self) -> str:
        """Return the name and the serializer."""
        return f"Topic({self.name!r}, {self.serializer!r})"


class TypedHandler(Generic[T]):
    """A handler whose function takes values. Made by `Topic.handler` and `Topic.each`."""

    def __init__(self, topic: Topic[T], function: Callable[[Any], Any], *, is_each: bool) -> None:
        self._topic, self._function, self._is_each = topic, function, is_each
        name = getattr(function, "__qualname__", None) or type(function).__qualname__
        self.__name__ = self.__qualname__ = name

    def __call__(self, messages: list[MessageExt]) -> Any:
        """Handle messages; those before one that cannot be read count as done."""
        found, problem = self._values(messages)
        status = None
        if self._is_each:
            for at, one in enumerate(found):
                try:
                    status = self._function(one)
                    self._check(status)
                except Exception as error:
                    _raise_after(at, error)
                    raise
        elif found:
            status = self._function(found)
        return _ended(status, problem)

    def _check(self, status: object) -> None:
        """Raise unless the value is done by what its function returned."""
        if _is_done(status):
            return
        if isinstance(status, ConsumeStatus):
            raise RetryLater(status.value)
        raise TypeError(
            f"{self.__name__} returned {type(status).__name__}, which is no ConsumeStatus: return "
            "nothing when a value is done, raise when it should come again"
        )

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
        status = None
        if self._is_each:
            for at, one in enumerate(found):
                try:
                    status = await self._function(one)
                    self._check(status)
                except Exception as error:
                    _raise_after(at, error)
                    raise
        elif found:
            status = await self._function(found)
        return _ended(status, problem)


def _made(topic: Topic[T], function: object, *, is_each: bool) -> TypedHandler[T]:
    if not callable(function):
        raise ClientError(f"the handler of {topic.name}: {function!r:.120} is no function")
    takes = "a value" if is_each else "a list of values"
    if problem := function_problem(function, takes):
        name = getattr(function, "__qualname__", None) or type(function).__qualname__
        raise ClientError(f"the handler of {topic.name}: {name} {problem}")
    called = cast("Callable[[Any], Any]", function)
    is_async = iscoroutinefunction(called) or iscoroutinefunction(type(called).__call__)
    return (AsyncTypedHandler if is_async else TypedHandler)(topic, called, is_each=is_each)


def _media_type(content_type: str) -> str:
    """A content type without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def _reason_of(error: Exception) -> str:
    """What an error says, at least its type."""
    return str(error) or type(error).__name__


def _is_done(status: object) -> bool:
    return status is None or (isinstance(status, ConsumeStatus) and status.is_done)


def _ended(status: object, problem: Exception | None) -> object:
    """What a call ends with: its messages come again before the unreadable one is looked at."""
    if problem is not None and _is_done(status):
        raise problem
    return status


def _raise_after(at: int, error: Exception) -> None:
    """Raise the error with which a batch fails after its first `at` messages, if there are any."""
    if at == 0:
        return
    if isinstance(error, RetryLater):
        raise RetryLater(
            str(error),
            delay_level=error.delay_level,
            after_s=error.after_s,
            suspend_ms=error.suspend_ms,
            done=error.done + at,
        ) from error
    raise PartlyHandled(at, error) from error
