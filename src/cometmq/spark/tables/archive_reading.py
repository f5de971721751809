"""Reads an archive: exactly the rows that are committed, each once, whatever a job does meanwhile.

The newest manifest says which files these are. Merged files stay for an hour, so a frame that was
made before goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cometmq.errors import CometError
from cometmq.spark.tables.manifest import DEAD, ROWS
from cometmq.spark.tables.manifest_log import ManifestLog
from cometmq.spark.tables.table_files import table_files

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from cometmq.spark.tables.manifest import DataFile


def read_archive(spark: SparkSession, directory: str | Path, *, misfits: bool = False) -> DataFrame:
    """The rows of an archive as they are now; with `misfits`, the messages that did not fit.

    The frame is a snapshot. Raises CometError where there is no archive.
    """
    log = ManifestLog(table_files(spark, directory))
    kind = DEAD if misfits else ROWS
    return frame_of(spark, log, kind, (one for one in log.current.files if one.kind == kind))


def archive_files(
    spark: SparkSession, directory: str | Path, *, misfits: bool = False
) -> list[str]:
    """The Parquet files of an archive as they are now, as URIs, for readers other than Spark.

    The partition is in their paths (`day=2026-11-22`), not in the files.
    """
    log = ManifestLog(table_files(spark, directory))
    kind = DEAD if misfits else ROWS
    return [f"{log.files.uri}/{one.path}" for one in log.current.files if one.kind == kind]


def frame_of(
    spark: SparkSession, log: ManifestLog, kind: str, files: Iterable[DataFile]
) -> DataFrame:
    """The rows of some files of one kind, with all columns of the table, partition included."""
    from pyspark.sql.types import StructType

    schema: Any = log.current.schemas.get(kind)
    if schema is None:
        raise CometError(
            f"there is no archive in {log.files.uri}: make one with `cometmq pipeline archive`"
        )
    columns = StructType.fromJson(schema)
    paths = [f"{log.files.uri}/{one.path}" for one in files]
    if not paths:
        return spark.createDataFrame([], columns)
    reader = spark.read.schema(columns).option("basePath", f"{log.files.uri}/{kind}")
    return reader.parquet(*paths).select(*columns.fieldNames())
