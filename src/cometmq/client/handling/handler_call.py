"""Runs a user's handler and turns whatever happens into an outcome.

Owns the meaning of what a handler returns or raises; knows nothing of queues and retries. One of
the few places that catch everything: an error of a handler is about its messages and never ends
the client.
Returning means done, raising means later, whatever is raised; RocketMQ's status values are
understood; any other value counts as a failure and is logged. What a handler does to its list
changes nothing.
Java: MessageListenerConcurrently, MessageListenerOrderly (there, null means later)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from inspect import iscoroutinefunction
from typing import NamedTuple, TypeVar

from cometmq.client.session.client_options import check_seconds
from cometmq.errors import InvalidMessage, SettingsError, ValueNotDecoded
from cometmq.model.message import MessageExt
from cometmq.model.results import ConsumeStatus
from cometmq.rules.failures.retry_policy import SUSPEND_MS_MIN, dead_letter_reason

log = logging.getLogger(__name__)

HandlerStatus = ConsumeStatus | None
SyncHandler = Callable[[list[MessageExt]], HandlerStatus]
AsyncHandler = Callable[[list[MessageExt]], Awaitable[HandlerStatus]]
Handler = SyncHandler | AsyncHandler
"""What `subscribe` takes: a plain or async function of a list of messages, oldest first."""
AnyHandler = TypeVar("AnyHandler", bound=Handler)


class RetryLater(Exception):
    """Raised by a handler: deliver these messages again later, and log nothing.

    `delay_level` is for concurrent consumers (1 is 1 s with the default table, 0 lets the broker
    choose: 10 s, then longer; -1 makes it a dead letter at once), and so is `after_s`: exactly so
    many seconds, by a timer of the broker, or by the next longer level where it has none.
    `suspend_ms` is for orderly ones (None: the consumer's own). The first `done` messages of the
    list are done.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        delay_level: int = 0,
        after_s: float | None = None,
        suspend_ms: int | None = None,
        done: int = 0,
    ) -> None:
        for name, value, least in (
            ("delay_level", delay_level, -1),
            ("suspend_ms", suspend_ms or 0, 0),
            ("done", done, 0),
        ):
            if type(value) is not int or value < least:
                raise SettingsError(
                    f"{name} is {value!r}; it must be a whole number, {least} or more"
                )
        if after_s is not None:
            check_seconds("after_s", after_s)
            if delay_level:
                raise SettingsError("delay_level and after_s exclude each other: give one of them")
        self.delay_level = delay_level
        self.after_s = after_s
        self.suspend_ms = suspend_ms
        self.done = done
        super().__init__(reason)


class NotHandled(Exception):
    """Raised in place of a call of the handler: a failure of its messages that is not its own."""


class PartlyHandled(Exception):
    """The error of one message of a batch, whose first `done` messages are done."""

    def __init__(self, done: int, error: Exception) -> None:
        self.done, self.error = done, error
        super().__init__(str(error))


class HandlerOutcome(NamedTuple):
    """What became of one call of a handler."""

    is_done: bool
    reason: str = ""
    delay_level: int = 0
    suspend_ms: int | None = None
    done_count: int = 0
    """When it is not done: how many messages, from the first on, are."""
    error: BaseException | None = None
    """What the handler raised; None for a status and for RetryLater."""
    status: ConsumeStatus | None = None
    """The status the handler returned, if it was one."""
    is_handlers: bool = True
    """False where no handler was called, since the message is unreadable: no sign of an outage."""
    after_s: float | None = None
    """When the messages are to come again, if the handler said so."""
    is_damaged: bool = False
    """Whether it is unreadable for its checksum, so that no further attempt can help."""

    @property
    def kind(self) -> type[BaseException]:
        """The type of the error; RetryLater where a status asked for later."""
        return RetryLater if self.error is None else type(self.error)


class FailureDetails(NamedTuple):
    """Why a message was given up, for sinks: calls of the handler, the last error, and when."""

    attempts: int
    kind: type[BaseException]
    reason: str
    failed_ms: int


DONE = HandlerOutcome(is_done=True)


def is_async(handler: Handler) -> bool:
    """Whether the handler is an async function (or an object whose call is one)."""
    return iscoroutinefunction(handler) or iscoroutinefunction(type(handler).__call__)


def call_handler(
    handler: SyncHandler, messages: list[MessageExt], start: int = 0, stop: int | None = None
) -> HandlerOutcome:
    """Call a plain handler with a list of its own, of some of these messages; never raises."""
    try:
        status = handler(messages[start:stop])
    except BaseException as error:  # noqa: BLE001 - the runner of handlers
        return _failure(error, messages[start:stop])
    return DONE if status is None else _judged(status, messages[start:stop])


