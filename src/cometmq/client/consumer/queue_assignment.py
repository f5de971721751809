"""The queues that this member works on: how they are taken, restarted and given away.

Owns the table of queues in work; knows nothing of how the group shares its queues out. Invariant: a
queue given away is committed, then unlocked, before another member can have it in order; while a
handler still has messages of a dropped queue, the queue is not started again here.
Java: RebalanceImpl.updateProcessQueueTableInRebalance, RebalancePushImpl
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

from cometmq.client.consumer.assigned_queue import AssignedQueue
from cometmq.client.consumer.queue_lease import FOR_EVER, REFUSED
from cometmq.errors import CometError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from cometmq.client.consumer.consumer_options import ConsumerOptions
    from cometmq.client.consumer.queue_lease import QueueLease
    from cometmq.client.consumer.queue_locks import QueueLockClient
    from cometmq.client.consumer.repeated_problem_log import ProblemLog
    from cometmq.client.handling.consume_strategy import ConsumeStrategy
    from cometmq.client.offsets.offset_store import OffsetStore
    from cometmq.model.queue import MessageQueue
    from cometmq.runtime.background import BackgroundTasks

log = logging.getLogger(__name__)

_SLOW_S = 30.0
_RESTART_PAUSE_S = 1.0


class QueueStarter(Protocol):
    """What starts to pull a queue."""

    def start_queue(self, assigned: AssignedQueue) -> None:
        """Start; ends by itself once the queue is dropped."""


class QueueAssignment:
    """The queues of one member of a group. One loop owns it."""

    def __init__(
        self,
        options: ConsumerOptions,
        offsets: OffsetStore,
        locks: QueueLockClient | None,
        background: BackgroundTasks,
        problems: ProblemLog,
    ) -> None:
        self._options = options
        self._offsets = offsets
        self._locks = locks
        self._background = background
        self._problems = problems
        self.table: dict[MessageQueue, AssignedQueue] = {}
        """The queues in work."""
        self.round_needed = asyncio.Event()
        """Set when a round of rebalance may take a queue again."""
        self._leaving: dict[MessageQueue, AssignedQueue] = {}
        self._to_resume: set[MessageQueue] = set()  # restarting, and perhaps still locked
        self.is_paused = False
        """Whether pulling is paused for all queues, those to come included."""
        self._strategy: ConsumeStrategy
        self._pull_loop: QueueStarter

    def connect(self, strategy: ConsumeStrategy, pull_loop: QueueStarter) -> None:
        """Name who works on queues; needed once before the first queue is taken."""
        self._strategy = strategy
        self._pull_loop = pull_loop

    def pause(self, *, is_paused: bool) -> None:
        """Stop pulling all queues, those taken later included, or pull them again."""
        self.is_paused = is_paused
        for assigned in self.table.values():
            assigned.is_paused = is_paused

    def queue_count(self, topic: str) -> int:
        """How many queues of a topic are in work."""
        return sum(queue.topic == topic for queue in self.table)

    @property
    def locked_queues(self) -> list[AssignedQueue]:
        """All queues whose lock is still needed: those in work and those being given away."""
        return [*self.table.values(), *self._leaving.values()]

    def restart_queue(self, assigned: AssignedQueue) -> None:
        """Drop a queue without committing anything; the next round takes it again."""
        assigned.drop()
        if self.table.get(assigned.queue) is assigned:
            del self.table[assigned.queue]
        self._offsets.forget(assigned.queue)
        self._to_resume.add(assigned.queue)
        self._finish_later(assigned, self._wait_for_handlers(assigned))
        self.round_needed.set()

    def restart_after_error(self, assigned: AssignedQueue) -> None:
        """Restart a queue, after a pause, whose work ended with an unforeseen error."""
        if not assigned.is_dropped:
            loop = asyncio.get_running_loop()
            loop.call_later(_RESTART_PAUSE_S, self._restart_unless_dropped, assigned)

    def restart_at(self, assigned: AssignedQueue, offset: int) -> None:
        """Drop a queue and start it again at `offset`, which is committed."""
        self.restart_queue(assigned)
        self._offsets.reset(assigned.queue, offset)
        self._offsets.persist([assigned.queue])

    async def assign(self, topic: str, queues: list[MessageQueue]) -> bool:
        """Give away what is no longer ours of a topic, and take what is; False if some is missing.

        Missing are queues that are locked by others, whose offset is not known, or whose last
        handler here has not ended.
        """
        wanted = set(queues)
        for queue, assigned in list(self.table.items()):
            if queue.topic == topic and queue not in wanted:
                log.info("releasing %s", queue)
                del self.table[queue]
                assigned.drop()
                self._finish_later(assigned, self._give_away(assigned))
        gone = {queue for queue in self._to_resume if queue.topic == topic} - wanted
        await self._forget(gone - self._leaving.keys())
        new = [queue for queue in queues if queue not in self.table]
        ready = [queue for queue in new if queue not in self._leaving]
        try:
            locked = await self._lock(ready)
            started = await asyncio.gather(*(self._start(queue, lock) for queue, lock in locked))
        except asyncio.CancelledError:  # we are leaving: others shall not wait for these locks
            await self._forget(set(ready) - self.table.keys())
            raise
        return all(started) and len(started) == len(new)

    async def stop(self) -> None:
        """Give all queues back, finished and committed; bounded by the stop timeout."""
        table = list(self.table.values())
        for assigned in table:
            assigned.drop()
        loop, timeout_s = asyncio.get_running_loop(), self._options.stop_timeout_s
        deadline = loop.time() + timeout_s
        await asyncio.gather(*(self._finish(assigned, timeout_s) for assigned in table))
        while self._leaving and loop.time() < deadline:
            await asyncio.sleep(0.01)
        await asyncio.gather(*map(self._keep_from_others, self._leaving.values()))
        for assigned in (*table, *self._leaving.values()):
            assigned.cancel_tasks()
        await self._forget(self._to_resume - self._leaving.keys())

    def abandon(self) -> None:
        """Stop all work on queues now, without finishing, committing or unlocking any."""
        for assigned in (*self.table.values(), *self._leaving.values()):
            assigned.drop()
            assigned.cancel_tasks()

    async def _lock(self, queues: list[MessageQueue]) -> list[tuple[MessageQueue, QueueLease]]:
        if self._locks is None or not queues:
            return [(queue, FOR_EVER) for queue in queues]
        locks = await self._locks.lock(queues)
        return [(queue, lock) for queue, lock in locks.items() if lock is not REFUSED]

    async def _start(self, queue: MessageQueue, lock: QueueLease) -> bool:
        try:
            offset = await self._offsets.start_offset(queue)
        except CometError as error:
            self._problems.report(f"where to begin in {queue} is not known: {error}")
            return False
        assert queue not in self.table, "a queue is taken once"
        log.info("taking %s from offset %d", queue, offset)
        self._to_resume.discard(queue)
        assigned = self.table[queue] = AssignedQueue(queue, offset)
        assigned.is_paused = self.is_paused
        assigned.lock = lock
        self._strategy.start_queue(assigned)
        self._pull_loop.start_queue(assigned)
        for task in (*assigned.tasks, assigned.pull_task):
            if task is not None:
                task.add_done_callback(partial(self._check_task, assigned))
        return True

    def _check_task(self, assigned: AssignedQueue, task: asyncio.Task[None]) -> None:
        """Restart the queue when one of its tasks ended with an error."""
        error: BaseException | None = None
        try:
            error = task.exception()
        except asyncio.CancelledError as cancelled:
            if not task.cancelling():  # by something it waited for, not by us
                error = cancelled
        if error is not None:
            log.error("%s ended with an error", task.get_name(), exc_info=error)
            self.restart_after_error(assigned)

    def _restart_unless_dropped(self, assigned: AssignedQueue) -> None:
        if not assigned.is_dropped:
            self.restart_queue(assigned)

    def _finish_later(self, assigned: AssignedQueue, work: Coroutine[object, object, None]) -> None:
        """Finish a dropped queue in the background; until then it is not taken again here."""
        self._leaving[assigned.queue] = assigned
        self._background.spawn(self._leave(assigned.queue, work), name="give away")

    async def _leave(self, queue: MessageQueue, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        finally:
            self._leaving.pop(queue, None)
            self.round_needed.set()

    async def _wait_for_handlers(self, assigned: AssignedQueue) -> None:
        """Let an orderly handler end, however long it takes: a second one would break the order.

        Until then the lock is renewed, so that nobody else starts either.
        """
        while self._options.is_locking and not await self._strategy.drain_queue(assigned, _SLOW_S):
            log.warning("%s is kept from others until its handler is done", assigned.queue)

    async def _give_away(self, assigned: AssignedQueue) -> None:
        await self._wait_for_handlers(assigned)
        await self._release(assigned)

    async def _finish(self, assigned: AssignedQueue, timeout_s: float) -> None:
        await self._strategy.drain_queue(assigned, timeout_s)
        await self._release(assigned)

    async def _release(self, assigned: AssignedQueue) -> None:
        """Commit and unlock; the lock of a queue whose handler still runs is left to expire."""
        queue, offset = assigned.queue, assigned.window.commit_offset
        try:
            if not assigned.has_lost_lock:
                await self._offsets.commit(queue, offset)
        except CometError as error:
            log.warning(
                "the offset %d of %s was not committed at leaving: %s", offset, queue, error
            )
        if assigned.in_flight:
            self._offsets.forget(queue)
            await self._keep_from_others(assigned)
        else:
            await self._forget({queue})

    async def _keep_from_others(self, assigned: AssignedQueue) -> None:
        """Let the lock of a queue whose handler still runs outlast our stay in the group."""
        is_held = assigned.holds_lock(asyncio.get_running_loop().time())
        if self._locks is not None and assigned.in_flight and is_held:
            await self._locks.keep_until_it_expires(assigned.queue)

    async def _forget(self, queues: set[MessageQueue]) -> None:
        """Forget queues that are no longer ours, and return their locks."""
        self._to_resume -= queues
        for queue in queues:
            self._offsets.forget(queue)
        if self._locks is not None:
            await asyncio.gather(*map(self._locks.unlock, queues))
