"""Requests for queue locks (41, 42), by which an orderly consumer has a queue for itself.

The state is in `queue_locks`. Java: AdminBrokerProcessor.lockBatchMQ, unlockBatchMQ.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.errors import Reject
from cometmq.model.queue_lock import EarlyUnlockCause
from cometmq.model.subscription import CLIENT_ID_CHARS_MAX
from cometmq.net.endpoint import Endpoint, RequestEffect, RequestResources
from cometmq.net.handler import Reply
from cometmq.wire.bodies.lock import LockRequest, decode_lock_request, encode_locked, locked_pieces
from cometmq.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from cometmq.broker.groups.queue_locks import QueueLocks
    from cometmq.broker.groups.unequal_members import UnequalMembers
    from cometmq.model.queue import MessageQueue
    from cometmq.model.queue_lock import LockHolder
    from cometmq.net.connection import Connection
    from cometmq.wire.command import Command


LOCK_BYTES_MAX = 512 * 1024
"""Longest request: about 5,000 queues. Our clients ask for 500 at a time."""

AT_ONCE_MAX = 500
"""Queues that are locked and answered at once; of more so many in an iteration of the loop."""

NAME_CHARS_MAX = 255
"""Longest name of a group, topic or broker."""


class QueueLockHandler:
    """Answers 41 and 42."""

    def __init__(self, locks: QueueLocks, unequal: UnequalMembers) -> None:
        self._locks = locks
        self._unequal = unequal
        self._connections: set[Connection] = set()
        """Those whose end is awaited."""
        self._locking_many = asyncio.Lock()

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(
                RequestCode.LOCK_BATCH_MQ,
                self.lock,
                RequestEffect.MUTATING | RequestEffect.UNTHROTTLED,
                resources=_group_in_body,
                body_bytes_max=LOCK_BYTES_MAX,
            ),
            Endpoint(
                RequestCode.UNLOCK_BATCH_MQ,
                self.unlock,
                RequestEffect.MUTATING | RequestEffect.UNTHROTTLED,
                resources=_group_in_body,
                body_bytes_max=LOCK_BYTES_MAX,
            ),
        )

    def lock(self, request: Command, connection: Connection) -> Reply | Awaitable[Reply]:
        """Lock the free queues; answer all that the client now holds.

        Whoever says what ends the locks also learns who holds the others.
        """
        wanted = _checked(decode_lock_request(request.body))
        if connection.is_closed:  # it would never end again
            return Reply(body=encode_locked(()))
        if connection not in self._connections:
            self._connections.add(connection)
            connection.on_close(self._end_connection)
        topics = {queue.topic for queue in wanted.queues}
        self._unequal.note_lock(wanted.consumer_group, wanted.client_id, topics, connection)
        if len(wanted.queues) > AT_ONCE_MAX:
            return self._lock_many(wanted, connection)
        return Reply(body=encode_locked(*self._lock(wanted, wanted.queues, connection)))

    def _lock(
        self, wanted: LockRequest, queues: Iterable[MessageQueue], connection: Connection
    ) -> tuple[list[MessageQueue], dict[MessageQueue, LockHolder]]:
        """Lock queues; those that the client holds, and who holds the others, where it asks so."""
        group, asked = wanted.consumer_group, list(queues)
        held = self._locks.lock(group, wanted.client_id, asked, connection, wanted.end)
        if wanted.end is EarlyUnlockCause.LEAVING or len(held) == len(asked):
            return held, {}
        others = {queue: self._locks.holder(group, queue) for queue in {*asked} - {*held}}
        return held, {queue: holder for queue, holder in others.items() if holder is not None}

    async def _lock_many(self, wanted: LockRequest, connection: Connection) -> Reply:
        """Do it for some in each iteration of the loop, one request at a time."""
        async with self._locking_many:
            queues = sorted(wanted.queues)
            held, others, pieces = [], {}, []
            for at in range(0, len(queues), AT_ONCE_MAX):
                if connection.is_closed:
                    return Reply()  # to nobody
                part = queues[at : at + AT_ONCE_MAX]
                some, theirs = self._lock(wanted, part, connection)
                held += some
                others.update(theirs)
                await asyncio.sleep(0)
            for piece in locked_pieces(held, others, AT_ONCE_MAX):
                pieces.append(piece)
                await asyncio.sleep(0)
        return Reply(body=b"".join(pieces))

    def unlock(self, request: Command, connection: Connection) -> Reply | Awaitable[Reply]:
        """Release the queues that the client holds."""
        given = _checked(decode_lock_request(request.body))
        if len(given.queues) > AT_ONCE_MAX:
            return self._unlock_many(given, connection)
        self._locks.unlock(given.consumer_group, given.client_id, given.queues, connection)
        return Reply()

    async def _unlock_many(self, given: LockRequest, connection: Connection) -> Reply:
        async with self._locking_many:
            for at in range(0, len(given.queues), AT_ONCE_MAX):
                part = given.queues[at : at + AT_ONCE_MAX]
                self._locks.unlock(given.consumer_group, given.client_id, part, connection)
                await asyncio.sleep(0)
        return Reply()

    def _end_connection(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._locks.end_connection(connection, by_client=connection.is_ended_by_client)


def _checked(wanted: LockRequest) -> LockRequest:
    """Raise Reject for names that no group, client, topic or broker has: they would be kept."""
    longest = max((len(text) for queue in wanted.queues for text in queue[:2]), default=0)
    if (
        max(longest, len(wanted.consumer_group)) > NAME_CHARS_MAX
        or len(wanted.client_id) > CLIENT_ID_CHARS_MAX
    ):
        raise Reject(
            ResponseCode.INVALID_PARAMETER,
            f"a group, topic or broker has a name of {NAME_CHARS_MAX} characters at most, a client "
            f"one of {CLIENT_ID_CHARS_MAX}",
        )
    return wanted


def _group_in_body(request: Command) -> RequestResources:
    wanted = decode_lock_request(request.body)
    return RequestResources(
        tuple(dict.fromkeys(queue.topic for queue in wanted.queues)), (wanted.consumer_group,)
    )
