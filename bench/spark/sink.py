"""How fast rows become messages, beside a Python Arrow writer that sends nothing, in one session.

    python bench/spark/sink.py                    1,000,000 rows of 128 B, 200,000 of 1 KiB
    python bench/spark/sink.py --scale 0.1        a tenth of them
    python bench/spark/sink.py --save spark-sink  also writes bench/results/spark-sink.txt

Both write the same rows, in five rounds in turns after a small write that warms them up. The broker
is one of its own, on the same cores.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from bed import Figures, LocalCluster, Report, arguments, create_topic, process_of, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SIZES = ((128, 1_000_000), (1024, 200_000))
TOPIC = "SparkWrite"


def write(frame: DataFrame, name: str, namesrv: str) -> None:
    sink = frame.write.format(name).mode("append")
    if name == "rocketmq":
        sink = sink.options(namesrv=namesrv, topic=TOPIC)
    sink.save()


def main() -> None:
    asked = arguments(__doc__)
    report = Report(asked.save)
    with LocalCluster() as cluster, session() as spark:
        broker = process_of(cluster)
        create_topic(cluster, TOPIC)
        for size, most in SIZES:
            rows = int(most * asked.scale)
            found = {"counting": Figures(), "rocketmq": Figures()}
            for number in range(-1, asked.rounds):
                count = rows if number >= 0 else rows // 10
                frame = spark.range(0, count, numPartitions=os.cpu_count())
                frame = frame.selectExpr(f"cast(lpad(id, {size}, 'x') as binary) AS body")
                for name, figures in found.items():
                    action = partial(write, frame, name, cluster.namesrv)
                    if number < 0:
                        action()
                    else:
                        figures.measure(rows, broker, action)
            report.say(found["counting"].line(f"sends nothing, {size} B"))
            report.say(found["rocketmq"].line(f"sink, {size} B", found["counting"]))
    report.save()


if __name__ == "__main__":
    main()
