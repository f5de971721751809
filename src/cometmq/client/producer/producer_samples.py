"""A producer's samples for `ClientMetrics`. Java: none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.client import client_metrics as shown
from cometmq.metrics.registry import Sample

if TYPE_CHECKING:
    from cometmq.client.producer.send_pipeline import SendPipeline


def producer_samples(client_id: str, pipeline: SendPipeline) -> list[Sample]:
    """What was counted since the start, by broker, and what is now. Call it on the loop."""
    found = []
    for broker, counts in pipeline.statistics.totals().items():
        labels = (client_id, broker)
        found += [
            Sample(shown.SENDS, labels, counts.ok),
            Sample(shown.SENDS_FAILED, labels, counts.failed),
            Sample(shown.SEND_SECONDS, labels, counts.spent_s),
        ]
    stats = pipeline.stats(0)
    for broker, one in stats.brokers.items():
        labels = (client_id, broker)
        found.append(Sample(shown.SENDS_IN_FLIGHT, labels, one.in_flight))
        found.append(Sample(shown.BROKER_AVOIDED, labels, int(broker in stats.avoided)))
    return found
