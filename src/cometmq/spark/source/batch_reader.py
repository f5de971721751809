"""The batch reader: what Spark asks for one read of some topics.

Invariant: a reader holds plain values only, because it is pickled; `read` returns the same rows for
the same ranges however often it runs; no filter is pushed down from Spark (it would also apply to
other queries of the same DataFrame).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from cometmq.spark.source.bound_resolution import known_queues, require_start_before_end, resolve
from cometmq.spark.source.cluster_client import cluster_client_of
from cometmq.spark.source.offset_bounds import EARLIEST, LATEST
from cometmq.spark.source.partition_packing import partitions_of
from cometmq.spark.source.planned_offsets import PlannedOffsets
from cometmq.spark.source.pull import read_batches
from cometmq.spark.source.recreated_queues import checked_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from cometmq.spark.source.source_options import SourceOptions


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """One read of topics as they are when Spark plans it, without later messages."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Fix the offsets, and pack them into partitions."""
        options, cluster = self._options, cluster_client_of(self._options)
        starting, ending = options.starting or EARLIEST, options.ending or LATEST
        positions = cluster.positions(known_queues(starting, ending))
        start = resolve(cluster, starting, positions, left_out="earliest")
        end = resolve(cluster, ending, positions, left_out="latest")
        require_start_before_end(start, end)
        ranges = checked_ranges(
            cluster,
            PlannedOffsets(start, starting.last_store_ms),
            PlannedOffsets(end, ending.last_store_ms),
        )
        return [InputPartition(part) for part in partitions_of(ranges, options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition; Spark makes an empty one when there is nothing to read."""
        return read_batches(self._options, partition.value or ())
