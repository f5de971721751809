"""Concurrent handling: messages of a queue go to many handlers at once, in no order.

Owns batching, the way of a failed message back to the broker, and the retry in place when no broker
takes it; refuses to know pulls and rebalance. Invariant: a message leaves the window only when its
handler is done with it or a broker has taken it back, so a crash repeats but never loses.
Java: ConsumeMessageConcurrentlyService
"""

from __future__ import annotations

import asyncio
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, cast

from cometmq.client import handlers

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from cometmq.client.assigned import Assigned
    from cometmq.client.handlers import AsyncHandler, Outcome, SyncHandler
    from cometmq.client.strategy import Parts
    from cometmq.client.subscriptions import Subscription
    from cometmq.model.message import MessageExt


class _Call:
    """One call of a handler: runs somewhere, ends on the loop."""

    __slots__ = ("assigned", "ended", "messages", "outcome", "subscription")

    def __init__(
        self,
        assigned: Assigned,
        messages: list[MessageExt],
        subscription: Subscription,
        ended: Callable[[_Call], None],
    ) -> None:
        self.assigned, self.messages, self.subscription = assigned, messages, subscription
        self.ended = ended
        self.outcome: Outcome | None = None

    def run(self) -> None:
        """Call a plain handler, unless the queue was given away (in a thread)."""
        if not self.assigned.is_dropped:
            handler = cast("SyncHandler", self.subscription.handler)
            self.outcome = handlers.run(handler, self.messages)

    async def run_async(self) -> None:
        """Call an async handler, unless the queue was given away."""
        if not self.assigned.is_dropped:
            handler = cast("AsyncHandler", self.subscription.handler)
            self.outcome = await handlers.run_async(handler, self.messages)
        self.ended(self)

    def done(self) -> None:
        """Hand the outcome over (on the loop)."""
        self.ended(self)


class ConcurrentConsume:
    """Feeds handlers for one concurrent consumer. One loop owns it."""

    def __init__(self, parts: Parts) -> None:
        self._options, self._subscriptions = parts.options, parts.subscriptions
        self._threads, self._tasks = parts.threads, parts.tasks
        self._send_back, self._offsets = parts.send_back, parts.offsets
        self._background, self._broke_off = parts.background, parts.broke_off

    def begin(self, assigned: Assigned) -> None:
        """Nothing is needed for a new queue: its messages start work by themselves."""

    def feed(self, assigned: Assigned, messages: list[MessageExt]) -> None:
        """Give newly pulled messages to handlers."""
        assigned.window.take(len(messages))
        size = self._options.batch_size
        # a retry queue holds messages of several topics, and each topic has its own handler
        for _, group in groupby(messages, key=attrgetter("topic")):
            own = list(group)
            for at in range(0, len(own), size):
                self._submit(assigned, own[at : at + size])

    async def drain(self, assigned: Assigned, timeout_s: float) -> bool:
        """Wait until the handlers at work on the queue are done; False when they are not.

        What no handler has begun is skipped.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while assigned.in_hand and loop.time() < deadline:
            await asyncio.sleep(0.01)
        return not assigned.in_hand

    def facts(self) -> dict[str, str]:
        """Nothing beyond what is said of every queue."""
        return {}

    def close(self) -> None:
        """Nothing is held beyond the queues."""

    def _submit(self, assigned: Assigned, messages: list[MessageExt]) -> None:
        subscription = self._subscriptions.handler_of(messages[0].topic)
        call = _Call(assigned, messages, subscription, self._ended)
        assigned.in_hand += len(messages)
        if subscription.is_async:
            self._tasks.submit(call.run_async())
        else:
            self._threads.submit(call.run, call.done)

    def _ended(self, call: _Call) -> None:
        assigned, outcome = call.assigned, call.outcome
        if outcome is None:
            assigned.in_hand -= len(call.messages)
        elif outcome.is_done:
            self._finish(assigned, call.messages)
        else:
            self._spawn(assigned, self._give_back(assigned, call.messages, outcome), "send back")

    def _finish(self, assigned: Assigned, messages: list[MessageExt]) -> None:
        assigned.in_hand -= len(messages)
        assigned.window.done(messages)
        assigned.consumed_at = asyncio.get_running_loop().time()
        if not assigned.is_dropped:
            self._offsets.remember(assigned.queue, assigned.window.commit_offset)

    async def _give_back(
        self, assigned: Assigned, messages: list[MessageExt], outcome: Outcome
    ) -> None:
        if assigned.is_dropped:  # whoever has the queue now gets them again anyway
            assigned.in_hand -= len(messages)
            return
        for message in messages:
            taken = await self._send_back.later(
                message, assigned.queue, outcome.delay_level, outcome.reason
            )
            if taken:
                self._finish(assigned, [message])
            else:
                self._spawn(assigned, self._again(assigned, message), "retry in place")

    async def _again(self, assigned: Assigned, message: MessageExt) -> None:
        """Try a message here once more, since no broker took it back."""
        assigned.in_hand -= 1
        await asyncio.sleep(self._options.retry_in_place_s)
        if not assigned.is_dropped:
            message.reconsume_times += 1
            self._submit(assigned, [message])

    def _spawn(self, assigned: Assigned, work: Coroutine[object, object, None], name: str) -> None:
        self._background.spawn(self._supervised(assigned, work), name=f"{name} {assigned.queue}")

    async def _supervised(self, assigned: Assigned, work: Coroutine[object, object, None]) -> None:
        """Have the queue begun anew when work on its messages breaks off (which is logged)."""
        is_over = False
        try:
            await work
            is_over = True
        finally:
            if not is_over:
                self._broke_off(assigned)
