"""A program that runs `listen` elsewhere: on a cluster of this machine, or by Spark Connect.

    python listen_program.py WHERE FOLDER

WHERE is a master, as `local-cluster[2,1,1024]`, or `connect`. FOLDER/given has group, topic,
handler and settings, pickled by value. Queries follow one another until there is a FOLDER/stop, and
then there is one more, so that all offsets are committed. A worker may die once.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cometmq.spark import listen

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def session(where: str) -> SparkSession:
    """The session that a user would have there."""
    if where == "connect":
        return SparkSession.builder.remote("local[2]").getOrCreate()
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": QUICK,
        "spark.executor.extraJavaOptions": QUICK,
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master(where)
    for name, text in settings.items():
        builder = builder.config(name, text)
    return builder.getOrCreate()


def main(where: str, folder: str) -> None:
    given = cloudpickle.loads(Path(folder, "given").read_bytes())
    spark, deaths = session(where), 0
    is_last = has_failed = False
    while not is_last or has_failed:
        is_last, has_failed = Path(folder, "stop").exists(), False
        try:
            query = listen(
                spark,
                given["group"],
                given["topic"],
                "*",
                given["handler"],
                checkpoint=f"{folder}/checkpoint",
                trigger={"availableNow": True},
                **given["settings"],
            )
            query.awaitTermination()
        except PySparkException as error:
            has_failed = True
            if "worker failed to connect back" in str(error):
                time.sleep(5)
                continue  # Spark gives it ten seconds, which is little on a loaded machine
            deaths += 1
            if where != "connect" or deaths > 1:  # a cluster runs a task again by itself
                raise
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
