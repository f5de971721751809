"""Requests for queue locks (41, 42), by which an orderly consumer has a queue for itself.

The state is in `queue_locks`. Java: AdminBrokerProcessor.lockBatchMQ, unlockBatchMQ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.model.queue_lock import LockEnd
from cometmq.net.endpoint import Endpoint, RequestEffect, RequestResources
from cometmq.net.handler import Reply
from cometmq.wire.bodies.lock import decode_lock_request, encode_locked
from cometmq.wire.codes import RequestCode

if TYPE_CHECKING:
    from cometmq.broker.groups.queue_locks import QueueLocks
    from cometmq.broker.groups.unequal_members import UnequalMembers
    from cometmq.net.connection import Connection
    from cometmq.wire.command import Command


class QueueLockHandler:
    """Answers 41 and 42."""

    def __init__(self, locks: QueueLocks, unequal: UnequalMembers) -> None:
        self._locks = locks
        self._unequal = unequal
        self._connections: set[Connection] = set()
        """Those whose end is awaited."""

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(
                RequestCode.LOCK_BATCH_MQ,
                self.lock,
                RequestEffect.MUTATING | RequestEffect.UNTHROTTLED,
                resources=_group_in_body,
            ),
            Endpoint(
                RequestCode.UNLOCK_BATCH_MQ,
                self.unlock,
                RequestEffect.MUTATING | RequestEffect.UNTHROTTLED,
                resources=_group_in_body,
            ),
        )

    def lock(self, request: Command, connection: Connection) -> Reply:
        """Lock the free queues; answer all that the client now holds.

        Whoever says what ends the locks also learns who holds the others.
        """
        wanted = decode_lock_request(request.body)
        group, end = wanted.consumer_group, wanted.end
        if connection.is_closed:  # it would never end again
            return Reply(body=encode_locked(()))
        if connection not in self._connections:
            self._connections.add(connection)
            connection.on_close(self._end_connection)
        topics = {queue.topic for queue in wanted.queues}
        self._unequal.note_lock(group, wanted.client_id, topics, connection)
        held = self._locks.lock(group, wanted.client_id, wanted.queues, connection, end)
        if end is LockEnd.LEAVING or len(held) == len(wanted.queues):
            return Reply(body=encode_locked(held))
        others = {queue: self._locks.holder(group, queue) for queue in {*wanted.queues} - {*held}}
        known = {queue: holder for queue, holder in others.items() if holder is not None}
        return Reply(body=encode_locked(held, known))

    def unlock(self, request: Command, connection: Connection) -> Reply:
        """Release the queues that the client holds."""
        given = decode_lock_request(request.body)
        self._locks.unlock(given.consumer_group, given.client_id, given.queues, connection)
        return Reply()

    def _end_connection(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._locks.end_connection(connection, by_client=connection.is_ended_by_client)


def _group_in_body(request: Command) -> RequestResources:
    wanted = decode_lock_request(request.body)
    return RequestResources(
        tuple(dict.fromkeys(queue.topic for queue in wanted.queues)), (wanted.consumer_group,)
    )
