"""How fast a topic becomes rows, beside Arrow batches that are ready, in one session.

    python bench/spark/source.py                      1,000,000 rows of 128 B, 400,000 of 1 KiB
    python bench/spark/source.py --scale 0.1          a tenth of them
    python bench/spark/source.py --save spark-source  also writes bench/results/spark-source.txt

Default columns, into the noop sink and into Parquet; five rounds in turns after small reads that
warm everything up. The broker is one of its own, on the same cores.
"""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bed import Figures, LocalCluster, Report, arguments, fill, process_of, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIZES = ((128, 1_000_000), (1024, 400_000))


def frames(spark: SparkSession, namesrv: str, rows: int, size: int) -> dict[str, DataFrame]:
    """What is read: made anew each time, because a frame keeps the offsets it was planned with."""
    parts = str(os.cpu_count())
    ready = spark.read.format("ready").options(rows=str(rows), body=str(size), parts=parts)
    topic = spark.read.format("rocketmq").options(namesrv=namesrv, topic=f"Rows{size}")
    return {"ready": ready.load(), "source": topic.load()}


def write(frame: DataFrame, kind: str) -> None:
    if kind == "noop":
        frame.write.format("noop").mode("overwrite").save()
        return
    with tempfile.TemporaryDirectory(prefix="cometmq-bench-") as place:
        frame.write.parquet(str(Path(place) / "rows"))


def main() -> None:
    asked = arguments(__doc__)
    report = Report(asked.save)
    with LocalCluster() as cluster, session() as spark:
        broker = process_of(cluster)
        for size, most in SIZES:
            rows = int(most * asked.scale)
            fill(cluster, f"Rows{size}", rows, size)
            for kind in ("noop", "parquet"):
                found = {"ready": Figures(), "source": Figures()}
                for name in found:
                    write(frames(spark, cluster.namesrv, rows // 10, size)[name], kind)
                for _ in range(asked.rounds):
                    for name, figures in found.items():
                        frame = frames(spark, cluster.namesrv, rows, size)[name]
                        figures.measure(rows, broker, partial(write, frame, kind))
                report.say(found["ready"].line(f"ready, {size} B, {kind}"))
                report.say(found["source"].line(f"source, {size} B, {kind}", found["ready"]))
    report.save()


if __name__ == "__main__":
    main()
