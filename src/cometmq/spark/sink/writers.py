"""The writers that Spark pickles to the tasks: one of a batch write, one of a stream.

Invariants: a writer holds plain values only; a task reports when every message has its answer, and
fails otherwise; nothing is committed beyond that, so a message may be sent again, never lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from cometmq.spark.sink.row_messages import RowMessages
from cometmq.spark.sink.send_window import SendWindow

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from cometmq.spark.sink.row_columns import RowColumns
    from cometmq.spark.sink.sink_options import SinkOptions

_WINDOW_CHUNKS = 4


@dataclass(frozen=True)
class SentRows(WriterCommitMessage):  # type: ignore[misc]
    """What a task reports: its partition, and how many messages the brokers have stored."""

    partition: int
    count: int


class FrameWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """One write of a frame; `write_id` tells it from every other one."""

    def __init__(self, options: SinkOptions, columns: RowColumns, write_id: str) -> None:
        self._options, self._columns, self._write_id = options, columns, write_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentRows:
        """Send the rows of one task; raises RowNotSent."""
        partition = _task().partitionId()
        place = f"{self._write_id}/0/{partition}"
        return send_rows(iterator, self._options, self._columns, place, partition)


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """The writes of a streaming query, one a micro-batch."""

    def __init__(self, options: SinkOptions, columns: RowColumns) -> None:
        self._options, self._columns = options, columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentRows:
        """Send the rows of one task of a micro-batch; raises RowNotSent."""
        task = _task()
        partition = task.partitionId()
        query = task.getLocalProperty("sql.streaming.queryId")
        batch = task.getLocalProperty("streaming.sql.batchId")
        place = f"{query}/{batch}/{partition}"
        return send_rows(iterator, self._options, self._columns, place, partition)


def send_rows(
    batches: Iterator[pa.RecordBatch],
    options: SinkOptions,
    columns: RowColumns,
    place: str,
    partition: int,
) -> SentRows:
    """Send what a task is given; `place` is `query/batch/partition`, the begin of every row's id.

    With sharding keys or queues in the rows one chunk is under way while the next one is made: a
    row must not be sent after one of its key that failed.
    """
    in_order = bool({"sharding_key", "queue_id"} & columns.names)
    rows_max = max(1, options.max_in_flight // _WINDOW_CHUNKS)
    messages = RowMessages(columns, options.topic, place, rows_max)
    under_way = 1 if in_order else max(1, min(_WINDOW_CHUNKS, options.max_in_flight) - 1)
    with SendWindow(options, partition, under_way) as window:
        for chunk in messages.chunks(batches):
            window.send(chunk)
        return SentRows(partition, window.finish())


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "Spark writes in tasks only"
    return task
