"""How fast rows become messages: the sink beside a Python Arrow writer that sends nothing.

    .venv/bin/python bench/spark_write.py --rows 1000000 --body 128

Both write the same rows in one session, in turns after a small write that warms them up; the
broker is one of its own, on the same cores. Prints of each rows a second and the CPU of a row, of
Spark (JVM and Python) and of the broker, which also holds on a busy machine; then the shares.
"""

from __future__ import annotations

import argparse
import os
import time
from statistics import median
from typing import TYPE_CHECKING

import psutil
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from cometmq import Admin
from cometmq.spark.session import spark_session
from cometmq.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

TOPIC, QUEUES = "SparkWrite", 8


class CountingSource(DataSource):
    """A format whose writer adds up the lengths of the bodies."""

    @classmethod
    def name(cls) -> str:
        return "counting"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        del schema, overwrite

        class Writer(DataSourceArrowWriter):
            def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
                sum(len(body) for batch in iterator for body in batch.column("body").to_pylist())
                return WriterCommitMessage()

        return Writer()


class Meter:
    """CPU seconds used so far: by this process and its children without the broker, and by it."""

    def __init__(self, broker: int) -> None:
        self._broker = psutil.Process(broker)

    def read(self) -> tuple[float, float]:
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        used = {one.pid: self._seconds(one) for one in processes}
        broker = used.pop(self._broker.pid, 0.0)
        return sum(used.values()), broker

    def _seconds(self, process: psutil.Process) -> float:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            return 0.0
        return times.user + times.system + times.children_user + times.children_system


def seconds(frame: DataFrame, name: str, namesrv: str) -> float:
    sink = frame.write.format(name).mode("append")
    if name == "rocketmq":
        sink = sink.options(namesrv=namesrv, topic=TOPIC)
    began = time.perf_counter()
    sink.save()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--body", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with LocalCluster() as cluster:
        with Admin(namesrv=cluster.namesrv) as admin:
            admin.create_topic(TOPIC, queues=QUEUES)
        spark = spark_session("bench", heap_mb=1024)
        spark.dataSource.register(CountingSource)
        found: dict[str, list[float]] = {"counting": [], "rocketmq": []}
        costs: dict[str, list[float]] = {"counting": [], "rocketmq": []}
        meter = Meter(cluster.pid)
        for rows in (1000, *[asked.rows] * asked.rounds):
            frame = spark.range(0, rows, numPartitions=os.cpu_count())
            frame = frame.selectExpr(f"cast(lpad(id, {asked.body}, 'x') as binary) AS body")
            for name, rates in found.items():
                before = meter.read()
                rate = rows / seconds(frame, name, cluster.namesrv)
                spent, broker = (
                    1e6 * (now - then) / rows
                    for now, then in zip(meter.read(), before, strict=True)
                )
                if rows > 1000:
                    rates.append(rate)
                    costs[name].append(spent + broker)
                    print(
                        f"{name:<10} {rate:>10,.0f} rows/s, CPU a row {spent:5.1f} us in Spark, "
                        f"{broker:5.1f} us in the broker",
                        flush=True,
                    )
        spark.stop()
        print(f"share of the rate: {median(found['rocketmq']) / median(found['counting']):.2f}")
        print(f"share by CPU: {median(costs['counting']) / median(costs['rocketmq']):.2f}")


if __name__ == "__main__":
    main()
