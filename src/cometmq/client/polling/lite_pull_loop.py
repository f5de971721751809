"""Pulls of a polling consumer: they carry their filter, and all queues share one limit.

Java: DefaultLitePullConsumerImpl.PullTaskImpl
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.client.consumer.pull_loop import PullLoop
from cometmq.model.subscription import TAG

if TYPE_CHECKING:
    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.consumer.consumer_options import ConsumerOptions
    from cometmq.client.consumer.consumer_statistics import ConsumerStatistics
    from cometmq.client.consumer.pull_request import PullRequest
    from cometmq.client.consumer.queue_assignment import QueueAssignment
    from cometmq.client.consumer.subscriptions import Subscriptions
    from cometmq.client.offsets.offset_store import OffsetStore
    from cometmq.client.polling.poll_buffer import PollBuffer
    from cometmq.client.session.client_session import ClientSession


class LitePullLoop(PullLoop):
    """Pulls for one polling consumer. One loop owns it."""

    _strategy: PollBuffer

    def __init__(
        self,
        session: ClientSession,
        options: ConsumerOptions,
        subscriptions: Subscriptions,
        offsets: OffsetStore,
        buffer: PollBuffer,
        assignment: QueueAssignment,
        stats: ConsumerStatistics,
        cached_max: int,
    ) -> None:
        """`cached_max`: how many messages of all queues together may wait."""
        super().__init__(session, options, subscriptions, offsets, buffer, assignment, stats)
        self._cached_max = cached_max

    def _is_full(self, assigned: AssignedQueue) -> bool:
        return self._strategy.message_count > self._cached_max or super()._is_full(assigned)

    def _pull_request(self, assigned: AssignedQueue) -> PullRequest:
        pull = super()._pull_request(assigned)
        if pull.filter.expression_type == TAG:
            # version 0: the broker then does not compare with the subscription in heartbeats
            pull = pull._replace(filter=pull.filter._replace(version=0))
        return pull._replace(is_lite=True, carries_filter=True, commit_offset=None)
