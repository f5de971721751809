"""What a member does when the lock of a queue has run out: take it again, or start over.

Owns the comparison of our progress with the committed offset, which shows whether another member
had the queue meanwhile; knows nothing of handlers. Invariant: work goes on only under a lock that
was taken again while the committed offset had not passed ours.
Java: ConsumeMessageOrderlyService.tryLockLaterAndReconsume
"""

from __future__ import annotations

import asyncio
import logging
from math import inf
from typing import TYPE_CHECKING

from cometmq.errors import CometError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.consumer.queue_locks import QueueLockClient
    from cometmq.client.offsets.offset_store import OffsetStore

log = logging.getLogger(__name__)

_PAUSE_S = 0.5


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
        until = await self._lock(assigned)
        committed = await self._committed(assigned) if until else None
        if until and committed is not None and committed <= assigned.window.commit_offset:
            assigned.regain_lock(until)
            return True
        if assigned.is_dropped:
            return False
        if not until or committed is None:
            await assigned.sleep_unless_dropped(_PAUSE_S)
        else:
            log.info("%s went on elsewhere: it restarts here at %d", assigned.queue, committed)
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
            until = await self._lock(assigned)
            was_refused |= until == 0.0
            committed = await self._committed(assigned) if until else None
            if until and committed is not None:
                if committed <= head:
                    assigned.regain_lock(until)
                return committed <= head
            if assigned.is_dropped:
                return not was_refused
            await assigned.sleep_unless_dropped(_PAUSE_S)
        return True

    async def _lock(self, assigned: AssignedQueue) -> float | None:
        """Until when the lock is ours; 0 when another member has it, None without an answer."""
        if self._locks is None:
            return inf
        return (await self._locks.lock([assigned.queue])).get(assigned.queue)

    async def _committed(self, assigned: AssignedQueue) -> int | None:
        """The committed offset, 0 when there is none yet; None without an answer."""
        try:
            return await self._offsets.committed(assigned.queue) or 0
        except CometError:
            return None
