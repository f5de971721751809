"""A program that reads and writes a topic on a cluster, and says what works and where from.

    spark-submit cluster_packaging.py NAMESRV TOPIC PLACE

Writes as JSON of `read`, `stream` and `write`, "ok" or the error: by the name of the format
alone, and again once the class was registered; and where driver and executors find the package.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def home() -> str:
    """The place of the package in this process."""
    import cometmq

    return str(cometmq.__file__)


def said(call: Callable[[], object]) -> str:
    try:
        call()
    except (PySparkException, Py4JError) as error:
        return str(error)
    return "ok"


def outcomes(spark: SparkSession, where: dict[str, str], place: str) -> dict[str, str]:
    def stream() -> None:
        frame = spark.readStream.format("rocketmq").options(**where, startingOffsets="earliest")
        writer = frame.load().writeStream.format("parquet").option("path", f"{place}/out")
        writer = writer.option("checkpointLocation", f"{place}/checkpoint")
        writer.trigger(availableNow=True).start().awaitTermination()

    write = spark.range(3).selectExpr("'written' AS body").write.format("rocketmq").mode("append")
    return {
        "read": said(lambda: spark.read.format("rocketmq").options(**where).load().count()),
        "stream": said(stream),
        "write": said(lambda: write.options(**where).save()),
    }


def main(namesrv: str, topic: str, place: str) -> None:
    spark = SparkSession.builder.appName("packaging").getOrCreate()
    where = {"namesrv": namesrv, "topic": topic}

    def homes(_: Iterator[int]) -> Iterator[str]:
        yield home()

    found: dict[str, object] = {
        "homes": sorted(
            {home(), *spark.sparkContext.parallelize(range(4), 4).mapPartitions(homes).collect()}
        ),
        "by name": outcomes(spark, where, f"{place}/named"),
    }
    from cometmq.spark.data_source import RocketMQSource

    spark.dataSource.register(RocketMQSource)
    found["registered"] = outcomes(spark, where, f"{place}/registered")
    sys.stdout.write(json.dumps(found) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
