"""The batch and the stream reader: Spark's hooks, each a few lines over planning and pulling.

The planner process asks for offsets and partitions; the task processes read. Only partitions carry
values from one to the other.
Invariant: a reader holds plain values only, because it is pickled; `read` returns the same rows for
the same ranges however often it runs; no filter is pushed down from Spark (it would also apply to
other queries of the same DataFrame).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from cometmq.errors import QueueShrank
from cometmq.spark.source.arrow_batches import BatchBuilder
from cometmq.spark.source.cluster_client import cluster_client_of
from cometmq.spark.source.offset_planning import (
    Offsets,
    pack_partitions,
    plan_end,
    plan_ranges,
    require_no_loss,
)
from cometmq.spark.source.pull import pull_range
from cometmq.spark.source.source_options import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from cometmq.spark.source.offset_planning import OffsetRange
    from cometmq.spark.source.source_options import SourceOptions

_POLL_MIN_S, _POLL_MAX_S = 0.02, 0.05


def read_batches(options: SourceOptions, ranges: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
    """The messages of the ranges, one range after the other, as Arrow batches."""
    cluster = cluster_client_of(options)
    builder = BatchBuilder(options.topic, options.columns, options.tags)
    for one in ranges:
        for chunk in pull_range(cluster, one):
            batch = builder.add(chunk)
            if batch is not None:
                yield batch
    batch = builder.finish()
    if batch is not None:
        yield batch


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """One read of the topic as it is when Spark plans it, without later messages."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Fix the offsets, and pack_partitions them into partitions."""
        options, cluster = self._options, cluster_client_of(self._options)
        start = cluster.resolve(options.starting or EARLIEST, left_out="earliest")
        end = cluster.resolve(options.ending or LATEST, left_out="latest")
        return _partitions(options, start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition; Spark makes an empty one when there is nothing to read."""
        return read_batches(self._options, partition.value or ())


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """A stream over the topic; only Spark's checkpoint says how far it got."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._first: Offsets | None = None
        self._target: Offsets | None = None
        self._latest_offsets: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Where a new query starts; Spark asks twice, so it is resolved once."""
        if self._first is None:
            bound = self._options.starting or LATEST
            self._first = cluster_client_of(self._options).resolve(bound, left_out="earliest")
        return self._first

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit of `maxOffsetsPerTrigger`."""
        limit = self._options.max_offsets
        return ReadMaxRows(limit) if limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of this run at the latest offsets of now."""
        self._target = cluster_client_of(self._options).latest_offsets()

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: Offsets | None = None, limit: ReadLimit | None = None
    ) -> Offsets:
        """Where the next batch ends, within the limit; waits a moment for new messages."""
        at = self.initialOffset() if start is None else start
        self._latest_offsets = latest_offsets = self._target or self._latest_offsets_beyond(at)
        new = latest_offsets.keys() - at.keys()
        earliest_offsets = cluster_client_of(self._options).earliest_offsets(new) if new else {}
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return plan_end(at, latest_offsets, earliest_offsets, max_rows)

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802 - Spark's name
        """The latest offsets as last seen; minus `endOffset` they are the lag."""
        return self._latest_offsets

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """The partitions of a batch, from its logged offsets and the options alone."""
        return _partitions(self._options, start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition."""
        return read_batches(self._options, partition.value)

    def commit(self, end: Offsets) -> None:
        """Nothing: Spark's checkpoint counts, and this call comes a batch late."""

    def _latest_offsets_beyond(self, at: Offsets) -> Offsets:
        """The latest offsets, once one is beyond `at` or `idleWaitMs` has passed."""
        deadline = time.monotonic() + self._options.idle_wait_ms / 1000
        pause_s = _POLL_MIN_S
        while True:
            latest_offsets = self._checked_latest_offsets(at)
            has_news = any(latest > at.get(key, -1) for key, latest in latest_offsets.items())
            if has_news or time.monotonic() + pause_s >= deadline:
                return latest_offsets
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, _POLL_MAX_S)

    def _checked_latest_offsets(self, at: Offsets) -> Offsets:
        """The latest offsets; waits for a queue that shrank to grow again."""
        cluster = cluster_client_of(self._options)
        retry_deadline = cluster.retry_deadline()
        while True:
            latest_offsets = cluster.latest_offsets()
            try:
                if self._options.fail_on_data_loss:
                    require_no_loss(self._options.topic, at, latest_offsets)
            except QueueShrank as error:
                cluster.reset()
                retry_deadline.wait_or_raise(error)
            else:
                return latest_offsets


def _partitions(options: SourceOptions, start: Offsets, end: Offsets) -> list[InputPartition]:
    packed = pack_partitions(plan_ranges(start, end), options.slots)
    return [InputPartition(ranges) for ranges in packed]
