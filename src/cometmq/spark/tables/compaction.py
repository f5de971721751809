"""Merges the small files that many commits leave, a partition at a time.

Readers see each row once at any instant: files are exchanged in one manifest, and the old ones stay
for those who still read them. Rows keep their partition; inside a file they come by queue and
offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import CometError
from cometmq.spark.source.columns import PLACE
from cometmq.spark.tables.parquet_writing import exact_times, parquet_writer
from cometmq.spark.tables.spark_failures import spark_errors_translated

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

    from cometmq.spark.tables.manifest import DataFile
    from cometmq.spark.tables.manifest_log import ManifestLog

SMALL_BYTES = 32 * 1024 * 1024
MERGED_BYTES = 128 * 1024 * 1024
SMALL_FILES_MAX = 16
"""Small files that a partition may have before they are merged."""


def small_files(files: Iterable[DataFile]) -> list[list[DataFile]]:
    """Files to be merged, a list for each new file: of one partition, not above MERGED_BYTES."""
    by_partition: dict[str, list[DataFile]] = {}
    for one in files:
        if one.size < SMALL_BYTES:
            by_partition.setdefault(one.partition, []).append(one)
    found: list[list[DataFile]] = []
    for some in by_partition.values():
        if len(some) < SMALL_FILES_MAX:
            continue
        group: list[DataFile] = []
        size = 0
        for one in some:
            if size + one.size > MERGED_BYTES:
                found.append(group)
                group, size = [], 0
            group.append(one)
            size += one.size
        found.append(group)
    return [group for group in found if len(group) > 1]


def compact(spark: SparkSession, log: ManifestLog) -> int:
    """Merge what has too many small files; return how many files were merged into others.

    The job that calls it has begun to write. Raises TableHasNewerWriter.
    """
    merged = 0
    for group in small_files(log.current.files):
        with spark_errors_translated():
            _merge(spark, log, group)
        merged += len(group)
    return merged


def _merge(spark: SparkSession, log: ManifestLog, group: list[DataFile]) -> None:
    kind, commit = group[0].kind, log.new_commit()
    frame = log.frame_of(spark, kind, group)
    by = [part.partition("=")[0] for part in group[0].partition.split("/")[1:]]
    one = frame.repartition(1).sortWithinPartitions(*by, *PLACE)
    with exact_times(spark):
        parquet_writer(one).partitionBy(*by).parquet(log.uri(kind, commit))
    new = log.written(commit)
    if _rows(spark, log, new) != _rows(spark, log, group):
        raise CometError(
            f"merging {len(group)} files of {log.files.uri} gave other rows, and nothing changed"
        )
    log.commit_merge(group, new)


def _rows(spark: SparkSession, log: ManifestLog, files: list[DataFile]) -> tuple[object, ...]:
    from pyspark.sql import functions as f

    frame: DataFrame = log.frame_of(spark, files[0].kind, files)
    offsets = f.sum(f.col("queue_offset").cast("decimal(38,0)"))
    return tuple(frame.agg(f.count("*"), offsets).collect()[0])
