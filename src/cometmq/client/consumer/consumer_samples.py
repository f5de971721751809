"""A push consumer's samples for `ClientMetrics`. Java: none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.client import client_metrics as shown
from cometmq.metrics.registry import Sample

if TYPE_CHECKING:
    from cometmq.client.consumer.consumer_statistics import ConsumerStatistics
    from cometmq.model.consumer_stats import ConsumerStats


def consumer_samples(
    client_id: str, group: str, counted: ConsumerStatistics, stats: ConsumerStats
) -> list[Sample]:
    """What was counted since the start, by topic, and what is now. Call it on the loop."""
    found = [Sample(shown.PAUSED, (client_id, group), int(stats.is_paused))]
    for topic, counts in counted.counts().items():
        labels = (client_id, group, topic)
        found += [
            Sample(shown.HANDLED, labels, counts.done),
            Sample(shown.HANDLE_FAILED, labels, counts.failed),
            Sample(shown.HANDLE_CALLS, labels, counts.calls),
            Sample(shown.HANDLE_SECONDS, labels, counts.busy_s),
            Sample(shown.PULLED, labels, counts.pulled),
        ]
    for topic in sorted({one.queue.topic for one in stats.queues}):
        labels = (client_id, group, topic)
        queues = [one for one in stats.queues if one.queue.topic == topic]
        found += [
            Sample(shown.QUEUES, labels, len(queues)),
            Sample(shown.CACHED, labels, sum(one.cached for one in queues)),
            Sample(shown.CACHED_BYTES, labels, sum(one.cached_bytes for one in queues)),
        ]
    return found
