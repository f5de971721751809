"""What a member does when the lock of a queue has run out: take it again, or start over.

Owns the comparison of our progress with the committed offset, which shows whether another member
had the queue meanwhile; knows nothing of handlers. Invariant: work goes on only under a lock that
was taken again while the committed offset had not passed ours.
Java: ConsumeMessageOrderlyService.tryLockLaterAndReconsume
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from cometmq.client.consumer.queue_lease import FOR_EVER, REFUSED
from cometmq.errors import CometError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.consumer.queue_lease import QueueLease
    from cometmq.client.consumer.queue_locks import QueueLockClient
    from cometmq.client.offsets.offset_store import OffsetStore

log = logging.getLogger(__name__)

_REFUSED_S, _UNKNOWN_S = 0.1, 0.5
"""Pauses before a lock is asked for again: another member had it, or there was no answer."""


class LockRecovery:
    """Takes locks again for one consumer. One loop owns it."""

    def __init__(
        self,
        locks: QueueLockClient | None,
        offsets: OffsetStore,
        restart_queue: Callable[[AssignedQueue], None],
    ) -> None:
        """Without `locks` (the group is broadcast to) every lock is held for ever."""
        self._locks = locks
        self._offsets = offsets
        self._restart_queue = restart_queue

    async def recover(self, assigned: AssignedQueue) -> bool:
        """Try once to take the lock again; whether the queue goes on here.

        Where another member has committed more meanwhile, the queue is restarted. A dropped queue
        is locked again as well, so that what was done here before can be committed.
        """
        assigned.lose_lock()
        lock, committed = await self._lock_and_committed(assigned)
        is_ours = lock is not None and lock is not REFUSED
        if lock is not None and is_ours and committed <= assigned.window.commit_offset:
            assigned.regain_lock(lock)
            return True
        if assigned.is_dropped:
            return False
        if not is_ours:
            await assigned.sleep_unless_dropped(_pause_s(lock))
        else:
            log.info(
                "another member has consumed %s meanwhile: it restarts here at offset %d",
                assigned.queue,
                committed,
            )
            self._restart_queue(assigned)
        return False

    async def is_still_ours(self, assigned: AssignedQueue, head: int) -> bool:
        """Whether no other member had the messages from `head` on while a handler had them.

        When the lock has run out meanwhile (the process was suspended, the handler took long, the
        broker was away) it is taken again before the results count, however long that takes.
        """
        loop = asyncio.get_running_loop()
        was_refused = False
        while not assigned.holds_lock(loop.time()):
            assigned.lose_lock()
            lock, committed = await self._lock_and_committed(assigned)
            was_refused |= lock is REFUSED
            if lock is not None and lock is not REFUSED:
                if committed <= head:
                    assigned.regain_lock(lock)
                return committed <= head
            if assigned.is_dropped:
                return not was_refused
            await assigned.sleep_unless_dropped(_pause_s(lock))
        return True

    async def _lock_and_committed(self, assigned: AssignedQueue) -> tuple[QueueLease | None, int]:
        """The lock, REFUSED when another member has it, and the committed offset, 0 without one.

        None without an answer, and when the lock was lost again while the offset was asked for.
        """
        if self._locks is None:
            lock: QueueLease | None = FOR_EVER
        else:
            lock = (await self._locks.lock([assigned.queue])).get(assigned.queue)
        if lock is None or lock is REFUSED:
            return lock, 0
        try:
            committed = await self._offsets.committed(assigned.queue) or 0
        except CometError as error:
            log.info("the committed offset of %s is not known: %s", assigned.queue, error)
            return None, 0
        return (lock if lock.is_valid(asyncio.get_running_loop().time()) else None), committed


def _pause_s(lock: QueueLease | None) -> float:
    return _REFUSED_S if lock is REFUSED else _UNKNOWN_S
