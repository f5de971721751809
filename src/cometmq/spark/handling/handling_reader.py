"""The stream reader of `listen`: its tasks handle what they read, and report what became of it.

So a task is one Python process, which hands no message to Spark, and Spark plans a batch once.
Planning and offsets are those of any stream over the same topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.spark.handling.batch_runner import outcomes
from cometmq.spark.source.stream_reader import StreamReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

    from cometmq.spark.handling.handler_settings import HandlerJob
    from cometmq.spark.source.source_options import SourceOptions


class HandlingReader(StreamReader):
    """A stream of outcomes (`job_option.OUTCOME_DDL`)."""

    def __init__(self, options: SourceOptions, job: HandlerJob) -> None:
        super().__init__(options)
        self._job = job

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Handle the messages of one partition, and then say how it went."""
        return outcomes(self._job, super().read(partition))
