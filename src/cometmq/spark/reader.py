"""The batch and the stream reader: Spark's hooks, each a few lines over planning and pulling.

Owns: what Spark calls when (spark.md, 2.2 and 2.3). The planner process asks for offsets and
partitions, the task processes read; what one learns reaches the other only through partitions.
Refuses to know: sockets, records, the arithmetic of offsets.
Invariant: a reader holds plain values only, because it is pickled; `read` gives the same rows for
the same ranges however often it runs; no filter is taken from Spark (it would be applied to other
queries of the same DataFrame as well).
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
from cometmq.spark.arrow_batches import Gather
from cometmq.spark.cluster_client import cluster_of
from cometmq.spark.offset_planning import Offsets, pack, plan_end, plan_ranges, require_no_loss
from cometmq.spark.options import EARLIEST, LATEST
from cometmq.spark.pull import chunks_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from cometmq.spark.offset_planning import Range
    from cometmq.spark.options import SourceOptions

_POLL_MIN_S, _POLL_MAX_S = 0.02, 0.05


def batches_of(options: SourceOptions, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
    """The messages of the ranges, one range after the other, as Arrow batches."""
    cluster = cluster_of(options)
    gather = Gather(options.topic, options.columns, options.tags)
    for one in ranges:
        for chunk in chunks_of(cluster, one):
            batch = gather.add(chunk)
            if batch is not None:
                yield batch
    batch = gather.finish()
    if batch is not None:
        yield batch


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """One read of the topic as it is when Spark plans it: later messages are not in it."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Fix the offsets, and pack them into partitions."""
        options, cluster = self._options, cluster_of(self._options)
        start = cluster.resolve(options.starting or EARLIEST, left_out="earliest")
        end = cluster.resolve(options.ending or LATEST, left_out="latest")
        return _partitions(options, start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition; Spark makes an empty one when there is nothing to read."""
        return batches_of(self._options, partition.value or ())


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """A stream over the topic; how far it got is in Spark's checkpoint and nowhere else."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._first: Offsets | None = None
        self._target: Offsets | None = None
        self._heads: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Where a new query starts; asked twice, so it is resolved once."""
        if self._first is None:
            bound = self._options.starting or LATEST
            self._first = cluster_of(self._options).resolve(bound, left_out="earliest")
        return self._first

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """What `maxOffsetsPerTrigger` says."""
        limit = self._options.max_offsets
        return ReadMaxRows(limit) if limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Freeze the end of this run: what is there now, and nothing that comes later."""
        self._target = cluster_of(self._options).heads()

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: Offsets | None = None, limit: ReadLimit | None = None
    ) -> Offsets:
        """Where the next batch ends, within the limit; waits a moment for messages to come."""
        at = self.initialOffset() if start is None else start
        self._heads = heads = self._target or self._heads_beyond(at)
        new = heads.keys() - at.keys()
        begins = cluster_of(self._options).begins(new) if new else {}
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return plan_end(at, heads, begins, max_rows)

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802 - Spark's name
        """The ends of the queues as last seen; minus `endOffset`, it is the lag."""
        return self._heads

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """The ranges of a batch, from its logged offsets and the options alone."""
        return _partitions(self._options, start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition."""
        return batches_of(self._options, partition.value)

    def commit(self, end: Offsets) -> None:
        """Nothing: Spark's checkpoint is the truth, and tells this a batch late."""

    def _heads_beyond(self, at: Offsets) -> Offsets:
        """The ends of the queues, as soon as one is beyond `at` or `idleWaitMs` has passed."""
        deadline = time.monotonic() + self._options.idle_wait_ms / 1000
        pause_s = _POLL_MIN_S
        while True:
            heads = self._checked_heads(at)
            has_news = any(head > at.get(key, -1) for key, head in heads.items())
            if has_news or time.monotonic() + pause_s >= deadline:
                return heads
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, _POLL_MAX_S)

    def _checked_heads(self, at: Offsets) -> Offsets:
        """The ends of the queues; a queue that shrank is given time to come back."""
        cluster = cluster_of(self._options)
        patience = cluster.patience()
        while True:
            heads = cluster.heads()
            try:
                if self._options.fail_on_data_loss:
                    require_no_loss(self._options.topic, at, heads)
            except QueueShrank as error:
                cluster.reset()
                patience.pause_or_raise(error)
            else:
                return heads


def _partitions(options: SourceOptions, start: Offsets, end: Offsets) -> list[InputPartition]:
    packed = pack(plan_ranges(start, end), options.slots)
    return [InputPartition(ranges) for ranges in packed]
