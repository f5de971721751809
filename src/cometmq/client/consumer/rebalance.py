"""Which queues of the group are ours: asked, computed, taken and given away.

Owns the table of queues in work; refuses to know pulls and handlers beyond begin and drain.
Invariants: a queue given away is committed, then unlocked, before anybody else can have it in
order; what cannot be asked for leaves the table as it is; rounds never overlap.
Java: RebalanceImpl, RebalancePushImpl, RebalanceService
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Protocol

from cometmq.client.consumer.assigned_queue import AssignedQueue
from cometmq.errors import CometError
from cometmq.rules.allocate import share_of
from cometmq.wire.bodies.name_lists import decode_consumer_list
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.headers.client import GetConsumerListByGroupRequestHeader

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from cometmq.client.consumer.consumer_options import ConsumerOptions
    from cometmq.client.consumer.queue_locks import QueueLockClient
    from cometmq.client.consumer.subscriptions import Subscriptions
    from cometmq.client.offsets.offset_store import OffsetStore
    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.queue import MessageQueue

log = logging.getLogger(__name__)

_UNBALANCED_S = 0.5
_SLOW_S = 30.0
_ANEW_S = 1.0
_PROBLEMS_MAX = 100


class QueueStarter(Protocol):
    """Who starts work on a queue."""

    def start_queue(self, assigned: AssignedQueue) -> None:
        """Start; ends by itself once the queue is dropped."""


class QueueWorker(QueueStarter, Protocol):
    """Who runs handlers."""

    async def drain_queue(self, assigned: AssignedQueue, timeout_s: float) -> bool:
        """Wait until no handler has a message of the queue; whether that was in time."""


class Rebalance:
    """The share of one member of a group. One loop owns it."""

    def __init__(
        self,
        session: ClientSession,
        options: ConsumerOptions,
        subscriptions: Subscriptions,
        offsets: OffsetStore,
        locks: QueueLockClient | None,
    ) -> None:
        self._session, self._options, self._subscriptions = session, options, subscriptions
        self._offsets, self._locks = offsets, locks
        self.table: dict[MessageQueue, AssignedQueue] = {}
        """The queues in work."""
        self._leaving: dict[MessageQueue, AssignedQueue] = {}
        self._to_resume: set[MessageQueue] = set()  # given up, and perhaps still locked
        self._awake = asyncio.Event()
        self._not_before = 0.0
        self._is_paused = False
        self._said: set[str] = set()
        self._consume: QueueWorker
        self._pulls: QueueStarter

    def connect(self, consume: QueueWorker, pulls: QueueStarter) -> None:
        """Name who works on queues; needed once before `run`."""
        self._consume, self._pulls = consume, pulls

    def wake(self) -> None:
        """Have a round soon: something about the group has changed."""
        self._awake.set()

    def rejoin(self, grace_s: float) -> None:
        """Have a round after a pause: a broker came back, and its members are still coming.

        A round at once would see only those who were faster and share their queues out again.
        """
        self._not_before = asyncio.get_running_loop().time() + grace_s
        self._awake.set()

    def pause(self, *, is_paused: bool) -> None:
        """Have nothing pulled any more for the queues of now and later, or have it again."""
        self._is_paused = is_paused
        for assigned in self.table.values():
            assigned.is_paused = is_paused

    def queue_count(self, topic: str) -> int:
        """How many queues of a topic are in work."""
        return sum(queue.topic == topic for queue in self.table)

    @property
    def locked_queues(self) -> list[AssignedQueue]:
        """All queues whose lock is still needed: those in work and those being given away."""
        return [*self.table.values(), *self._leaving.values()]

    async def run(self) -> None:
        """Have rounds for ever: when woken, and every now and then."""
        is_balanced = False
        while True:
            await self._wait(self._options.rebalance_s if is_balanced else _UNBALANCED_S)
            is_balanced = await self._round()

    def restart_queue(self, assigned: AssignedQueue) -> None:
        """Drop a queue without committing anything; the next round begins it anew."""
        assigned.drop()
        if self.table.get(assigned.queue) is assigned:
            del self.table[assigned.queue]
        self._offsets.forget(assigned.queue)
        self._to_resume.add(assigned.queue)
        self._leave(assigned, self._wait_for_hands(assigned))
        self.wake()

    def restart_after_error(self, assigned: AssignedQueue) -> None:
        """Begin a queue anew, after a pause, whose work ended by an error nobody foresaw."""
        if not assigned.is_dropped:
            asyncio.get_running_loop().call_later(_ANEW_S, self._anew, assigned)

    def restart_at(self, assigned: AssignedQueue, offset: int) -> None:
        """Drop a queue and begin it anew at `offset`, which is committed."""
        self.restart_queue(assigned)
        self._offsets.reset(assigned.queue, offset)
        self._offsets.persist([assigned.queue])

    async def stop(self) -> None:
        """Give all queues back, finished and committed; bounded by the stop timeout."""
        table = list(self.table.values())
        for assigned in table:
            assigned.drop()
        timeout_s = self._options.stop_timeout_s
        await asyncio.gather(*(self._finish(assigned, timeout_s) for assigned in table))
        deadline = asyncio.get_running_loop().time() + timeout_s
        while self._leaving and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        for assigned in (*table, *self._leaving.values()):
            assigned.cancel_tasks()
        await self._let_go(self._to_resume - self._leaving.keys())

    async def _wait(self, pause_s: float) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(pause_s):
                await self._awake.wait()
        except TimeoutError:
            pass
        self._awake.clear()
        while self.table and (left_s := self._not_before - loop.time()) > 0:
            await asyncio.sleep(left_s)

    async def _round(self) -> bool:
        """Settle all topics; False when something is still open and needs a round soon."""
        is_balanced = True
        for topic in self._subscriptions.topics:
            try:
                is_balanced &= await self._topic_round(topic)
            except CometError as error:
                is_balanced = False
                self._say(str(error))
        if is_balanced:
            self._said.clear()
        return is_balanced

    async def _topic_round(self, topic: str) -> bool:
        queues = await self._session.routes.subscribe_queues(topic)
        if not queues:
            self._session.routes.mark_stale(topic)
            self._say(f"no name server knows the topic {topic} yet")
            return False
        if self._options.broadcasting:
            return await self._settle(topic, queues)
        members = await self._members(queues)
        if members is None:
            return False
        mine = share_of(self._options.allocate, self._session.client_id, queues, members)
        return await self._settle(topic, mine)

    async def _members(self, queues: Iterable[MessageQueue]) -> list[str] | None:
        """Who is in the group; None when no broker says so, or none has heard of us yet."""
        header = GetConsumerListByGroupRequestHeader(consumer_group=self._options.group)
        for broker_name in sorted({queue.broker_name for queue in queues}):
            command = request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, 0, header)
            try:
                addr = self._session.routes.read_addr(broker_name, 0)
                members = decode_consumer_list(
                    (await self._session.call_checked(addr, command)).body
                )
            except CometError as error:
                self._say(f"broker {broker_name} does not tell the group's members: {error}")
                continue
            if self.table and asyncio.get_running_loop().time() < self._not_before:
                return None
            if self._session.client_id in members:
                return members
            await self._session.heartbeat()
        return None

    async def _settle(self, topic: str, mine: list[MessageQueue]) -> bool:
        """Give away what is no longer ours and take what is; False when some is still missing."""
        wanted = set(mine)
        for queue, assigned in list(self.table.items()):
            if queue.topic == topic and queue not in wanted:
                log.info("giving %s away", queue)
                del self.table[queue]
                assigned.drop()
                self._leave(assigned, self._give_away(assigned))
        gone = {queue for queue in self._to_resume if queue.topic == topic} - wanted
        await self._let_go(gone - self._leaving.keys())
        new = [queue for queue in mine if queue not in self.table]
        ready = [queue for queue in new if queue not in self._leaving]
        try:
            locked = await self._locked(ready)
            begun = await asyncio.gather(*(self._begin(queue, until) for queue, until in locked))
        except asyncio.CancelledError:  # we are leaving: others shall not wait for these locks
            await self._let_go(set(ready) - self.table.keys())
            raise
        return all(begun) and len(begun) == len(new)

    async def _locked(self, queues: list[MessageQueue]) -> list[tuple[MessageQueue, float]]:
        if self._locks is None or not queues:
            return [(queue, inf) for queue in queues]
        return [
            (queue, until) for queue, until in (await self._locks.lock(queues)).items() if until
        ]

    async def _begin(self, queue: MessageQueue, lock_until: float) -> bool:
        try:
            offset = await self._offsets.start_offset(queue)
        except CometError as error:
            self._say(f"where to begin in {queue} is not known: {error}")
            return False
        log.info("taking %s from offset %d", queue, offset)
        self._to_resume.discard(queue)
        assigned = self.table[queue] = AssignedQueue(queue, offset)
        assigned.is_paused = self._is_paused
        assigned.lock_until = lock_until
        self._consume.start_queue(assigned)
        self._pulls.start_queue(assigned)
        for task in (*assigned.tasks, assigned.pull_task):
            if task is not None:
                task.add_done_callback(partial(self._ended, assigned))
        return True

    def _ended(self, assigned: AssignedQueue, task: asyncio.Task[None]) -> None:
        """Look how a task of a queue ended: before the queue is dropped only an error ends it."""
        error: BaseException | None = None
        try:
            error = task.exception()
        except asyncio.CancelledError as cancelled:
            if not task.cancelling():  # by something it waited for
                error = cancelled
        if error is not None:
            log.error("%s broke off", task.get_name(), exc_info=error)
            self.restart_after_error(assigned)

    def _anew(self, assigned: AssignedQueue) -> None:
        if not assigned.is_dropped:
            self.restart_queue(assigned)

    def _leave(self, assigned: AssignedQueue, work: Coroutine[object, object, None]) -> None:
        """Do what is left of a dropped queue; until then nobody here begins it anew."""
        self._leaving[assigned.queue] = assigned
        self._session.background.spawn(self._left(assigned.queue, work), name="give away")

    async def _left(self, queue: MessageQueue, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        finally:
            self._leaving.pop(queue, None)
            self.wake()

    async def _wait_for_hands(self, assigned: AssignedQueue) -> None:
        """Let an orderly handler end, however long it takes: a second one would break the order.

        Until then the lock is renewed, so that nobody else begins either.
        """
        while self._options.is_locking and not await self._consume.drain_queue(assigned, _SLOW_S):
            log.warning("%s is kept from others until its handler is done", assigned.queue)

    async def _give_away(self, assigned: AssignedQueue) -> None:
        await self._wait_for_hands(assigned)
        await self._release(assigned)

    async def _finish(self, assigned: AssignedQueue, timeout_s: float) -> None:
        await self._consume.drain_queue(assigned, timeout_s)
        await self._release(assigned)

    async def _release(self, assigned: AssignedQueue) -> None:
        """Commit and unlock; the lock of a queue whose handler still runs is left to run out."""
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
        else:
            await self._let_go({queue})

    async def _let_go(self, queues: set[MessageQueue]) -> None:
        """Forget queues that are no longer ours, and return their locks."""
        self._to_resume -= queues
        for queue in queues:
            self._offsets.forget(queue)
        if self._locks is not None:
            await asyncio.gather(*map(self._locks.unlock, queues))

    def _say(self, problem: str) -> None:
        """Log a problem once, until all is well again."""
        if problem not in self._said and len(self._said) < _PROBLEMS_MAX:
            self._said.add(problem)
            log.warning("%s (group %s)", problem, self._options.group)
