"""One queue of a topic on one broker. Orders by topic, broker name, queue id, as allocation needs.

Java: MessageQueue.
"""

from __future__ import annotations

from typing import NamedTuple


class MessageQueue(NamedTuple):
    """The address of a queue."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        """Return `topic@broker/queue`, for logs and reports."""
        return f"{self.topic}@{self.broker_name}/{self.queue_id}"
