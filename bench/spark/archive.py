"""How fast a topic is archived, beside Arrow batches that are ready written to Parquet.

    python bench/spark/archive.py                       1,000,000 rows of 128 B, 400,000 of 1 KiB
    python bench/spark/archive.py --scale 0.1           a tenth of them
    python bench/spark/archive.py --save spark-archive  also writes bench/results/spark-archive.txt

One commit, no schema, partitioned by day, without merging files; five rounds in turns, each into a
directory of its own, after a small run that warms everything up.
"""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bed import Figures, LocalCluster, Report, arguments, fill, process_of, session

from cometmq.spark.tables.archive import archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZES = ((128, 1_000_000), (1024, 400_000))


def ready(spark: SparkSession, rows: int, size: int) -> None:
    """Write ready batches to Parquet."""
    options = {"rows": str(rows), "body": str(size), "parts": str(os.cpu_count())}
    with tempfile.TemporaryDirectory(prefix="cometmq-bench-") as place:
        frame = spark.read.format("ready").options(**options).load()
        frame.write.parquet(str(Path(place) / "rows"))


def archived(spark: SparkSession, rows: int, topic: str, namesrv: str) -> None:
    """Archive a topic."""
    with tempfile.TemporaryDirectory(prefix="cometmq-bench-") as place:
        done = archive(spark, topic, place, namesrv=namesrv, compact=False, max_rows=rows + 1)
        assert done.rows == rows, done


def main() -> None:
    asked = arguments(__doc__)
    report = Report(asked.save)
    with LocalCluster() as cluster, session() as spark:
        broker = process_of(cluster)
        fill(cluster, "Warm", 10_000, 128)
        archived(spark, 10_000, "Warm", cluster.namesrv)
        for size, most in SIZES:
            rows = int(most * asked.scale)
            fill(cluster, f"Rows{size}", rows, size)
            ready(spark, rows // 10, size)
            first, second = Figures(), Figures()
            for _ in range(asked.rounds):
                first.measure(rows, broker, partial(ready, spark, rows, size))
                run = partial(archived, spark, rows, f"Rows{size}", cluster.namesrv)
                second.measure(rows, broker, run)
            report.say(first.line(f"ready, {size} B, parquet"))
            report.say(second.line(f"archive, {size} B", first))
    report.save()


if __name__ == "__main__":
    main()
