"""A program that writes 20,000 rows on a cluster while something goes wrong.

    spark-submit cluster_write.py NAMESRV TOPIC SCENARIO REJECTED

Scenarios: `retry` (the first attempt of each task fails after half of its rows), `kill` (the
executor of a first attempt is killed), `speculate` (the first attempt of a task is so slow that
Spark starts a second one). Every hundredth row cannot be sent, and goes to the table REJECTED.
Writes as JSON how many messages the topic has, and whether `deduplicated` and the table are exact.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql import SparkSession

from cometmq import LitePullConsumer
from cometmq.spark import deduplicated
from cometmq.spark.sink.row_identity import WRITE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

ROWS, TASKS, SENT_S = 20_000, 4, 120


def hindered(
    scenario: str, namesrv: str, topic: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What stands before the sink in a task."""

    def hinder(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        first, rows = context.attemptNumber() == 0, 0
        for batch in batches:
            if first and rows < ROWS // TASKS // 2 <= rows + batch.num_rows:
                wait_until_sent(namesrv, topic, context.partitionId())
                if scenario == "retry":
                    raise ValueError("the first attempt fails")
                if scenario == "kill" and context.partitionId() == 0:
                    os.kill(executor(), signal.SIGKILL)
                if scenario == "speculate" and context.partitionId() == TASKS - 1:
                    time.sleep(60)
            rows += batch.num_rows
            yield batch

    return hinder


def wait_until_sent(namesrv: str, topic: str, partition: int) -> None:
    """Wait until the topic has a message of the first half of a task."""
    end = time.monotonic() + SENT_S
    seen = LitePullConsumer(f"{topic}-{partition}", namesrv=namesrv, consume_from="first")
    seen.subscribe(topic)
    with seen:
        while time.monotonic() < end:
            tasks = {message.properties[WRITE].split("/")[2] for message in seen.poll()}
            if str(partition) in tasks:
                return
    raise TimeoutError(f"no message of partition {partition} was sent within {SENT_S} s")


def executor() -> int:
    """The JVM that runs this task: the first process above this one that is no Python."""
    pid = os.getpid()
    while True:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")
        if "java" in name:
            return pid
        pid = int(rest.split()[1])


def main(namesrv: str, topic: str, scenario: str, rejected: str) -> None:
    builder = SparkSession.builder.appName(scenario)
    settings = {
        "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
        "spark.speculation": str(scenario == "speculate").lower(),
        "spark.speculation.interval": "200ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "1s",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    # Rows long enough that Spark's buffers let those pass that come before the fault.
    bodies = "if(id % 100 = 50, '', lpad(id, 400, '0')) AS body"
    rows = spark.range(0, ROWS, numPartitions=TASKS).selectExpr(bodies, "id")
    frame = rows.mapInArrow(hindered(scenario, namesrv, topic), rows.schema)
    options = {"namesrv": namesrv, "topic": topic}
    sink = frame.write.format("rocketmq").mode("append").options(**options)
    sink.options(ignoreColumns="id", rejectedPath=rejected).save()
    sent = spark.read.format("rocketmq").options(**options, includeProperties="true").load()
    kept = {int(row.body) for row in deduplicated(sent).select("body").collect()}
    table = sorted(row.id for row in spark.read.parquet(rejected).select("id").collect())
    found = {
        "sent": sent.count(),
        "deduplicated": deduplicated(sent).count(),
        "whole": kept == {row for row in range(ROWS) if row % 100 != 50},
        "rejected": table == list(range(50, ROWS, 100)),
    }
    sys.stdout.write(json.dumps(found) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
