"""What a consumer by key holds of a queue, and one run of a lane's messages through the handler.

Owns the state that is neither the queue's (`assigned`) nor the lanes' (`rules.key_queue`), and the
loop over batches; refuses to know slots, verdicts and commits. Invariant: a call touches nothing
but itself until it is back on the loop, so threads need no lock.
Java: ConsumeMessageOrderlyService.ConsumeRequest
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from cometmq.client import handlers
from cometmq.rules.key_queue import KeyQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.client.assigned import Assigned
    from cometmq.client.done_store import DoneLog
    from cometmq.client.handlers import AsyncHandler, Outcome, SyncHandler
    from cometmq.client.subscriptions import Subscription
    from cometmq.model.message import MessageExt
    from cometmq.rules.breaker import Breaker
    from cometmq.rules.key_queue import Turn

STINT_MESSAGES = 64
_STINT_S = 0.01  # what is done is not written down before the end of a stint


class KeyWork:
    """One queue in work by key. The loop owns it."""

    __slots__ = (
        "assigned",
        "is_telling",
        "is_unwritten",
        "is_waiting",
        "keys",
        "log",
        "stuck_said",
        "told_at",
        "wake",
    )

    def __init__(self, assigned: Assigned, found: DoneLog, breaker: Breaker) -> None:
        self.assigned, self.log = assigned, found
        self.keys: KeyQueue[MessageExt] = KeyQueue(assigned.window, found.journal, breaker)
        self.is_waiting = False  # for a slot
        self.is_unwritten = False  # the journal is written at the end of this turn of the loop
        self.is_telling = asyncio.Lock()
        self.told_at = self.stuck_said = 0.0
        self.wake: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Let go of the timer and the file."""
        if self.wake is not None:
            self.wake.cancel()
        self.log.close()


class KeyCall:
    """A run of one lane's messages through the handler, batch by batch, up to a failure.

    It ends early when the queue is dropped, when its lock may have run out, when an outage begins,
    and after a hundredth of a second, so that what is done is soon written down.
    """

    __slots__ = (
        "calls",
        "clock",
        "done",
        "failed",
        "outcome",
        "own",
        "spent_s",
        "subscription",
        "turn",
        "work",
    )

    def __init__(
        self,
        work: KeyWork,
        turn: Turn[MessageExt],
        subscription: Subscription,
        clock: Callable[[], float],
    ) -> None:
        self.work, self.turn, self.subscription, self.clock = work, turn, subscription, clock
        topic = turn.messages[0].topic  # a retry queue holds messages of several topics
        own = turn.messages
        if own[-1].topic != topic or len(own) > 1:
            own = own[: next((at for at, one in enumerate(own) if one.topic != topic), len(own))]
        self.own = own
        self.done = self.failed = self.calls = 0
        self.spent_s = 0.0
        self.outcome: Outcome = handlers.DONE

    def run(self, batch_size: int) -> None:
        """Run a plain handler (in a thread)."""
        handler, until = cast("SyncHandler", self.subscription.handler), self.clock() + _STINT_S
        while self._may_go_on(until):
            batch = self.own[self.done : self.done + batch_size]
            began = self.clock()
            self._judge(handlers.run(handler, batch), len(batch), began)

    async def run_async(self, batch_size: int) -> None:
        """Run an async handler."""
        handler, until = cast("AsyncHandler", self.subscription.handler), self.clock() + _STINT_S
        while self._may_go_on(until):
            batch = self.own[self.done : self.done + batch_size]
            began = self.clock()
            self._judge(await handlers.run_async(handler, batch), len(batch), began)

    def _may_go_on(self, until: float) -> bool:
        assigned = self.work.assigned
        if self.failed or self.done == len(self.own) or assigned.is_dropped:
            return False
        now = self.clock()
        is_held_back = self.work.keys.breaker.is_open and not self.turn.is_probe
        return assigned.holds_lock(now) and not is_held_back and (now < until or not self.done)

    def _judge(self, outcome: Outcome, size: int, began: float) -> None:
        self.calls += 1
        self.spent_s += self.clock() - began
        if outcome.is_done:
            self.done += size
        else:
            self.done += outcome.done
            self.failed, self.outcome = size - outcome.done, outcome
