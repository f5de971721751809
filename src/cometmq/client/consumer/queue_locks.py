"""The locks that let one member of an orderly group work on a queue.

Requests, renews and returns locks; knows nothing of handlers. Invariant: a lock counts from the
moment it was requested, so it ends here before it ends at the broker; when the connection to a
broker breaks, its locks count as lost until they are requested again.
Java: RebalanceImpl.lockAll, RebalanceLockManager (the broker's side)
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import TYPE_CHECKING

from cometmq.errors import CometError
from cometmq.wire.bodies.lock import LockRequest, decode_locked, encode_lock_request
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.queue import MessageQueue

log = logging.getLogger(__name__)

_TIMEOUT_S = 1.0


class QueueLockClient:
    """Locks of one group's member. One loop owns it."""

    def __init__(self, session: ClientSession, group: str, valid_s: float) -> None:
        self._session = session
        self._group = group
        self._valid_s = valid_s

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, float]:
        """Request locks.

        Each queue that a broker answered for comes with the loop time until which it is certainly
        ours; 0 means that another member has it. Queues of brokers that did not answer are absent.
        """
        by_broker: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            by_broker[queue.broker_name].append(queue)
        parts = await asyncio.gather(
            *(self._take_at(broker, wanted) for broker, wanted in by_broker.items())
        )
        return {queue: until for part in parts for queue, until in part.items()}

    async def renew(self, table: Collection[AssignedQueue]) -> None:
        """Request the locks that are held again; what expired or was refused counts as lost."""
        now = asyncio.get_running_loop().time()
        held = [assigned for assigned in table if assigned.holds_lock(now)]
        got = await self.lock([assigned.queue for assigned in held])
        for assigned in held:
            until = got.get(assigned.queue)
            if until == 0.0:
                log.warning(
                    "another member has the lock of %s: its work stops here", assigned.queue
                )
                assigned.lose_lock()
            elif until is not None and not assigned.has_lost_lock:
                assigned.lock_until = until

    async def unlock(self, queue: MessageQueue) -> None:
        """Return one lock; one that cannot be returned expires at the broker."""
        try:
            addr = self._session.routes.master_addr(queue.broker_name)
            body = self._body([queue])
            await self._session.call_checked(
                addr, request(RequestCode.UNLOCK_BATCH_MQ, 0, body=body), _TIMEOUT_S
            )
        except CometError as error:
            log.info("the lock of %s was not returned and will expire: %s", queue, error)

    async def _take_at(self, broker: str, queues: list[MessageQueue]) -> dict[MessageQueue, float]:
        until = asyncio.get_running_loop().time() + self._valid_s
        command = request(RequestCode.LOCK_BATCH_MQ, 0, body=self._body(queues))
        try:
            answer = await self._session.call_checked(
                self._session.routes.master_addr(broker), command, _TIMEOUT_S
            )
            locked = decode_locked(answer.body)
        except CometError as error:
            log.info("no locks from broker %s: %s", broker, error)
            return {}
        return {queue: until if queue in locked else 0.0 for queue in queues}

    def _body(self, queues: list[MessageQueue]) -> bytes:
        return encode_lock_request(LockRequest(self._group, self._session.client_id, tuple(queues)))
