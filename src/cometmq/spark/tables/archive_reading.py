"""Reads an archive: exactly the rows that are committed, each once, whatever a job does meanwhile.

The newest manifest says which files these are. Merged files stay for an hour, so a frame that was
made before goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.spark.tables.manifest import DEAD, ROWS
from cometmq.spark.tables.manifest_log import ManifestLog
from cometmq.spark.tables.table_files import table_files
from cometmq.spark.tables.table_logs import table_log

if TYPE_CHECKING:
    from pathlib import Path

    from pyiceberg.catalog import Catalog
    from pyspark.sql import DataFrame, SparkSession


def read_archive(
    spark: SparkSession,
    directory: str | Path,
    *,
    misfits: bool = False,
    iceberg: str | Catalog | None = None,
) -> DataFrame:
    """The rows of an archive as they are now; with `misfits`, the messages that did not fit.

    The frame is a snapshot. `iceberg` is as for `archive`. Raises CometError where there is no
    archive.
    """
    return table_log(spark, directory, iceberg).frame(spark, DEAD if misfits else ROWS)


def archive_files(
    spark: SparkSession, directory: str | Path, *, misfits: bool = False
) -> list[str]:
    """The Parquet files of an archive as they are now, as URIs, for readers other than Spark.

    The partition is in their paths (`day=2026-11-22`), not in the files.
    """
    log = ManifestLog(table_files(spark, directory))
    kind = DEAD if misfits else ROWS
    return [f"{log.files.uri}/{one.path}" for one in log.current.files if one.kind == kind]
