"""What a topic of many queues costs a streaming query: its log entries, its planning, its batches.

    python bench/spark/queues.py                      1,000 and 10,000 queues, five rounds
    python bench/spark/queues.py --save spark-queues  also writes bench/results/spark-queues.txt

Every queue has messages of 128 B; a batch has two of each queue. Planning: CPU of the planner's
process for a batch, the start of the query left out, and what Spark gives as the time of
`latestOffset`. The noop sink; the broker is one of its own, on the same cores.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bed import WINDOW, LocalCluster, Report, arguments, cpu_s, create_topic, session, spark_pids

from cometmq.net.blocking_channel import BlockingChannel
from cometmq.wire.codes import RequestCode
from cometmq.wire.records import message_batch
from messages import send_header

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUEUES = (1_000, 10_000)
BATCHES, IN_A_BATCH = 6, 2
PLANNER = b"python_streaming_source_runner"


def fill_queues(cluster: LocalCluster, topic: str, queues: int) -> None:
    """As many messages in each queue as all batches take."""
    create_topic(cluster, topic, queues)
    items = [message_batch.BatchItem(0, b"x" * 128, b"TAGS\x01A\x02")] * (BATCHES * IN_A_BATCH)
    body = message_batch.encode(items)
    with BlockingChannel(cluster.broker) as channel:
        window: list[int] = []
        for queue in range(queues):
            header = send_header(topic, queue, queues, is_batch=True)
            window.append(channel.post(RequestCode.SEND_BATCH_MESSAGE, header, body))
            if len(window) >= WINDOW or queue == queues - 1:
                answers = [channel.wait(opaque) for opaque in window]
                assert not any(answer.code for answer in answers), "all are stored"
                window.clear()


def planner_cpu_s() -> float:
    """What the planners below this process have used."""
    pids = [pid for pid in spark_pids() if PLANNER in command_of(pid)]
    return sum(map(cpu_s, pids))


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def measure(spark: SparkSession, namesrv: str, topic: str, queues: int) -> dict[str, float]:
    """Medians of one query's batches, all but the first one; times in ms."""
    read = spark.readStream.format("rocketmq").options(
        namesrv=namesrv,
        topic=topic,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=str(IN_A_BATCH * queues),
    )
    planner: list[float] = []
    with tempfile.TemporaryDirectory(prefix="cometmq-bench-") as place:

        def take(frame: DataFrame, _: int) -> None:
            frame.write.format("noop").mode("append").save()
            planner.append(planner_cpu_s())

        writer = read.load().writeStream.foreachBatch(take).option("checkpointLocation", place)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        entry = Path(place, "offsets", "1").stat().st_size
    progress = [one for one in query.recentProgress if one["numInputRows"]][1:]
    assert [one["numInputRows"] for one in progress] == [IN_A_BATCH * queues] * (BATCHES - 1)

    def middle(phase: str) -> float:
        return median(one["durationMs"].get(phase, 0) for one in progress)

    return {
        "entry": entry,
        "planner": (planner[-1] - planner[0]) / (BATCHES - 1) * 1e3,
        "latestOffset": middle("latestOffset"),
        "walCommit": middle("walCommit"),
        "addBatch": middle("addBatch"),
        "batch": middle("triggerExecution"),
    }


def line(queues: int, rounds: list[dict[str, float]]) -> str:
    middle = {name: median(one[name] for one in rounds) for name in rounds[0]}
    whole = [one["batch"] for one in rounds]
    return (
        f"{queues:>6,} queues  a log entry {middle['entry'] / 1000:5.1f} KB, planning "
        f"{middle['planner']:5.0f} ms of CPU, of a batch of {IN_A_BATCH * queues:,} messages "
        f"{middle['batch']:5.0f} ms ({min(whole):.0f} to {max(whole):.0f}): latestOffset "
        f"{middle['latestOffset']:.0f}, walCommit {middle['walCommit']:.0f}, addBatch "
        f"{middle['addBatch']:.0f}  load {os.getloadavg()[0]:.1f}"
    )


def main() -> None:
    asked = arguments(__doc__)
    report = Report(asked.save)
    with LocalCluster() as cluster, session() as spark:
        for queues in QUEUES:
            topic = f"Queues{queues}"
            fill_queues(cluster, topic, queues)
            measure(spark, cluster.namesrv, topic, queues)  # warms up
            rounds = [measure(spark, cluster.namesrv, topic, queues) for _ in range(asked.rounds)]
            report.say(line(queues, rounds))
    report.save()


if __name__ == "__main__":
    main()
