"""The writers that Spark pickles to the tasks: one of a batch write, one of a stream.

Three steps, each in its file: `row_decisions` decides what each row becomes, `send_window` has it
sent, and `commit` makes visible what waits for it, which today is the table of rejected rows alone.
Invariants: a writer holds plain values only; a task reports when every message has its answer, and
fails otherwise; a message may be sent again, never lost.
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

from cometmq.spark.sink import rejected_rows
from cometmq.spark.sink.rejected_rows import RejectedRows, WrittenBatch
from cometmq.spark.sink.row_decisions import RowDecisions
from cometmq.spark.sink.send_window import SendWindow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from cometmq.spark.sink.row_columns import RowColumns
    from cometmq.spark.sink.row_decisions import RowChunk
    from cometmq.spark.sink.sink_options import SinkOptions

_WINDOW_CHUNKS = 4


@dataclass(frozen=True)
class SentRows(WriterCommitMessage):  # type: ignore[misc]
    """What a task reports: the brokers have stored `count` messages, `rejected` rows are staged."""

    written: WrittenBatch
    partition: int
    count: int
    rejected: int = 0
    staged: str | None = None
    """The file of the rejected rows."""


class DataFrameBatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """One write of a frame; `write_id` tells it from every other one."""

    def __init__(self, options: SinkOptions, columns: RowColumns, write_id: str) -> None:
        self._options, self._columns = options, columns
        self._written = WrittenBatch(write_id, 0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentRows:
        """Send the rows of one task; raises RowNotSent."""
        partition = _task().partitionId()
        return send_rows(iterator, self._options, self._columns, self._written, partition)

    def commit(self, messages: list[SentRows | None]) -> None:
        """Show the rejected rows of the tasks that count."""
        commit_rejected(self._options, messages)

    def abort(self, messages: list[SentRows | None]) -> None:
        """Forget the rejected rows; what was sent stays sent."""
        del messages
        if self._options.rejected_path:
            rejected_rows.forget_staged(self._options.rejected_path, self._written)


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """The writes of a streaming query, one a micro-batch."""

    def __init__(self, options: SinkOptions, columns: RowColumns) -> None:
        self._options, self._columns = options, columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentRows:
        """Send the rows of one task of a micro-batch; raises RowNotSent."""
        task = _task()
        query = task.getLocalProperty("sql.streaming.queryId")
        batch = task.getLocalProperty("streaming.sql.batchId")
        assert query is not None, "Spark names the query of every task"
        assert batch is not None, "Spark names the batch of every task"
        written = WrittenBatch(query, int(batch))
        return send_rows(iterator, self._options, self._columns, written, task.partitionId())

    def commit(self, messages: list[SentRows | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Show the rejected rows of the tasks that count."""
        del batchId
        commit_rejected(self._options, messages)

    def abort(self, messages: list[SentRows | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Leave everything to the replay of the batch, which forgets what this run staged."""


def send_rows(
    batches: Iterator[pa.RecordBatch],
    options: SinkOptions,
    columns: RowColumns,
    written: WrittenBatch,
    partition: int,
) -> SentRows:
    """Send what a task is given.

    With sharding keys or queues in the rows one chunk is under way while the next one is made: a
    row must not be sent after one of its key that failed.
    """
    in_order = bool({"sharding_key", "queue_id"} & columns.names)
    rows_max = max(1, options.max_in_flight // _WINDOW_CHUNKS)
    task = f"{written.query}/{written.batch}/{partition}"
    decisions = RowDecisions(columns, options.topic, task, rows_max)
    under_way = 1 if in_order else max(1, min(_WINDOW_CHUNKS, options.max_in_flight) - 1)
    rejected, rows = RejectedRows(options.rejected_path, written, partition), 0
    try:
        with SendWindow(options, partition, under_way) as window:
            for chunk in _sent(window, decisions.chunks(batches)):
                rejected.add(chunk)
                rows += len(chunk.bodies)
        staged = rejected.finish()
    finally:
        rejected.discard()
    return SentRows(written, partition, rows - rejected.count, rejected.count, staged)


def commit_rejected(options: SinkOptions, messages: Iterable[SentRows | None]) -> None:
    """Show the rejected rows that tasks have staged; raises OSError when that fails."""
    found = [message for message in messages if message is not None]
    if not options.rejected_path or not found:
        return
    staged = {one.partition: one.staged for one in found if one.staged is not None}
    rejected_rows.commit(options.rejected_path, found[0].written, staged)


def _sent(window: SendWindow, chunks: Iterable[RowChunk]) -> Iterator[RowChunk]:
    for chunk in chunks:
        yield from window.send(chunk)
    yield from window.finish()


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "Spark writes in tasks only"
    return task
