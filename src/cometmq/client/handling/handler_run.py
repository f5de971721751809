"""A run of one queue's messages through a handler, batch by batch, up to a failure.

Owns the loop over batches and the counts of what was done and failed; knows nothing of slots,
failure decisions and commits. Many small batches in one run cost one hand-over to a thread.
Invariant: a run changes only itself until it is back on the loop, so threads need no lock.
Java: ConsumeMessageOrderlyService.ConsumeRequest
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from cometmq.client.handling import handler_call as handlers

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.consumer.subscriptions import Subscription
    from cometmq.client.handling.handler_call import AsyncHandler, HandlerOutcome, SyncHandler
    from cometmq.client.middleware.middleware import ReportRun
    from cometmq.model.message import MessageExt


class HandlerRun:
    """A run of messages of one topic; `outcome` is that of the last call.

    It ends early when the queue is dropped, when its lock may have run out, and after `max_s`
    seconds, so that commits go on; one batch is handled in any case.
    """

    __slots__ = (
        "assigned",
        "calls",
        "clock",
        "done",
        "failed",
        "max_s",
        "messages",
        "outcome",
        "spent_s",
        "subscription",
    )

    def __init__(
        self,
        assigned: AssignedQueue,
        messages: list[MessageExt],
        subscription: Subscription,
        clock: Callable[[], float],
        max_s: float,
    ) -> None:
        """Take the first messages, as far as they are of one topic."""
        self.assigned = assigned
        self.messages = _of_one_topic(messages, assigned.queue.topic)
        self.subscription = subscription
        self.clock = clock
        self.max_s = max_s
        self.calls = 0
        self.done = 0
        self.failed = 0
        self.spent_s = 0.0
        self.outcome: HandlerOutcome = handlers.DONE

    def run(self, batch_size: int) -> None:
        """Run a plain handler (in a thread)."""
        handler, began = cast("SyncHandler", self.subscription.handler), self.clock()
        until = began + self.max_s
        while self._may_go_on(began, until):
            batch = self._next_batch(batch_size)
            outcome = self._unreadable(batch) or handlers.call_handler(handler, batch)
            began = self._count(outcome, len(batch), began)

    async def run_async(self, batch_size: int) -> None:
        """Run an async handler."""
        handler, began = cast("AsyncHandler", self.subscription.handler), self.clock()
        until = began + self.max_s
        while self._may_go_on(began, until):
            batch = self._next_batch(batch_size)
            outcome = self._unreadable(batch) or await handlers.call_async_handler(handler, batch)
            began = self._count(outcome, len(batch), began)

    def report_to(self, report: ReportRun) -> None:
        """Report the counts, under the topic of the queue."""
        topic = self.assigned.queue.topic
        report(topic, self.calls, self.spent_s, self.done, self.failed)

    def _next_batch(self, size: int) -> list[MessageExt]:
        batch = self.messages[self.done : self.done + size]
        return handlers.readable_runs(batch)[0] if self.assigned.has_unreadable else batch

    def _unreadable(self, batch: list[MessageExt]) -> HandlerOutcome | None:
        """The failure of a message that no handler may get."""
        return handlers.unreadable_outcome(batch) if self.assigned.has_unreadable else None

    def _may_go_on(self, now: float, until: float) -> bool:
        if self.failed or self.done == len(self.messages) or self.assigned.is_dropped:
            return False
        return self.assigned.holds_lock(now) and (now < until or not self.calls)

    def _count(self, outcome: HandlerOutcome, size: int, began: float) -> float:
        """Count a call that ends now; return that time."""
        now = self.clock()
        self.calls += 1
        self.spent_s += now - began
        self.outcome = outcome
        if outcome.is_done:
            self.done += size
        else:
            assert 0 <= outcome.done_count <= size, "more was done than was given"
            self.done += outcome.done_count
            self.failed = size - outcome.done_count
        return now


def _of_one_topic(messages: list[MessageExt], queue_topic: str) -> list[MessageExt]:
    """The first messages of one topic: a retry queue holds those of several."""
    topic = messages[0].topic
    if topic == queue_topic or len(messages) == 1:
        return messages
    end = next((at for at, one in enumerate(messages) if one.topic != topic), len(messages))
    return messages[:end]
