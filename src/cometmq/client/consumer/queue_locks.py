"""The locks that let one member of an orderly group work on a queue.

Requests, renews and returns locks; knows nothing of handlers. Invariant: a lock counts from the
moment it was requested, so it ends here before it ends at the broker; with the connection on which
it was requested it ends on both sides, as each request promises (`EarlyUnlockCause.CONNECTION`).
Java: RebalanceImpl.lockAll, RebalanceLockManager (the broker's side)
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import TYPE_CHECKING

from cometmq.client.consumer.lock_waits import LockWaits
from cometmq.client.consumer.queue_lease import REFUSED, QueueLease
from cometmq.errors import BrokerError, CometError
from cometmq.model.queue_lock import EarlyUnlockCause
from cometmq.wire.bodies.lock import (
    LockRequest,
    decode_holders,
    decode_locked,
    encode_lock_request,
)
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.queue import MessageQueue
    from cometmq.net.channel import Channel

log = logging.getLogger(__name__)

_TIMEOUT_S = 1.0
QUEUES_MAX = 500
"""Queues that one request locks; our brokers lock more of them in several iterations."""


class QueueLockClient:
    """Locks of one group's member. One loop owns it."""

    def __init__(
        self, session: ClientSession, group: str, valid_s: float, owner: str | None = None
    ) -> None:
        """`owner`: for whom the queues are locked; default the client id."""
        self._session = session
        self._owner = owner or session.client_id
        self._group = group
        self._valid_s = valid_s
        self._waits = LockWaits(group)

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, QueueLease]:
        """Request locks.

        Each queue that a broker answered for comes with the lock, REFUSED when another member has
        it. Queues of brokers that did not answer are absent.
        """
        by_broker: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            by_broker[queue.broker_name].append(queue)
        parts = await asyncio.gather(
            *(
                self._take_at(broker, wanted[at : at + QUEUES_MAX])
                for broker, wanted in by_broker.items()
                for at in range(0, len(wanted), QUEUES_MAX)
            )
        )
        return {queue: lock for part in parts for queue, lock in part.items()}

    def holders(self) -> dict[MessageQueue, str]:
        """The queues that have waited a while for the lock of another client, and whose it is."""
        return self._waits.holders(asyncio.get_running_loop().time())

    async def renew(self, table: Collection[AssignedQueue]) -> None:
        """Request the locks that are held again; what expired or was refused counts as lost."""
        now, held = asyncio.get_running_loop().time(), []
        for assigned in table:
            if assigned.holds_lock(now):
                held.append(assigned)
            else:
                assigned.lose_lock()
        got = await self.lock([assigned.queue for assigned in held])
        for assigned in held:
            lock = got.get(assigned.queue)
            if lock is REFUSED:
                log.warning(
                    "another member has the lock of %s: its work stops here", assigned.queue
                )
                assigned.lose_lock()
            elif lock is not None and not assigned.has_lost_lock:
                assigned.lock = lock

    async def keep_until_it_expires(self, queue: MessageQueue) -> None:
        """Ask for a lock for the last time, to keep others away from a queue that we leave."""
        try:
            await self._request(queue.broker_name, [queue], EarlyUnlockCause.TIME)
            log.warning(
                "%s is left while its handler is at work: its lock keeps others away until it "
                "expires at the broker, after 60 s unless it is set otherwise there",
                queue,
            )
        except CometError as error:
            log.info("the lock of %s was not asked for again: %s", queue, error)

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

    async def _take_at(
        self, broker: str, queues: list[MessageQueue]
    ) -> dict[MessageQueue, QueueLease]:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._valid_s
        try:
            channel, body = await self._request(broker, queues, EarlyUnlockCause.CONNECTION)
            locked, holders = decode_locked(body), decode_holders(body)
        except CometError as error:
            log.info("no locks from broker %s: %s", broker, error)
            return {}
        now = loop.time()
        for queue in queues:
            if queue in locked:
                self._waits.grant(queue, now)
            else:
                self._waits.refuse(queue, holders.get(queue), now)
        self._waits.report(now)
        lock = QueueLease(until, channel)
        return {queue: lock if queue in locked else REFUSED for queue in queues}

    async def _request(
        self, broker: str, queues: list[MessageQueue], end: EarlyUnlockCause
    ) -> tuple[Channel, bytes]:
        """Request locks of one broker; the connection on which it answered, and the answer."""
        addr = self._session.routes.master_addr(broker)
        channel, left_s = await self._session.channel(addr, _TIMEOUT_S)
        command = request(RequestCode.LOCK_BATCH_MQ, 0, body=self._body(queues, end))
        answer = await channel.call(command, left_s)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, addr)
        return channel, answer.body

    def _body(
        self, queues: list[MessageQueue], end: EarlyUnlockCause = EarlyUnlockCause.LEAVING
    ) -> bytes:
        return encode_lock_request(LockRequest(self._group, self._owner, tuple(queues), end=end))
