"""The hooks of one producer: around a send, around a batch, on a thread or on the loop.

Owns which hooks are called, in which order, and with what; refuses to know how messages are sent.
Invariants: before hooks run before a message is checked or encoded, so they may change it; a
message whose before hook of a middleware returned is reported to that middleware once. A producer
without middleware has no object of this class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.client.middleware.hook_calls import (
    await_hook,
    await_observer,
    call_observer,
    has_async_hook,
)
from cometmq.client.middleware.middleware import CallContext
from cometmq.errors import PartlySent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import TypeVar

    from cometmq.client.middleware.middleware import Middleware
    from cometmq.model.message import Message
    from cometmq.model.queue import MessageQueue
    from cometmq.model.results import SendResult, TransactionState

    BatchStored = Callable[[Sequence[int], Sequence[SendResult]], Awaitable[None]]
    """Called with the indexes of messages that one request has stored, and their results."""
    R = TypeVar("R", bound=SendResult | None)

_HOOKS = ("before_send", "after_send", "send_failed", "after_batch")


class SendHooks:
    """Calls the hooks of all middleware of one producer."""

    def __init__(self, middleware: Sequence[Middleware], group: str) -> None:
        self._middleware = middleware
        self._group = group
        self.are_plain = not has_async_hook(middleware, _HOOKS)
        """Whether a thread may call them, since no hook is async."""

    async def around(
        self,
        kind: str,
        message: Message,
        send: Callable[[], Awaitable[R]],
        queue: MessageQueue | None = None,
    ) -> R:
        """Send one message with its hooks."""
        context = CallContext(kind, self._group, queue)
        entered: list[Middleware] = []
        try:
            await self._enter(message, context, entered)
            result = await send()
        except BaseException as error:
            for one in reversed(entered):
                await await_observer(one.send_failed, message, context, error)
            raise
        for one in reversed(self._middleware):
            await await_observer(one.after_send, message, context, result)
        return result

    def around_in_thread(
        self, message: Message, send: Callable[[], SendResult], queue: MessageQueue | None
    ) -> SendResult:
        """Send one message with its hooks, which must be plain, on the calling thread."""
        assert self.are_plain, "a thread cannot await a hook"
        context = CallContext("send", self._group, queue)
        entered: list[Middleware] = []
        try:
            for one in self._middleware:
                one.before_send(message, context)
                entered.append(one)
            result = send()
        except BaseException as error:
            for one in reversed(entered):
                call_observer(one.send_failed, message, context, error)
            raise
        for one in reversed(self._middleware):
            call_observer(one.after_send, message, context, result)
        return result

    async def around_batch(
        self,
        messages: list[Message],
        send: Callable[[BatchStored], Awaitable[list[SendResult]]],
    ) -> list[SendResult]:
        """Send a list of messages, each with its hooks; `send` reports every request it made."""
        contexts = [CallContext("batch", self._group) for _ in messages]
        entered: list[list[Middleware]] = []
        reported: set[int] = set()

        async def stored(indexes: Sequence[int], results: Sequence[SendResult]) -> None:
            assert len(indexes) == len(results), "one result for each message of a request"
            reported.update(indexes)
            found = [messages[index] for index in indexes]
            for one in reversed(self._middleware):
                await await_observer(one.after_batch, found, contexts[indexes[0]], results)
                for index, result in zip(indexes, results, strict=True):
                    await await_observer(one.after_send, messages[index], contexts[index], result)

        try:
            for message, context in zip(messages, contexts, strict=True):
                entered.append([])
                await self._enter(message, context, entered[-1])
            return await send(stored)
        except BaseException as error:
            cause = (error.__cause__ or error) if isinstance(error, PartlySent) else error
            for index, able in enumerate(entered):
                if index not in reported:
                    for one in reversed(able):
                        await await_observer(
                            one.send_failed, messages[index], contexts[index], cause
                        )
            raise

    def transaction_ends(self, topic: str, half: SendResult, state: TransactionState) -> None:
        """Call the hooks of the end of a transaction."""
        for one in self._middleware:
            call_observer(one.transaction_ends, topic, half, state)

    async def _enter(
        self, message: Message, context: CallContext, entered: list[Middleware]
    ) -> None:
        """Call the before hooks; `entered` gets each middleware whose hook returned."""
        for one in self._middleware:
            await await_hook(one.before_send, message, context)
            entered.append(one)
