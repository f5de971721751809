"""Reads of exactly the offset ranges that a table's job has planned: those queues and no others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cometmq.spark.source import planned_offsets, topic_selection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from cometmq.spark.source.planned_offsets import PlannedOffsets


def read_exactly(
    spark: SparkSession, source: Mapping[str, str], begins: PlannedOffsets, ends: PlannedOffsets
) -> DataFrame:
    """The messages between the offsets, of the queues that both have.

    `source` are options of the source; what they select is replaced by these queues.
    """
    assert begins.queues.keys() == ends.queues.keys()
    assigned: dict[str, list[str]] = {}
    for queue in begins.queues:
        assigned.setdefault(queue.topic, []).append(topic_selection.queue_key(queue))
    options = {
        **{name: text for name, text in source.items() if name not in topic_selection.OPTIONS},
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(planned_offsets.encode(begins)),
        "endingOffsets": json.dumps(planned_offsets.encode(ends)),
    }
    return spark.read.format("rocketmq").options(**options).load()
