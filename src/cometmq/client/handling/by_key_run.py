"""What the strategy by key keeps of a queue, and one run of a lane's messages through the handler.

Owns the state that belongs neither to the queue (`AssignedQueue`) nor to its lanes
(`rules.queues.by_key_process_queue`); knows nothing of slots, failure decisions and commits.
Java: nothing alike
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.client.handling.handler_run import HandlerRun
from cometmq.rules.queues.by_key_process_queue import ByKeyProcessQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.consumer.subscriptions import Subscription
    from cometmq.client.offsets.offset_journal_files import OffsetJournalFile
    from cometmq.client.parking.queue_parking import QueueParking
    from cometmq.model.message import MessageExt
    from cometmq.rules.failures.circuit_breaker import CircuitBreaker
    from cometmq.rules.queues.by_key_process_queue import LaneBatch

RUN_MESSAGES = 64
_RUN_S = 0.05
"""How long a run goes on: the journal learns of what is done only when it ends.

Measured with handlers of 10 ms at 100 queues, messages/s beside a concurrent consumer's: 0.77 with
runs of 0.01 s, one for each thread, and a journal written for each; 0.95 to 1.00 now (2026-11-23,
bench/pressure.py).
"""


class KeyQueueState:
    """One queue that is handled by key. The loop owns it."""

    __slots__ = (
        "assigned",
        "blocking_logged_at",
        "commit_lock",
        "committed_at",
        "file",
        "is_waiting_for_slot",
        "is_write_scheduled",
        "key_queue",
        "parking",
        "run_messages",
        "runs",
        "wake_timer",
        "written_at",
    )

    def __init__(
        self, assigned: AssignedQueue, file: OffsetJournalFile, breaker: CircuitBreaker
    ) -> None:
        self.assigned = assigned
        self.file = file
        self.key_queue: ByKeyProcessQueue[MessageExt] = ByKeyProcessQueue(
            assigned.window, file.journal, breaker
        )
        self.is_waiting_for_slot = False
        self.is_write_scheduled = False
        """Whether the journal is going to be written."""
        self.written_at = 0.0
        """When (loop time) the journal was written last."""
        self.run_messages = 1
        """How many messages the next run takes: about as many as the last one had time for."""
        self.runs: set[KeyRun] = set()
        """The runs that wait for a thread, or go on."""
        self.commit_lock = asyncio.Lock()
        self.committed_at = 0.0
        """When (loop time) the last commit began; 0: never."""
        self.blocking_logged_at = 0.0
        self.wake_timer: asyncio.TimerHandle | None = None
        self.parking: QueueParking | None = None
        """Present where a policy parks keys."""

    def adapt_run(self, done: int, taken: int) -> None:
        """Let the next run take twice as many when this one has done all, else what it has done."""
        self.run_messages = min(2 * taken, RUN_MESSAGES) if done == taken else max(done, 1)

    def close(self) -> None:
        """Cancel the timer and close the file."""
        if self.wake_timer is not None:
            self.wake_timer.cancel()
        self.file.close()


class KeyRun(HandlerRun):
    """A run of one lane's messages, which also ends when an outage begins."""

    __slots__ = ("_unclaimed", "batch", "state")

    def __init__(
        self,
        state: KeyQueueState,
        batch: LaneBatch[MessageExt],
        subscription: Subscription,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(state.assigned, batch.messages, subscription, clock, _RUN_S)
        self.state = state
        self.batch = batch
        self._unclaimed = [True]

    def claim(self) -> bool:
        """Whether nobody has claimed it: the thread that begins it, or the loop that withdraws it.

        Thread-safe: one of them gets it.
        """
        try:
            return self._unclaimed.pop()
        except IndexError:
            return False

    def run(self, batch_size: int) -> None:
        """Run a plain handler (in a thread), unless the run was withdrawn."""
        if self.claim():
            super().run(batch_size)

    async def run_async(self, batch_size: int) -> None:
        """Run an async handler, unless the run was withdrawn."""
        if self.claim():
            await super().run_async(batch_size)

    def _may_go_on(self, now: float, until: float) -> bool:
        is_held_back = self.state.key_queue.breaker.is_open and not self.batch.is_probe
        return not is_held_back and super()._may_go_on(now, until)
