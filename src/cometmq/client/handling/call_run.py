"""Messages of one queue and topic on their way through a handler, in calls of a few each.

Owns which calls were claimed and what came of them; knows nothing of threads, retries and windows.
Many calls in one object cost no more than one: a backlog with a message a call spent most of its
time on an object, a job and a hand-over for each. Each call is claimed once, by whichever worker
comes first; what has ended is taken on the loop. Lists and iterators are changed in one step each,
so threads need no lock.
Java: ConsumeMessageConcurrentlyService.ConsumeRequest
"""

from __future__ import annotations

from operator import length_hint
from typing import TYPE_CHECKING, NamedTuple

from cometmq.client.handling import handler_call as handlers
from cometmq.client.handling.handler_call import DONE, HandlerOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.consumer.subscriptions import Subscription
    from cometmq.model.message import MessageExt
    from cometmq.rules.failures.circuit_breaker import CircuitBreaker


_NO_FAILURES: Mapping[int, HandlerOutcome] = {}
_NONE_SKIPPED: Set[int] = frozenset()


class EndedCalls(NamedTuple):
    """Calls of a run that have ended; places are those of their first messages."""

    places: list[int]
    """Of all of them, in the order in which they ended."""
    failures: Mapping[int, HandlerOutcome]
    """Of those that did not end well."""
    skipped: Set[int]
    """Those whose handler was not called."""
    spent_s: float


class CallRun:
    """One run of messages, divided into calls of `size`. Made and taken on the loop."""

    __slots__ = (
        "assigned",
        "breaker",
        "calls",
        "ended",
        "expired",
        "failures",
        "held_until",
        "is_probe",
        "messages",
        "open",
        "size",
        "skipped",
        "spent",
        "starts",
        "subscription",
        "unreadable",
    )

    def __init__(
        self,
        assigned: AssignedQueue,
        messages: list[MessageExt],
        size: int,
        subscription: Subscription,
        breaker: CircuitBreaker | None = None,
    ) -> None:
        """`breaker`: that of a run of one call, which counts for it."""
        self.assigned = assigned
        self.messages = messages
        self.size = size
        self.subscription = subscription
        self.breaker = breaker
        self.is_probe = breaker is not None and breaker.is_open
        self.unreadable = handlers.unreadable_outcome(messages) if assigned.has_unreadable else None
        """The failure of a message that no handler may get."""
        self.starts = iter(range(0, len(messages), size))
        """The places of the calls that nobody has claimed: the next one claims a call."""
        self.ended: list[int] = []
        self.spent: list[float] = []
        self.failures: dict[int, HandlerOutcome] = {}
        self.skipped: set[int] = set()
        self.calls = self.open = self.unclaimed
        """Calls that were not taken from here."""
        self.expired: list[MessageExt] = []
        """Messages that were sent back meanwhile, since the handler took too long."""
        self.held_until = 0.0
        """Until when (loop time) ended calls wait for the others of the run; 0: none do."""

    @property
    def unclaimed(self) -> int:
        """Calls that nobody has claimed."""
        return length_hint(self.starts)

    @property
    def is_out(self) -> bool:
        """Whether an outage of the topic has begun meanwhile."""
        return self.breaker is not None and self.breaker.is_open and not self.is_probe

    def end(self, at: int, outcome: HandlerOutcome, spent_s: float) -> None:
        """Note what came of a call (where it ran)."""
        if outcome is not DONE and not outcome.is_done:
            self.failures[at] = outcome
        self.spent.append(spent_s)
        self.ended.append(at)

    def skip(self, at: int) -> None:
        """Note that the handler was not called (in any thread)."""
        self.skipped.add(at)
        self.ended.append(at)

    def take_ended(self) -> EndedCalls:
        """The calls that have ended since the last time."""
        places, spent = self.ended[:], self.spent[:]
        del self.ended[: len(places)], self.spent[: len(spent)]
        self.open -= len(places)
        assert self.open >= 0, "more calls ended than there were"
        self.held_until = 0.0
        failures, skipped = _NO_FAILURES, _NONE_SKIPPED
        if self.failures:
            failures = {at: self.failures.pop(at) for at in places if at in self.failures}
        if self.skipped:
            skipped = self.skipped.intersection(places)
        return EndedCalls(places, failures, skipped, sum(spent))

    def call(self, at: int) -> list[MessageExt]:
        """The messages of a call."""
        return self.messages[at : at + self.size]
