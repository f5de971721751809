"""A program that keeps a table of a topic on a cluster, by a streaming query, until it fails.

    spark-submit cluster_stream.py NAMESRV TOPIC PLACE

Batch n is the folder PLACE/table/batch=n, written anew when the batch is replayed. Of every few
tasks one fails at its first attempt, and one is so slow that Spark starts a second attempt.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "500ms",
}
ONE_OF = 5
"""Of so many tasks one fails, and another one is slow."""


def hindered(number: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What stands between the source and the table in the tasks of a batch."""

    def hinder(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        place = (number + task.partitionId()) % ONE_OF if task.attemptNumber() == 0 else -1
        for batch in batches:
            yield batch
            if place == 0:
                raise ValueError("the first attempt fails")
            if place == 1:
                time.sleep(5)

    return hinder


def main(namesrv: str, topic: str, place: str) -> None:
    builder = SparkSession.builder.appName("stream")
    for key, value in SPECULATION.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    options = {"namesrv": namesrv, "topic": topic, "columns": "body", "slots": "4"}
    stream = spark.readStream.format("rocketmq").options(**options)
    stream = stream.options(startingOffsets="earliest", maxOffsetsPerTrigger="200")

    def keep(frame: DataFrame, number: int) -> None:
        rows = frame.mapInArrow(hindered(number), "body binary")
        table = rows.selectExpr("cast(cast(body AS string) AS long) AS number")
        table.write.mode("overwrite").parquet(f"{place}/table/batch={number}")

    query = stream.load().writeStream.foreachBatch(keep)
    query.option("checkpointLocation", f"{place}/checkpoint").start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
