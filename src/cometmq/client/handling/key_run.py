"""What a consumer by key holds of a queue, and one run of a lane's messages through the handler.

Owns the state that is neither the queue's (`assigned`) nor the lanes' (`rules.key_queue`); refuses
to know slots, verdicts and commits, and how a handler is run (`stint`).
Java: nothing alike
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.client.handling.handler_run import HandlerRun
from cometmq.rules.key_queue import KeyQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.consumer.subscriptions import Subscription
    from cometmq.client.offsets.completed_offset_store import CompletedOffsetFile
    from cometmq.model.message import MessageExt
    from cometmq.rules.circuit_breaker import CircuitBreaker
    from cometmq.rules.key_queue import LaneBatch

STINT_MESSAGES = 64
_STINT_S = 0.01  # what is done is not written down before the end of a stint


class AssignedKeyQueue:
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

    def __init__(
        self, assigned: AssignedQueue, found: CompletedOffsetFile, breaker: CircuitBreaker
    ) -> None:
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


class KeyRun(HandlerRun):
    """A stint of one lane's messages, which ends as well when an outage begins."""

    __slots__ = ("turn", "work")

    def __init__(
        self,
        work: AssignedKeyQueue,
        turn: LaneBatch[MessageExt],
        subscription: Subscription,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(work.assigned, turn.messages, subscription, clock, _STINT_S)
        self.work, self.turn = work, turn

    def _may_go_on(self, until: float) -> bool:
        is_held_back = self.work.keys.breaker.is_open and not self.turn.is_probe
        return not is_held_back and super()._may_go_on(until)
