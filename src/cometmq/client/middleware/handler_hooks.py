"""The hooks of one consumer: around the calls of its handlers, and after a poll.

Owns which hooks are called, in which order, and with what; refuses to know queues, retries and what
a status means. Invariants: the hooks of a call run where its handler runs, a thread or the loop;
with handlers in processes they run in the parent, around the call. Where no middleware has a hook
around handlers, these are called as they are.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, cast

from cometmq.client.handling.handler_call import is_async
from cometmq.client.middleware.hook_calls import (
    await_hook,
    await_observer,
    call_observer,
    check_plain_hooks,
)
from cometmq.client.middleware.middleware import CallContext, Middleware

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.client.consumer.subscriptions import Subscriptions
    from cometmq.client.handling.handler_call import AsyncHandler, Handler, SyncHandler
    from cometmq.client.middleware.middleware import ReportRun
    from cometmq.model.message import MessageExt
    from cometmq.model.results import ConsumeStatus

_HOOKS = ("before_handle", "after_handle", "handle_failed")


class HandlerHooks:
    """Calls the hooks of all middleware of one consumer."""

    def __init__(self, middleware: Sequence[Middleware], group: str) -> None:
        self._middleware = [one for one in middleware if _has_hook(one, _HOOKS)]
        self._observers = [one for one in middleware if _has_hook(one, ("after_run",))]
        self._pollers = [one for one in middleware if _has_hook(one, ("after_poll",))]
        self._group = group

    def wrap_subscriptions(self, subscriptions: Subscriptions) -> Subscriptions:
        """The same subscriptions, whose handlers run with the hooks around them, if any."""
        if not self._middleware:
            return subscriptions
        wrapped = copy(subscriptions)
        wrapped.replace_handlers(
            lambda topic: self.wrap_handler(topic, subscriptions.subscription_of(topic).handler)
        )
        return wrapped

    def wrap_handler(self, topic: str, handler: Handler) -> Handler:
        """The handler of a topic with the hooks around it; it stays plain, or async.

        Raises SettingsError when a plain one has async hooks.
        """
        if is_async(handler):
            awaited = cast("AsyncHandler", handler)

            async def hooked_async(messages: list[MessageExt]) -> ConsumeStatus | None:
                return await self._around(awaited, messages)

            return hooked_async
        check_plain_hooks(self._middleware, _HOOKS, topic)
        plain = cast("SyncHandler", handler)

        def hooked(messages: list[MessageExt]) -> ConsumeStatus | None:
            return self._around_in_thread(plain, messages)

        return hooked

    async def polled(self, messages: list[MessageExt]) -> None:
        """Call the hooks of a poll that found messages."""
        context = CallContext("poll", self._group)
        for one in reversed(self._pollers):
            await await_observer(one.after_poll, messages, context)

    @property
    def report(self) -> ReportRun:
        """What to call, on the loop, with what handlers have done."""
        # The consumer's own statistics are always there; alone they need no guard against errors.
        return self._observers[0].after_run if len(self._observers) == 1 else self._report_to_all

    def _report_to_all(
        self, topic: str, calls: int, spent_s: float, done: int, failed: int
    ) -> None:
        for one in self._observers:
            call_observer(one.after_run, topic, calls, spent_s, done, failed)

    async def _around(
        self, handler: AsyncHandler, messages: list[MessageExt]
    ) -> ConsumeStatus | None:
        context = CallContext("handle", self._group)
        entered: list[Middleware] = []
        try:
            for one in self._middleware:
                await await_hook(one.before_handle, messages, context)
                entered.append(one)
            status = await handler(list(messages))
        except BaseException as error:
            for one in reversed(entered):
                await await_observer(one.handle_failed, messages, context, error)
            raise
        for one in reversed(self._middleware):
            await await_observer(one.after_handle, messages, context, status)
        return status

    def _around_in_thread(
        self, handler: SyncHandler, messages: list[MessageExt]
    ) -> ConsumeStatus | None:
        context = CallContext("handle", self._group)
        entered: list[Middleware] = []
        try:
            for one in self._middleware:
                one.before_handle(messages, context)
                entered.append(one)
            status = handler(list(messages))
        except BaseException as error:
            for one in reversed(entered):
                call_observer(one.handle_failed, messages, context, error)
            raise
        for one in reversed(self._middleware):
            call_observer(one.after_handle, messages, context, status)
        return status


def _has_hook(middleware: Middleware, names: Sequence[str]) -> bool:
    """Whether a middleware defines one of the hooks."""
    return any(
        getattr(getattr(middleware, name), "__func__", None) is not getattr(Middleware, name)
        for name in names
    )
