"""What the audit of the order takes at a million keys, beside a read of the same columns alone.

    python bench/spark/order.py                     1,000,000 keys of 4 messages, 128 B
    python bench/spark/order.py --scale 0.1         a tenth of the keys
    python bench/spark/order.py --save spark-order  also writes bench/results/spark-order.txt

The alternative, in one round with a tenth of the keys: `transformWithStateInPandas`, which keeps
the last number of each key in RocksDB. It only says which numbers come late, not what is missing or
lies elsewhere.

The keys come in turns, so every key is open from the first message to the last. Memory is the peak
of Spark's processes during the rounds (resident, shared pages counted in each), sampled ten times a
second; the JVM's heap is 1 GiB. The first lines are about a hundredth of the keys,
with as many messages.
"""

from __future__ import annotations

import tempfile
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pandas as pd
from bed import (
    BATCH,
    QUEUES,
    Figures,
    LocalCluster,
    Report,
    arguments,
    fill,
    memory_mib,
    process_of,
    session,
)
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from cometmq.spark.tables.order import order_of_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

KEYS, EACH, SIZE = 1_000_000, 4, 128
BATCH_MOST = 1_000_000
"""Messages of a micro-batch of the alternative."""
STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
COLUMNS = "topic,broker,queue_id,queue_offset,properties,sharding_key"


def pairs_of(keys: int) -> Callable[[int], dict[str, str]]:
    """Key and number of each message: the keys of a queue in turns, each numbered from 1."""
    per_queue = keys // QUEUES

    def pairs(number: int) -> dict[str, str]:
        queue, at = number // BATCH % QUEUES, number // (BATCH * QUEUES) * BATCH + number % BATCH
        turn, key = divmod(at, per_queue)
        return {"__SHARDINGKEY": f"K{key * QUEUES + queue}", "seq": str(turn + 1)}

    return pairs


def read(spark: SparkSession, topic: str, namesrv: str) -> None:
    """Read what the audit reads, and drop it."""
    options = {"namesrv": namesrv, "topic": topic, "columns": COLUMNS}
    spark.read.format("rocketmq").options(**options).load().write.format("noop").mode(
        "overwrite"
    ).save()


def audit(spark: SparkSession, topic: str, namesrv: str, rows: int, keys: int) -> None:
    """Audit a topic, and compare what was found with what was sent."""
    found = order_of_topics(spark, topic, namesrv=namesrv, sequence="properties.seq")
    (of_topic,) = found.keys
    assert found.is_in_order, found.examples
    assert of_topic.keys == keys, of_topic
    assert (of_topic.numbered, of_topic.resent, of_topic.left_out) == (rows, 0, 0), of_topic


class LastNumber(StatefulProcessor):
    """Keeps the highest number of a key, and counts those that are not above it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._last = handle.getValueState("last", "number bigint")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        del key, timerValues
        known, late, count = self._last.get(), 0, 0
        highest = known[0] if known is not None else 0
        for frame in rows:
            for number in frame.sort_values("queue_offset")["number"]:
                late, highest = late + (number <= highest), max(number, highest)
            count += len(frame)
        self._last.update((int(highest),))
        yield pd.DataFrame({"numbered": [count], "late": [late], "is_new": [known is None]})

    def close(self) -> None:
        """Nothing is open."""


def with_state(spark: SparkSession, topic: str, namesrv: str, rows: int, keys: int) -> None:
    """The late numbers of a topic by a query that keeps state, compared with what was sent."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STORE)
    options = {"namesrv": namesrv, "topic": topic, "columns": COLUMNS}
    options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(BATCH_MOST)}
    read = spark.readStream.format("rocketmq").options(**options).load()
    numbered = read.selectExpr(
        "sharding_key AS key", "queue_offset", "cast(properties.seq AS bigint) AS number"
    )
    marks = numbered.groupBy("key").transformWithStateInPandas(
        statefulProcessor=LastNumber(),
        outputStructType="numbered bigint, late bigint, is_new boolean",
        outputMode="Append",
        timeMode="None",
    )
    found: list[Any] = []

    def count(frame: DataFrame, _batch: int) -> None:
        sums = frame.selectExpr("sum(numbered)", "sum(late)", "count_if(is_new)")
        found.append(tuple(value or 0 for value in sums.collect()[0]))

    with tempfile.TemporaryDirectory(prefix="cometmq-bench-") as place:
        writer = marks.writeStream.foreachBatch(count).option("checkpointLocation", place)
        writer.trigger(availableNow=True).start().awaitTermination()
    assert tuple(map(sum, zip(*found, strict=True))) == (rows, 0, keys), found


@contextmanager
def peak_memory(broker: int) -> Iterator[list[float]]:
    """The largest sum seen meanwhile, as the last of a list."""
    end, seen = threading.Event(), [0.0]

    def look() -> None:
        while not end.wait(0.1):
            seen.append(max(seen[-1], memory_mib(broker)))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        end.set()
        thread.join()


def main() -> None:
    asked = arguments(__doc__)
    report = Report(asked.save)
    # Whole turns of whole batches, so that every key has as many messages as the others.
    keys = max(1, int(KEYS * asked.scale) // (BATCH * QUEUES)) * BATCH * QUEUES
    rows = keys * EACH
    with LocalCluster() as cluster, session() as spark:
        broker, where = process_of(cluster), cluster.namesrv
        for topic, of_topic in (("Few", BATCH * QUEUES * max(1, keys // 204_800)), ("Many", keys)):
            fill(cluster, topic, rows, SIZE, pairs_of(of_topic))
            audit(spark, topic, where, rows, of_topic)
            plain, audited = Figures(), Figures()
            for _ in range(asked.rounds):
                plain.measure(rows, broker, lambda topic=topic: read(spark, topic, where))
            with peak_memory(broker) as seen:
                for _ in range(asked.rounds):
                    audited.measure(
                        rows,
                        broker,
                        lambda topic=topic, count=of_topic: audit(spark, topic, where, rows, count),
                    )
            report.say(plain.line(f"read, {of_topic:,} keys"))
            report.say(f"{audited.line('audit of the order', plain)}  {seen[-1]:,.0f} MiB")
        tenth = max(1, keys // 10 // (BATCH * QUEUES)) * BATCH * QUEUES
        fill(cluster, "Tenth", tenth * EACH, SIZE, pairs_of(tenth))
        for name, action in (("audit of the order", audit), ("transformWithState", with_state)):
            once = Figures()
            with peak_memory(broker) as seen:
                once.measure(
                    tenth * EACH,
                    broker,
                    lambda action=action: action(spark, "Tenth", where, tenth * EACH, tenth),
                )
            report.say(f"{once.line(f'{name}, {tenth:,} keys')}  {seen[-1]:,.0f} MiB")
    report.save()


if __name__ == "__main__":
    main()
