"""What a consumer says of itself to its own program: rates by topic, and what each queue waits for.

Java: ConsumeStatus, ProcessQueueInfo
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cometmq.model.admin_stats import TopicConsumeRates
    from cometmq.model.queue import MessageQueue


class QueueStats(NamedTuple):
    """One queue of a consumer."""

    queue: MessageQueue
    cached: int
    """Messages that were pulled and are not done, those in handlers included."""
    cached_bytes: int
    in_flight: int
    """Messages (by key: batches) that handlers have now."""
    why_not_pulled: str
    """Why no further message is pulled now; empty while they are."""


class ConsumerStats(NamedTuple):
    """A consumer at one moment. Rates are of the last minute, sampled every 10 s."""

    topics: dict[str, TopicConsumeRates]
    """By topic: messages handled and failed a second, ms a call of the handler, ms a pull."""
    queues: tuple[QueueStats, ...]
    is_paused: bool
    """Whether `pause` was called, and not `resume`."""

    @property
    def cached(self) -> int:
        """Messages of all queues that were pulled and are not done."""
        return sum(one.cached for one in self.queues)
