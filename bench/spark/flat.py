"""Whether a row costs the same from the first to the last of ten million, in one query.

    python bench/spark/flat.py                    10,000,000 rows of 128 B in batches of 250,000
    python bench/spark/flat.py --scale 0.1        a tenth of them
    python bench/spark/flat.py --save spark-flat  also writes bench/results/spark-flat.txt

A stream of equal batches into the noop sink. Prints for each tenth what a row took and cost on both
sides, and the memory of Spark's processes (resident, shared pages counted in each). The mark: a row
of the last tenth costs at most 1.15 times one of the second; the first warms up.
"""

from __future__ import annotations

import os
import tempfile
import time
from itertools import pairwise

from bed import (
    LocalCluster,
    Report,
    arguments,
    cpu_s,
    fill,
    memory_mib,
    process_of,
    session,
    spark_cpu_s,
)

ROWS, BATCH, MARK = 10_000_000, 250_000, 1.15
Point = tuple[float, float, float, float]
"""Time, CPU at Spark, CPU at the broker, memory in MiB."""


def main() -> None:
    asked = arguments(__doc__)
    rows = int(ROWS * asked.scale)
    batch = int(BATCH * asked.scale)
    report = Report(asked.save)
    conf_name = "spark.sql.streaming.numRecentProgressUpdates"
    with LocalCluster() as cluster, session() as spark, tempfile.TemporaryDirectory() as place:
        spark.conf.set(conf_name, "1000")
        broker = process_of(cluster)
        fill(cluster, "Flat", rows, 128)
        options = {"namesrv": cluster.namesrv, "topic": "Flat", "startingOffsets": "earliest"}
        frame = spark.readStream.format("rocketmq").options(
            **options, maxOffsetsPerTrigger=str(batch)
        )
        writer = frame.load().writeStream.format("noop").option("checkpointLocation", place)
        points: dict[int, Point] = {}

        def note(batches: int) -> None:
            now = time.perf_counter()
            points[batches] = (now, spark_cpu_s(broker), cpu_s(broker), memory_mib(broker))

        note(0)
        query = writer.trigger(availableNow=True).start()
        while query.isActive:
            time.sleep(0.05)
            last = query.lastProgress
            if last is not None and last["numInputRows"] and last["batchId"] + 1 not in points:
                note(last["batchId"] + 1)
        query.awaitTermination()
        note(rows // batch)
        done = sum(one["numInputRows"] for one in query.recentProgress)
        report.say(f"rows       {done:,} in {rows // batch} batches, load {os.getloadavg()[0]:.1f}")
        costs = tenths(report, points, rows, batch)
        report.say(
            f"last to second tenth: {costs[-1][1] / costs[1][1]:.2f} x the CPU at Spark, "
            f"{costs[-1][0] / costs[1][0]:.2f} x the time; mark {MARK}"
        )
    report.save()


def tenths(report: Report, points: dict[int, Point], rows: int, batch: int) -> list[Point]:
    """What a row took in each tenth, in microseconds."""
    found = []
    ends = [min(points, key=lambda at: abs(at - rows * n / 10 / batch)) for n in range(11)]
    for number, (a, b) in enumerate(pairwise(ends), 1):
        count = (b - a) * batch
        took, spark, broker = ((points[b][at] - points[a][at]) / count * 1e6 for at in range(3))
        found.append((took, spark, broker, points[b][3]))
        report.say(
            f"tenth {number:>2}   {took:5.2f} us a row, CPU {spark:5.2f} us at Spark, "
            f"{broker:5.2f} at the broker, {points[b][3]:,.0f} MiB at its end"
        )
    return found


if __name__ == "__main__":
    main()
