"""One queue that this member works on: its process queue, its lock and its tasks.

Owns the state from the moment the queue is taken until it is given away; knows nothing of who
decides that. Invariant: a dropped queue is never used again. When the queue comes back it gets a
new object, so late results of the old one are ignored.
Java: ProcessQueue (its state), PullRequest
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.client.consumer.queue_lease import REFUSED
from cometmq.rules.queues.process_queue import ProcessQueue

if TYPE_CHECKING:
    from cometmq.client.consumer.queue_lease import QueueLease
    from cometmq.model.message import MessageExt
    from cometmq.model.queue import MessageQueue

_DROP_CHECK_S = 0.05
_IDLE_CHECK_S = 0.01


class AssignedQueue:
    """A queue in work. The loop owns it; handler threads only read `is_dropped`."""

    __slots__ = (
        "broker_id",
        "committed_offset",
        "consumed_at",
        "gives_large_pulls",
        "has_lost_lock",
        "has_unreadable",
        "in_flight",
        "is_dropped",
        "is_paused",
        "limited_s",
        "lock",
        "one_by_one_until",
        "probed_at",
        "pull_task",
        "pulled_at",
        "queue",
        "room_wanted",
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
        """Whether pulling is paused."""
        self.limited_s: dict[str, float] = {}
        """How long each limit of flow control kept it from being pulled."""
        self.work_available = asyncio.Event()
        """Set when messages wait, and when the queue was dropped or has lost its lock."""
        self.uncommitted: list[MessageExt] = []
        """Handled in order, but not yet committed by the handler."""
        self.in_flight = 0
        """Messages (by key: batches) that handlers have now."""
        self.lock = REFUSED
        """The queue's lock, as far as it is certainly ours."""
        self.has_lost_lock = False
        """Whether another member may have worked on the queue since our last message."""
        self.has_unreadable = False
        """Whether a pull has brought messages that no handler may get; then each is a batch."""
        self.one_by_one_until = -1
        """Up to which offset messages are handled one at a time, since a batch has failed."""
        self.probed_at = 0.0
        """When (loop time) it last tried a message for all queues of its topic, in an outage."""
        self.broker_id = 0
        self.gives_large_pulls = False
        """Whether a pull has brought more messages than brokers usually give."""
        self.room_wanted: tuple[int, asyncio.Future[None]] | None = None
        """Who waits until the window holds so many messages or fewer."""
        self.pulled_at = 0.0
        self.consumed_at = 0.0
        self.tasks: list[asyncio.Task[None]] = []
        """What works on the queue, apart from the pull task."""
        self.pull_task: asyncio.Task[None] | None = None
        self.committed_offset: int | None = None
        """The offset the broker has for certain; None where pulls carry the commits."""

    @property
    def span(self) -> int:
        """How many offsets lie between the lowest that is not finished (or committed) and the top.

        By key a broker's offset counts, since what is done above it must fit into the journal.
        """
        window, committed = self.window, self.committed_offset
        return window.span if committed is None else window.next_offset - committed

    def drop(self) -> None:
        """Stop working on the queue: no further pull, no further message to a handler."""
        self.is_dropped = True
        self.work_available.set()
        if self.pull_task is not None:
            self.pull_task.cancel()

    def cancel_tasks(self) -> None:
        """Give up on a handler that does not end in time; its results are ignored."""
        for task in self.tasks:
            task.cancel()

    async def wait_until_idle(self, timeout_s: float) -> bool:
        """Wait until no handler has a message of the queue; whether that was in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while self.in_flight and loop.time() < deadline:
            await asyncio.sleep(_IDLE_CHECK_S)
        assert self.in_flight >= 0, "more messages came back from handlers than went out"
        return not self.in_flight

    async def sleep_unless_dropped(self, pause_s: float) -> None:
        """Sleep, but wake up soon after the queue is dropped."""
        loop = asyncio.get_running_loop()
        until = loop.time() + pause_s
        while not self.is_dropped and (left_s := until - loop.time()) > 0:
            await asyncio.sleep(min(left_s, _DROP_CHECK_S))

    async def wait_for_room(self, count: int, timeout_s: float) -> None:
        """Wait until the window holds at most `count` messages, for `timeout_s` at most."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self.room_wanted = count, waiter
        timer = loop.call_later(timeout_s, _release, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self.room_wanted = None

    def note_room(self) -> None:
        """Wake who waits for room in the window, if there is enough now."""
        if self.room_wanted is not None and self.window.count <= self.room_wanted[0]:
            _release(self.room_wanted[1])

    def holds_lock(self, now: float) -> bool:
        """Whether the queue's lock is certainly ours at `now` (loop time)."""
        return self.lock.is_valid(now)

    def lose_lock(self) -> None:
        """Treat the lock as lost: another member may have the queue. Wakes whoever works on it."""
        self.lock = REFUSED
        self.has_lost_lock = True
        self.work_available.set()

    def regain_lock(self, lock: QueueLease) -> None:
        """Note a lock taken again, where nobody else has worked on the queue meanwhile."""
        assert lock is not REFUSED, "a lock that was refused is no lock"
        self.has_lost_lock = False
        self.lock = lock


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
