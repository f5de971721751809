"""One call of a handler by the concurrent strategy.

Owns running it, in a thread or as a task, and what came of it; knows nothing of retries and
windows. Invariant: the end of a call is reported on the loop, exactly once.
Java: ConsumeMessageConcurrentlyService.ConsumeRequest
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from cometmq.client.handling import handler_call as handlers

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.consumer.subscriptions import Subscription
    from cometmq.client.handling.handler_call import AsyncHandler, HandlerOutcome, SyncHandler
    from cometmq.model.message import MessageExt
    from cometmq.rules.failures.circuit_breaker import CircuitBreaker


class ConcurrentCall:
    """One call of a handler: runs somewhere, ends on the loop."""

    __slots__ = (
        "assigned",
        "breaker",
        "clock",
        "expired",
        "is_probe",
        "messages",
        "on_end",
        "outcome",
        "spent_s",
        "started_at",
        "subscription",
    )

    def __init__(
        self,
        assigned: AssignedQueue,
        messages: list[MessageExt],
        subscription: Subscription,
        on_end: Callable[[ConcurrentCall], None],
        clock: Callable[[], float],
        breaker: CircuitBreaker | None,
    ) -> None:
        self.assigned = assigned
        self.messages = messages
        self.subscription = subscription
        self.on_end = on_end
        self.clock = clock
        self.breaker = breaker
        self.is_probe = breaker is not None and breaker.is_open
        self.outcome: HandlerOutcome | None = None
        """What came of it; None where the handler was not called."""
        self.started_at = 0.0
        self.spent_s = 0.0
        self.expired: list[MessageExt] = []
        """Messages that were sent back meanwhile, since the handler took too long."""

    def run(self) -> None:
        """Call a plain handler, unless the queue was given away (in a thread)."""
        if self._may_start():
            handler = cast("SyncHandler", self.subscription.handler)
            self.started_at = self.clock()
            self.outcome = self._unreadable() or handlers.call_handler(handler, self.messages)
            self.spent_s = self.clock() - self.started_at

    async def run_async(self) -> None:
        """Call an async handler, unless the queue was given away."""
        if self._may_start():
            handler = cast("AsyncHandler", self.subscription.handler)
            self.started_at = self.clock()
            self.outcome = self._unreadable() or await handlers.call_async_handler(
                handler, self.messages
            )
            self.spent_s = self.clock() - self.started_at
        self.on_end(self)

    def report_end(self) -> None:
        """Report the end of a call that ran in a thread (on the loop)."""
        self.on_end(self)

    def _unreadable(self) -> HandlerOutcome | None:
        """The failure of a message that no handler may get."""
        return handlers.unreadable_outcome(self.messages) if self.assigned.has_unreadable else None

    def _may_start(self) -> bool:
        """Whether the queue is still ours, and no outage of the topic has begun meanwhile."""
        is_out = self.breaker is not None and self.breaker.is_open and not self.is_probe
        return not self.assigned.is_dropped and not is_out
