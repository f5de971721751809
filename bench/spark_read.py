"""How fast a topic becomes rows in Spark: a broker of its own, one batch read, its parts apart.

    .venv/bin/python bench/spark_read.py --messages 1000000 --body 128

Prints rows a second, and CPU a row, of: decoding alone, pulling and decoding without Spark in
one process; and rows a second of the whole batch read into Spark's noop sink, after one small
read that warms it up.
"""

from __future__ import annotations

import argparse
import os
import time

from cometmq.net.blocking_channel import BlockingChannel
from cometmq.spark.session import spark_session
from cometmq.spark.source import source_options
from cometmq.spark.source.arrow_batches import BatchBuilder, PulledRecords
from cometmq.spark.source.cluster_client import cluster_client_of
from cometmq.spark.source.columns import DEFAULT
from cometmq.spark.source.offset_planning import OffsetRange
from cometmq.spark.source.pull import pull_range, read_batches
from cometmq.testing.cluster import LocalCluster
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.records import message_batch, properties
from messages import send_header

TOPIC, QUEUES, BATCH, WINDOW = "SparkRead", 8, 256, 16


def fill(broker: str, count: int, size: int) -> None:
    """Batches to every queue in turn, a window of them unanswered."""
    with BlockingChannel(broker) as channel:
        window: list[int] = []
        for number, at in enumerate(range(0, count, BATCH)):
            header = send_header(TOPIC, number % QUEUES if number else 0, QUEUES, is_batch=True)
            items = [item(at + index, size) for index in range(min(BATCH, count - at))]
            window.append(
                channel.post(RequestCode.SEND_BATCH_MESSAGE, header, message_batch.encode(items))
            )
            if number == 0 or len(window) >= WINDOW:
                answer = channel.wait(window.pop(0))
                if answer.code != ResponseCode.SUCCESS:
                    raise SystemExit(f"a batch was refused: {answer}")
        for opaque in window:
            channel.wait(opaque)


def item(number: int, size: int) -> message_batch.BatchItem:
    pairs = {"UNIQ_KEY": f"7F00000100002A9F0000{number:012X}", "KEYS": f"k{number}", "TAGS": "A"}
    return message_batch.BatchItem(0, b"x" * size, properties.encode(pairs))


def rate(rows: int, seconds: float) -> str:
    return f"{rows:>9,} rows  {seconds:6.2f} s  {rows / seconds:>10,.0f} rows/s"


def ranges_of(parsed: source_options.SourceOptions) -> list[OffsetRange]:
    positions = cluster_client_of(parsed).positions()
    return [OffsetRange(queue, at.min_offset, at.max_offset) for queue, at in positions.items()]


def decoded(chunks: list[PulledRecords]) -> int:
    builder, rows = BatchBuilder(DEFAULT), 0
    for chunk in chunks:
        made = builder.add(chunk)
        rows += made.num_rows if made is not None else 0
    made = builder.finish()
    return rows + (made.num_rows if made is not None else 0)


def without_spark(parsed: source_options.SourceOptions) -> None:
    ranges = ranges_of(parsed)
    chunks = [chunk for one in ranges for chunk in pull_range(cluster_client_of(parsed), one)][
        :8_000
    ]
    decoded(chunks)
    began, cpu = time.perf_counter(), time.process_time()
    rows = decoded(chunks)
    spent, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(f"decode alone       {rate(rows, spent)}  {cpu / rows * 1e9:.0f} ns of CPU a row")
    began, cpu = time.perf_counter(), time.process_time()
    rows = sum(made.num_rows for made in read_batches(parsed, ranges))
    spent, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(f"pull and decode    {rate(rows, spent)}  {cpu / rows * 1e9:.0f} ns of CPU a row")


def with_spark(given: dict[str, str], rows: int) -> None:
    spark = spark_session("bench", heap_mb=1024)
    reader = spark.read.format("rocketmq")
    reader.options(**given, columns="queue_offset").load().count()
    for extra in ({}, {"includeProperties": "true"}, {"columns": "body"}):
        began = time.perf_counter()
        frame = spark.read.format("rocketmq").options(**given, **extra).load()
        frame.write.format("noop").mode("overwrite").save()
        name = ",".join(extra) or "default columns"
        print(f"Spark, {name:<18} {rate(rows, time.perf_counter() - began)}")
    spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--body", type=int, default=128)
    asked = parser.parse_args()
    with LocalCluster() as cluster:
        began = time.perf_counter()
        fill(cluster.broker, asked.messages, asked.body)
        print(f"fill               {rate(asked.messages, time.perf_counter() - began)}")
        given = {"namesrv": cluster.namesrv, "topic": TOPIC, "slots": str(os.cpu_count())}
        without_spark(source_options.parse(given))
        with_spark(given, asked.messages)


if __name__ == "__main__":
    main()
