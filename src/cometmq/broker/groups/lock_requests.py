"""Requests for queue locks (41, 42), by which an orderly consumer has a queue for itself.

The state is in `queue_locks`. Java: AdminBrokerProcessor.lockBatchMQ, unlockBatchMQ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.net.endpoint import Endpoint, RequestEffect, RequestResources
from cometmq.net.handler import Reply
from cometmq.wire.bodies.lock import decode_lock_request, encode_locked
from cometmq.wire.codes import RequestCode

if TYPE_CHECKING:
    from cometmq.broker.groups.queue_locks import QueueLocks
    from cometmq.net.connection import Connection
    from cometmq.wire.command import Command


class QueueLockHandler:
    """Answers 41 and 42."""

    def __init__(self, locks: QueueLocks) -> None:
        self._locks = locks

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

    def lock(self, request: Command, _connection: Connection) -> Reply:
        """Lock the free queues; answer all that the client now holds."""
        wanted = decode_lock_request(request.body)
        held = self._locks.lock(wanted.consumer_group, wanted.client_id, wanted.queues)
        return Reply(body=encode_locked(held))

    def unlock(self, request: Command, _connection: Connection) -> Reply:
        """Release the queues that the client holds."""
        given = decode_lock_request(request.body)
        self._locks.unlock(given.consumer_group, given.client_id, given.queues)
        return Reply()


def _group_in_body(request: Command) -> RequestResources:
    wanted = decode_lock_request(request.body)
    return RequestResources(
        tuple(dict.fromkeys(queue.topic for queue in wanted.queues)), (wanted.consumer_group,)
    )
