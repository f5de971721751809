"""What a micro-batch costs, how long a message takes to a handler, and what an idle query costs.

    python bench/spark/stream.py                      five rounds
    python bench/spark/stream.py --save spark-stream  also writes bench/results/spark-stream.txt

Bare: a source that always has 100 ready rows in one partition, into the noop sink; the median time
of `triggerExecution`. Source: the same from a topic, 100 messages a batch. Send to handler:
`listen` with one thread, a sender in this process at 3 and at 200 messages a second. The mark: at
most 1.3 times the bare micro-batch of the same round, in the median. Send to row: the same for a
query that only notes when it sees each row (`mapInArrow` into the noop sink): it waits for the
batch before its own, too, so it is what a handler's time is to be compared with at the same rate.
No content: how late the tasks of a source are asked for rows that are due by the clock, of which no
broker knows, 200 a second: what is Spark's own. Collected: the same with the `foreachBatch`
that `listen` needs, in place of the noop sink.
Idle: CPU of Spark's side while a query waits for messages, beside that of the session without a
query. The broker is one of its own, on the same cores.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bed import (
    LocalCluster,
    Report,
    arguments,
    create_topic,
    fill,
    process_of,
    session,
    spark_cpu_s,
)
from formats import NotedDelay, NotedRows

from cometmq import Message, Producer
from cometmq.spark.handling.batch_runner import OutcomeCheck
from cometmq.spark.handling.listen import listen

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

RATES = {3: 10.0, 200: 6.0}
"""Messages a second, and for how many seconds."""
MARK, BATCHES, IDLE_S = 1.3, 60, 6.0


def micro_batch_ms(frame: DataFrame) -> float:
    """The median time of micro-batches into the noop sink, after the first ten."""
    with tempfile.TemporaryDirectory(prefix="cometmq-bench-") as place:
        query = frame.writeStream.format("noop").option("checkpointLocation", place).start()
        until(lambda: (query.lastProgress or {"batchId": 0})["batchId"] > BATCHES + 10)
        progress = [one for one in query.recentProgress if one["numInputRows"]]
        stop(query)
    return median(one["durationMs"]["triggerExecution"] for one in progress[10:])


def until(is_so: object, limit_s: float = 90.0) -> None:
    end = time.monotonic() + limit_s
    while not is_so():  # type: ignore[operator]
        if time.monotonic() > end:
            raise SystemExit("bench: a query does not get on")
        time.sleep(0.05)


def stop(query: StreamingQuery) -> None:
    query.stop()
    query.awaitTermination()


def start_handler(
    spark: SparkSession, namesrv: str, topic: str, noted: str, place: str
) -> StreamingQuery:
    return listen(
        spark,
        f"group-{topic}",
        topic,
        "*",
        NotedDelay(noted),
        namesrv=namesrv,
        consume_threads=1,
        checkpoint=place,
        source={"slots": "1"},
    )


def start_rows(
    spark: SparkSession, namesrv: str, topic: str, noted: str, place: str
) -> StreamingQuery:
    read = spark.readStream.format("rocketmq").options(namesrv=namesrv, topic=topic, slots="1")
    seen = read.option("columns", "body").load().mapInArrow(NotedRows(noted), NotedRows.SCHEMA)
    return seen.writeStream.format("noop").option("checkpointLocation", place).start()


def start_nothing(frame: DataFrame, place: str) -> StreamingQuery:
    return frame.writeStream.format("noop").option("checkpointLocation", place).start()


def start_collected(frame: DataFrame, place: str) -> StreamingQuery:
    problems = frame.where("problem IS NOT NULL").writeStream.foreachBatch(OutcomeCheck("none"))
    return problems.option("checkpointLocation", place).start()


STARTS = {"handler": start_handler, "row": start_rows}
FLOORS = {"no content": start_nothing, "no content, collected": start_collected}
FLOOR_RATE = 200


def delays_ms(
    spark: SparkSession,
    namesrv: str,
    topic: str,
    rate: int,
    start: Callable[[SparkSession, str, str, str, str], StreamingQuery],
) -> list[float]:
    """Of each message but the first ones, which warm the query up, the time until it is noted."""
    with tempfile.TemporaryDirectory(prefix="cometmq-bench-") as place:
        noted = Path(place) / "delays"
        noted.touch()
        query = start(spark, namesrv, topic, str(noted), str(Path(place) / "checkpoint"))
        with Producer("bench", namesrv=namesrv) as producer:

            def send(count: int) -> None:
                began = time.perf_counter()
                for number in range(count):
                    producer.send(Message(topic, b"%d" % time.time_ns()))
                    wait_s = began + (number + 1) / rate - time.perf_counter()
                    if wait_s > 0:
                        time.sleep(wait_s)

            time.sleep(3)
            warm, count = max(3 * rate // 3, 5), int(rate * RATES[rate])
            send(warm)
            until(lambda: len(noted.read_text().split()) >= warm)
            send(count)
            until(lambda: len(noted.read_text().split()) >= warm + count)
        stop(query)
        return [float(text) for text in noted.read_text().split()][warm:]


def floor_ms(
    spark: SparkSession, rate: int, start: Callable[[DataFrame, str], StreamingQuery]
) -> list[float]:
    """The same as `delays_ms` for rows of no content that no broker has."""
    warm, count = rate, int(rate * RATES[rate])
    with tempfile.TemporaryDirectory(prefix="cometmq-bench-") as place:
        noted = Path(place) / "delays"
        noted.touch()
        given = {"rate": rate, "rows": warm + count, "noted": noted, "began": time.time() + 3}
        frame = spark.readStream.format("clocked").options(**given).load()
        query = start(frame, str(Path(place) / "checkpoint"))
        until(lambda: len(noted.read_text().split()) >= warm + count)
        stop(query)
        return [float(text) for text in noted.read_text().split()][warm:]


def idle_cpu_ms(spark: SparkSession, namesrv: str, broker: int) -> float:
    """CPU at Spark in a second while a query waits, less that of the session alone."""

    def spent() -> float:
        before, began = spark_cpu_s(broker), time.perf_counter()
        time.sleep(IDLE_S)
        return (spark_cpu_s(broker) - before) / (time.perf_counter() - began) * 1e3

    alone = spent()
    frame = spark.readStream.format("rocketmq").options(namesrv=namesrv, topic="Idle").load()
    with tempfile.TemporaryDirectory(prefix="cometmq-bench-") as place:
        query = frame.writeStream.format("noop").option("checkpointLocation", place).start()
        time.sleep(5)
        used = spent()
        stop(query)
    return used - alone


def spread(found: list[float]) -> str:
    return f"{median(found):7.1f} ({min(found):.1f} to {max(found):.1f})"


def delay_line(name: str, rounds: list[list[float]], bare: list[float], more: str = "") -> str:
    """Medians of the rounds' medians and latest hundredths, beside the bare micro-batch."""
    middle = [median(one) for one in rounds]
    late = median(sorted(one)[len(one) * 99 // 100] for one in rounds)
    times = f"{times_of(middle, bare):.2f} x the bare micro-batch"
    return f"{name:<30}{spread(middle)} ms, 99 % {late:.0f}  {times}{more}"


def beside(rounds: list[list[float]], others: list[list[float]]) -> str:
    """The median delay of each round, beside that of another query."""
    pair = ([median(one) for one in some] for some in (rounds, others))
    return f"{times_of(*pair):.2f}"


def times_of(found: list[float], beside: list[float]) -> float:
    return median(a / b for a, b in zip(found, beside, strict=True))


def main() -> None:
    asked = arguments(__doc__)
    report = Report(asked.save)
    bare, source, idle = [], [], []
    delays: dict[tuple[str, int], list[list[float]]]
    delays = {(name, rate): [] for rate in RATES for name in STARTS}
    floors: dict[str, list[list[float]]] = {name: [] for name in FLOORS}
    with LocalCluster() as cluster, session() as spark:
        broker = process_of(cluster)
        fill(cluster, "Batches", 100 * (BATCHES + 40), 128)
        create_topic(cluster, "Idle")
        ready = spark.readStream.format("ready").options(rows="100", body="128").load()
        topic = spark.readStream.format("rocketmq").options(
            namesrv=cluster.namesrv,
            topic="Batches",
            startingOffsets="earliest",
            maxOffsetsPerTrigger="100",
            slots="1",
        )
        for number in range(asked.rounds):
            bare.append(micro_batch_ms(ready))
            source.append(micro_batch_ms(topic.load()))
            for (name, rate), found in delays.items():
                sent = f"Delay{name}{rate}x{number}"
                create_topic(cluster, sent, 1)
                found.append(delays_ms(spark, cluster.namesrv, sent, rate, STARTS[name]))
            for name, start in FLOORS.items():
                floors[name].append(floor_ms(spark, FLOOR_RATE, start))
            idle.append(idle_cpu_ms(spark, cluster.namesrv, broker))
    load = f"load {os.getloadavg()[0]:.1f}"
    report.say(f"{'bare micro-batch':<30}{spread(bare)} ms  {load}")
    report.say(f"{'source, 100 messages':<30}{spread(source)} ms  {load}")
    for (name, rate), rounds in delays.items():
        more = ""
        if name == "handler":
            more = f", mark {MARK}; {beside(rounds, delays['row', rate])} x send to row"
        if name == "handler" and rate == FLOOR_RATE:
            more += "".join(f", {beside(rounds, floors[one])} x {one}" for one in FLOORS)
        report.say(delay_line(f"send to {name}, {rate}/s", rounds, bare, more) + f"  {load}")
    for name, rounds in floors.items():
        report.say(delay_line(f"{name}, {FLOOR_RATE}/s", rounds, bare) + f"  {load}")
    report.say(f"{'idle query':<30}{spread(idle)} ms of CPU in a second  {load}")
    report.save()


if __name__ == "__main__":
    main()
