"""Middleware: hooks around the sends of producers and the handlers of consumers.

Owns the hooks that a user, the message trace and the like may define, and the context of a call;
refuses to know who calls them (`send_hooks`, `handler_hooks`). Invariant: of each call whose before
hook returned, either the after hook or the failed hook is called, once.
Java: SendMessageHook, ConsumeMessageHook, EndTransactionHook
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from cometmq.model.message import Message, MessageExt
    from cometmq.model.queue import MessageQueue
    from cometmq.model.results import ConsumeStatus, SendResult, TransactionState

ReportRun = Callable[[str, int, float, int, int], None]
"""What `after_run` is: topic, calls, seconds, messages done, messages failed."""
_numbers = count(1)


class CallContext:
    """One call of a producer, a handler or a poll, as all hooks of it see it.

    `kind` is "send", "oneway", "batch", "half" (the message of a transaction), "request", "reply",
    "handle" or "poll". `group` is the producer's or the consumer's. `began_s` is a time of
    `time.monotonic`, `number` is another one for each call of the process. `queue` is the one that
    the caller of a send named, if any. `state` is for what a middleware keeps between its hooks.
    """

    __slots__ = ("began_s", "group", "kind", "number", "queue", "state")

    def __init__(self, kind: str, group: str, queue: MessageQueue | None = None) -> None:
        self.kind = kind
        self.group = group
        self.queue = queue
        self.number = next(_numbers)
        self.began_s = time.monotonic()
        self.state: dict[str, object] = {}


class Middleware:
    """What is done around every send, or around every call of a handler: override what you need.

    Give it as `middleware=[...]` to a producer or a consumer. The before hooks run in the order of
    the list, all others in reverse. A before hook may change the message, or refuse by raising: a
    send then fails with that error, and messages for a handler count as failed. Errors of the other
    hooks are logged and ignored.

    A hook may be an async function where it is awaited: for sends (a blocking producer then sends
    on its loop), for async handlers and for polls. A plain handler runs in a thread, and its hooks
    with it: they must be plain functions.
    """

    def before_send(self, message: Message, context: CallContext) -> Awaitable[None] | None:
        """A message is about to be sent; raise to refuse it."""

    def after_send(
        self, message: Message, context: CallContext, result: SendResult | None
    ) -> Awaitable[None] | None:
        """A message was stored; the result is None for a one-way send, which gets no response."""

    def send_failed(
        self, message: Message, context: CallContext, error: BaseException
    ) -> Awaitable[None] | None:
        """A message was not sent, for all that is known: its send raised, or was refused."""

    def after_batch(
        self, messages: Sequence[Message], context: CallContext, results: Sequence[SendResult]
    ) -> Awaitable[None] | None:
        """Messages of a batch were stored by one request; `after_send` is called for each, too.

        The context is that of the first one.
        """

    def transaction_ends(self, topic: str, half: SendResult, state: TransactionState) -> None:
        """A transaction is about to be ended; `half` is the result of its half message."""

    def before_handle(
        self, messages: list[MessageExt], context: CallContext
    ) -> Awaitable[None] | None:
        """Messages are about to be handled; raise to have them come again later."""

    def after_handle(
        self, messages: list[MessageExt], context: CallContext, status: ConsumeStatus | None
    ) -> Awaitable[None] | None:
        """A handler returned: None, or a status (which may ask for the messages again)."""

    def handle_failed(
        self, messages: list[MessageExt], context: CallContext, error: BaseException
    ) -> Awaitable[None] | None:
        """A handler raised, or a before hook did."""

    def after_run(self, topic: str, calls: int, spent_s: float, done: int, failed: int) -> None:
        """Handlers have run `calls` times in a row for messages of one queue.

        `topic` is the queue's: the group's retry topic for messages that came again. Called on the
        client's loop, once for a run of calls, which makes it the place to count in.
        """

    def after_poll(
        self, messages: list[MessageExt], context: CallContext
    ) -> Awaitable[None] | None:
        """A poll of a LitePullConsumer is about to return these messages."""
