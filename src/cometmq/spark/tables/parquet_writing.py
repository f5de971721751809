"""How the tables' Parquet files are written: zstd, times that every reader knows, no marker files.

Spark's own default for times is a form that newer readers refuse; the setting is the session's, so
it is put back.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.readwriter import DataFrameWriter

_TIMES = "spark.sql.parquet.outputTimestampType"


def parquet_writer(frame: DataFrame) -> DataFrameWriter:
    """The writer of a frame, into a directory that does not exist yet."""
    return frame.write.option("compression", "zstd").option(
        "mapreduce.fileoutputcommitter.marksuccessfuljobs", "false"
    )


@contextmanager
def exact_times(spark: SparkSession) -> Iterator[None]:
    """Have times written as microseconds meanwhile."""
    before = spark.conf.get(_TIMES)
    spark.conf.set(_TIMES, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        spark.conf.set(_TIMES, before)
