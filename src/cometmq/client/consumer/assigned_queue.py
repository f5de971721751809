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
        "alone_until",
        "arrived",
        "broker_id",
        "consumed_at",
        "has_lost_lock",
        "held",
        "in_hand",
        "is_dropped",
        "is_paused",
        "lock_until",
        "probed_at",
        "pull_task",
        "pulled_at",
        "queue",
        "tasks",
        "told",
        "window",
    )

    def __init__(self, queue: MessageQueue, start_offset: int) -> None:
        self.queue = queue
        self.window: ProcessQueue[MessageExt] = ProcessQueue(start_offset)
        self.is_dropped = False
        self.is_paused = False
        """Whether nothing shall be pulled for now."""
        self.arrived = asyncio.Event()
        """Set when messages wait, or when the queue was dropped."""
        self.held: list[MessageExt] = []
        """Handled in order, but not yet committed by the handler."""
        self.in_hand = 0
        """Messages in handlers now."""
        self.lock_until = 0.0
        """Until when (loop time) the queue's lock is surely ours."""
        self.has_lost_lock = False
        """Whether somebody else may have worked on the queue since our last message."""
        self.alone_until = -1
        """Up to which offset messages are handled one at a time, since a batch has failed."""
        self.probed_at = 0.0
        """When (loop time) it last tried a message for all of its topic, in an outage."""
        self.broker_id = 0
        self.pulled_at = 0.0
        self.consumed_at = 0.0
        self.tasks: list[asyncio.Task[None]] = []
        """What works on the queue, the pulling apart."""
        self.pull_task: asyncio.Task[None] | None = None

        self.told: int | None = None
        """The offset that a broker surely has of us; None where commits go with pulls."""

    @property
    def span(self) -> int:
        """How far the queue is ahead: of its lowest unfinished message, or of what was told."""
        window = self.window
        return window.span if self.told is None else window.next_offset - self.told

    def drop(self) -> None:
        """Stop working on the queue: no further pull, no further message to a handler."""
        self.is_dropped = True
        self.arrived.set()
        if self.pull_task is not None:
            self.pull_task.cancel()

    def abandon(self) -> None:
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
