"""What the job asks the broker: messages in a topic, lag of a consumer group.

The answers come from the broker alone, never from what the job's processes report about
themselves. Safe to use from several threads.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from cometmq import Admin
from cometmq.errors import RouteNotFound, TopicExists

if TYPE_CHECKING:
    from typing import Self


class BrokerQueries:
    """An admin client as a context manager."""

    def __init__(self, namesrv: str) -> None:
        self.admin = Admin(namesrv=namesrv)
        """For what is more than a question."""

    def __enter__(self) -> Self:
        """Connect."""
        self.admin.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Disconnect."""
        self.admin.stop()

    def create_topic(self, topic: str, queues: int) -> None:
        """Create the topic where it is missing, and wait until it can be used."""
        with suppress(TopicExists):
            self.admin.create_topic(topic, queues)

    def stored(self, topic: str) -> dict[int, int]:
        """Messages in each queue of a topic, by queue id; none when there is no such topic."""
        try:
            stats = self.admin.topic_stats(topic)
        except RouteNotFound:
            return {}
        return {queue.queue_id: one.max_offset - one.min_offset for queue, one in stats.items()}

    def lag(self, group: str, topic: str) -> int:
        """Messages of a topic that the group has not committed; 0 when there is no such topic."""
        try:
            stats = self.admin.consume_stats(group, topic)
        except RouteNotFound:
            return 0
        return sum(one.broker_offset - one.consumer_offset for one in stats.values())
