"""Orderly handling: one handler at a time per queue, in the queue's order, under the broker's lock.

Owns the loop of one queue: lock, batch, handler, commit, and after a failure rest, try again, or
bury; refuses to know pulls and rebalance. Invariants: the handler gets a message only after all
before it in the queue are done or buried; nothing is handled without a lock that surely holds.
A batch that fails is handled one message at a time from then on, so one bad message neither spends
the attempts of its neighbours nor takes them with it.
Java: ConsumeMessageOrderlyService
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from cometmq.client import handlers
from cometmq.errors import ClientError, CometError
from cometmq.rules import retry

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.client.assigned import Assigned
    from cometmq.client.handlers import AsyncHandler, Outcome, SyncHandler
    from cometmq.client.strategy import Parts
    from cometmq.client.subscriptions import Subscription
    from cometmq.model.message import MessageExt

log = logging.getLogger(__name__)

_STINT_MESSAGES, _STINT_S = 256, 0.1
_LOCK_PAUSE_S = 0.5
_BURY_PAUSE_S = 1.0


class _Stint:
    """A run of one queue's messages through the handler, batch by batch, up to a failure.

    Many small batches in one go cost one hand-over to a thread. It ends early when the queue is
    dropped, when its lock may have run out, and after a tenth of a second, so that commits go on.
    """

    __slots__ = ("assigned", "clock", "done", "failed", "messages", "outcome", "subscription")

    def __init__(
        self,
        assigned: Assigned,
        messages: list[MessageExt],
        subscription: Subscription,
        clock: Callable[[], float],
    ) -> None:
        self.assigned, self.messages, self.subscription = assigned, messages, subscription
        self.clock = clock
        self.done = 0
        self.failed = 0
        self.outcome: Outcome = handlers.DONE

    def run(self, batch_size: int) -> None:
        """Run plain handlers (in a thread)."""
        handler, until = cast("SyncHandler", self.subscription.handler), self.clock() + _STINT_S
        while self._may_go_on(until):
            batch = self.messages[self.done : self.done + batch_size]
            self._judge(handlers.run(handler, batch), len(batch))

    async def run_async(self, batch_size: int) -> None:
        """Run async handlers."""
        handler, until = cast("AsyncHandler", self.subscription.handler), self.clock() + _STINT_S
        while self._may_go_on(until):
            batch = self.messages[self.done : self.done + batch_size]
            self._judge(await handlers.run_async(handler, batch), len(batch))

    def _may_go_on(self, until: float) -> bool:
        if self.failed or self.done == len(self.messages) or self.assigned.is_dropped:
            return False
        now = self.clock()
        return self.assigned.holds_lock(now) and (now < until or not self.done)

    def _judge(self, outcome: Outcome, size: int) -> None:
        if outcome.is_done:
            self.done += size
        else:
            self.failed, self.outcome = size, outcome


class OrderlyConsume:
    """Runs the queues of one orderly consumer. One loop owns it."""

    def __init__(self, parts: Parts) -> None:
        if parts.locks is None:
            raise ClientError("an orderly consumer cannot do without locks")
        options = parts.options
        self._options, self._subscriptions = options, parts.subscriptions
        self._threads, self._send_back = parts.threads, parts.send_back
        self._offsets, self._locks = parts.offsets, parts.locks
        self._give_up = parts.give_up
        self._room = asyncio.Semaphore(options.consume_threads)
        self._times_max = retry.reconsume_times_max(options.max_attempts, orderly=True)

    def begin(self, assigned: Assigned) -> None:
        """Start the loop of a new queue."""
        loop = asyncio.get_running_loop()
        assigned.tasks.append(loop.create_task(self._work(assigned), name=f"{assigned.queue}"))

    def feed(self, assigned: Assigned, messages: list[MessageExt]) -> None:
        """Tell the queue's loop that messages wait."""
        if messages:
            assigned.arrived.set()

    async def drain(self, assigned: Assigned, timeout_s: float) -> bool:
        """Wait until the handler at work on the queue is done with its batch; False when it is not.

        `in_hand` then says that it still runs.
        """
        _, late = await asyncio.wait(assigned.tasks, timeout=timeout_s)
        return not late

    def facts(self) -> dict[str, str]:
        """Nothing beyond what is said of every queue."""
        return {}

    def close(self) -> None:
        """Nothing is held beyond the queues."""

    async def _work(self, assigned: Assigned) -> None:
        loop = asyncio.get_running_loop()
        while not assigned.is_dropped:
            if not assigned.holds_lock(loop.time()):
                await self._regain(assigned)
            elif assigned.window.waiting:
                await self._handle(assigned)
            else:
                assigned.arrived.clear()
                await assigned.arrived.wait()

    async def _handle(self, assigned: Assigned) -> None:
        window = assigned.window
        messages, size = self._next(assigned)
        stint = await self._run(assigned, messages, size)
        window.done(messages[: stint.done])
        window.put_back(messages[stint.done :])
        assigned.consumed_at = asyncio.get_running_loop().time()
        if stint.done:
            self._note(assigned)
        if stint.failed:
            await self._failed(assigned, stint)

    def _next(self, assigned: Assigned) -> tuple[list[MessageExt], int]:
        """Take the next messages in hand, and say how many the handler gets at a time."""
        size, head = self._options.batch_size, assigned.window.waiting[0].queue_offset
        if head <= assigned.alone_until:
            return assigned.window.take(min(assigned.alone_until - head + 1, _STINT_MESSAGES)), 1
        return assigned.window.take(max(size, _STINT_MESSAGES)), size

    async def _run(self, assigned: Assigned, messages: list[MessageExt], size: int) -> _Stint:
        """Run one stint in a thread or here; at most `consume_threads` queues at once."""
        loop = asyncio.get_running_loop()
        topic = messages[0].topic
        own = next((at for at, other in enumerate(messages) if other.topic != topic), len(messages))
        stint = _Stint(assigned, messages[:own], self._subscriptions.handler_of(topic), loop.time)
        async with self._room:
            assigned.in_hand = own
            if stint.subscription.is_async:
                await stint.run_async(size)
            else:
                over: asyncio.Future[None] = loop.create_future()
                self._threads.submit(lambda: stint.run(size), lambda: _set(over))
                await asyncio.shield(over)
            assigned.in_hand = 0
        return stint

    async def _failed(self, assigned: Assigned, stint: _Stint) -> None:
        failed = stint.messages[stint.done : stint.done + stint.failed]
        assigned.alone_until = max(assigned.alone_until, failed[-1].queue_offset)
        if len(failed) == 1:
            if retry.is_dead(failed[0].reconsume_times, self._times_max):
                await self._bury(assigned, failed[0], stint.outcome.reason)
                return
            failed[0].reconsume_times += 1
        asked_ms = stint.outcome.suspend_ms
        rest_ms = retry.suspend_ms(self._options.suspend_ms if asked_ms is None else asked_ms)
        await self._rest(assigned, rest_ms / 1000)

    async def _bury(self, assigned: Assigned, message: MessageExt, reason: str) -> None:
        """Make the head message a dead letter and commit at once, so that it is buried once."""
        if not await self._send_back.bury(message, assigned.queue, reason):
            await self._rest(assigned, _BURY_PAUSE_S)
            return
        assigned.window.done(assigned.window.take(1))
        self._note(assigned)
        if assigned.has_lost_lock:
            return  # whoever has the queue now may have committed more
        try:
            await self._offsets.commit(assigned.queue, assigned.window.commit_offset)
        except CometError as error:
            log.warning(
                "the offset after a dead letter of %s is not yet committed: %s",
                assigned.queue,
                error,
            )

    def _note(self, assigned: Assigned) -> None:
        if not assigned.is_dropped:
            self._offsets.remember(assigned.queue, assigned.window.commit_offset)

    async def _rest(self, assigned: Assigned, pause_s: float) -> None:
        """Leave the queue alone for a while, but notice at once when it is dropped."""
        loop = asyncio.get_running_loop()
        until = loop.time() + pause_s
        while not assigned.is_dropped and (left_s := until - loop.time()) > 0:
            await asyncio.sleep(min(left_s, 0.05))

    async def _regain(self, assigned: Assigned) -> None:
        """Take the lock again; whoever had it meanwhile may have gone on, then start anew."""
        assigned.lose_lock()
        until = (await self._locks.take([assigned.queue])).get(assigned.queue)
        if assigned.is_dropped:
            return
        if not until:
            await self._rest(assigned, _LOCK_PAUSE_S)
            return
        try:
            committed = await self._offsets.committed(assigned.queue)
        except CometError:
            await self._rest(assigned, _LOCK_PAUSE_S)
            return
        if committed is not None and committed > assigned.window.commit_offset:
            log.info("%s went on elsewhere: it starts anew here at %d", assigned.queue, committed)
            self._give_up(assigned)
        else:
            assigned.has_lost_lock = False
            assigned.lock_until = until


def _set(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)
