"""One queue that this consumer works on now: its window, its lock, its tasks.

Owns the state between "the queue is mine" and "it is given away"; refuses to know who decides
that. Invariant: once dropped it is never revived; a queue that comes back gets a new object, so
late results of the old one fall on deaf ears.
Java: ProcessQueue (its state), PullRequest
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.rules.process_queue import ProcessQueue

if TYPE_CHECKING:
    from cometmq.model.message import MessageExt
    from cometmq.model.queue import MessageQueue


class AssignedQueue:
    """A queue in work. The loop owns it; handler threads only read `is_dropped`."""

    __slots__ = (
        "broker_id",
        "committed_offset",
        "consumed_at",
        "has_lost_lock",
        "in_flight",
        "is_dropped",
        "is_paused",
        "lock_until",
        "one_by_one_until",
        "probed_at",
        "pull_task",
        "pulled_at",
        "queue",
        "tasks",
        "uncommitted",
        "window",
        "work_available",
    )

    def __init__(self, queue: MessageQueue, start_offset: int) -> None:
        self.queue = queue
        self.window: ProcessQueue[MessageExt] = ProcessQueue(start_offset)
        self.is_dropped = False
        self.is_paused = False
        """Whether nothing shall be pulled for now."""
        self.work_available = asyncio.Event()
        """Set when messages wait, or when the queue was dropped."""
        self.uncommitted: list[MessageExt] = []
        """Handled in order, but not yet committed by the handler."""
        self.in_flight = 0
        """Messages in handlers now."""
        self.lock_until = 0.0
        """Until when (loop time) the queue's lock is surely ours."""
        self.has_lost_lock = False
        """Whether somebody else may have worked on the queue since our last message."""
        self.one_by_one_until = -1
        """Up to which offset messages are handled one at a time, since a batch has failed."""
        self.probed_at = 0.0
        """When (loop time) it last tried a message for all of its topic, in an outage."""
        self.broker_id = 0
        self.pulled_at = 0.0
        self.consumed_at = 0.0
        self.tasks: list[asyncio.Task[None]] = []
        """What works on the queue, the pulling apart."""
        self.pull_task: asyncio.Task[None] | None = None

        self.committed_offset: int | None = None
        """The offset that a broker surely has of us; None where commits go with pulls."""

    @property
    def span(self) -> int:
        """How far the queue is ahead: of its lowest unfinished message, or of what was told."""
        window = self.window
        return (
            window.span
            if self.committed_offset is None
            else window.next_offset - self.committed_offset
        )

    def drop(self) -> None:
        """Stop working on the queue: no further pull, no further message to a handler."""
        self.is_dropped = True
        self.work_available.set()
        if self.pull_task is not None:
            self.pull_task.cancel()

    def cancel_tasks(self) -> None:
        """Leave a handler alone that does not end in time; nothing it says is heard any more."""
        for task in self.tasks:
            task.cancel()

    def holds_lock(self, now: float) -> bool:
        """Whether the queue's lock is surely ours at `now` (loop time)."""
        return now < self.lock_until

    def lose_lock(self) -> None:
        """Take the lock for lost: somebody else may have the queue."""
        self.lock_until = 0.0
        self.has_lost_lock = True