async def call_async_handler(
    handler: AsyncHandler, messages: list[MessageExt], start: int = 0, stop: int | None = None
) -> HandlerOutcome:
    """Call an async handler with a list of its own, of some of these messages.

    Raises nothing but the end of the task it runs in, and Ctrl-C, which ends the loop.
    """
    try:
        status = await handler(messages[start:stop])
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and _is_cancelled():
            raise
        return _failure(error, messages[start:stop])
    return DONE if status is None else _judged(status, messages[start:stop])


def unreadable_outcome(messages: Sequence[MessageExt]) -> HandlerOutcome | None:
    """The failure of a message that no handler may get; None where a handler may get these."""
    first = messages[0]
    if not first.unreadable:
        return None
    assert len(messages) == 1, "an unreadable message is a batch of its own"
    return HandlerOutcome(
        is_done=False,
        reason=first.unreadable,
        error=InvalidMessage(first.unreadable),
        is_handlers=False,
        is_damaged=first.is_damaged,
    )


def readable_runs(messages: list[MessageExt]) -> list[list[MessageExt]]:
    """The messages in their order, each unreadable one by itself."""
    runs: list[list[MessageExt]] = []
    is_alone = True
    for message in messages:
        if is_alone or message.unreadable:
            runs.append([message])
        else:
            runs[-1].append(message)
        is_alone = bool(message.unreadable)
    return runs


def _is_cancelled() -> bool:
    """Whether it is this task that was cancelled, not something that the handler waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _judged(status: object, messages: Sequence[MessageExt]) -> HandlerOutcome:
    if isinstance(status, ConsumeStatus):
        reason = "" if status.is_done else status.value
        return HandlerOutcome(status.is_done, reason, status=status)
    log.error(
        "the handler of %s returned %r, which is no ConsumeStatus: return nothing when the "
        "messages are done, raise when they should come again; they will come again",
        messages[0].topic,
        status,
    )
    return HandlerOutcome(is_done=False, reason=f"the handler returned {type(status).__name__}")


def _failure(error: BaseException, messages: Sequence[MessageExt]) -> HandlerOutcome:
    reason = dead_letter_reason(type(error).__name__, _text_of(error))
    if isinstance(error, RetryLater):
        done = min(max(error.done, 0), len(messages))
        return HandlerOutcome(
            False, reason, error.delay_level, error.suspend_ms, done, after_s=error.after_s
        )
    if isinstance(error, NotHandled):
        return HandlerOutcome(
            False, _text_of(error), suspend_ms=SUSPEND_MS_MIN, error=error, is_handlers=False
        )
    done = 0
    if isinstance(error, PartlyHandled):
        done, error = min(error.done, len(messages)), error.error
        reason = dead_letter_reason(type(error).__name__, _text_of(error))
    if isinstance(error, ValueNotDecoded):
        return _unreadable_value(error, reason, messages)
    first = messages[done]
    log.warning(
        "the handler failed on %d message(s) of %s, the first at offset %d: %s",
        len(messages) - done,
        first.message_queue,
        first.queue_offset,
        reason,
        exc_info=error,
    )
    return HandlerOutcome(is_done=False, reason=reason, error=error, done_count=done)


def _unreadable_value(
    error: ValueNotDecoded, reason: str, messages: Sequence[MessageExt]
) -> HandlerOutcome:
    """The failure of a message that is no value of its topic.

    By itself no further attempt can help it; others of its batch have done nothing wrong.
    """
    done = min(error.done, len(messages))
    log.warning("%s", error)
    return HandlerOutcome(
        is_done=False,
        reason=reason,
        done_count=done,
        error=error,
        is_handlers=False,
        is_damaged=len(messages) - done == 1,
    )


def call_key_function(key: Callable[[MessageExt], Hashable], message: MessageExt) -> Hashable:
    """Call a user's function for a message's key; never raises.

    After an error, and for a value that cannot be a key, it is None: no key.
    """
    try:
        found = key(message)
        hash(found)
    except Exception as error:
        log.warning("the key of %r cannot be made, it counts as none", message, exc_info=error)
        return None
    return found


def call_sink(sink: Callable[..., object], message: MessageExt, failure: FailureDetails) -> bool:
    """Call a user's sink with a message that failed; whether it returned. Never raises."""
    try:
        sink(message, failure)
    except BaseException as error:
        log.warning(
            "the sink failed for %r; it is called again after a pause", message, exc_info=error
        )
        return False
    return True


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the error is a user's, and so is its text
        return ""
