"""Our Spark source reads topics of Apache RocketMQ's broker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from cometmq import Admin, Message, Producer
from cometmq.spark.session import spark_session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from interop.apache import ApacheCluster

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
COUNT = 3000


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = spark_session("interop", cores=2, heap_mb=512)
    yield session
    session.stop()


def test_spark_reads_batches_and_streams_from_an_apache_broker(
    apache: ApacheCluster, spark: SparkSession, tmp_path: Path
) -> None:
    topic = "SparkOnApache"
    with Admin(namesrv=apache.namesrv) as admin:
        admin.create_topic(topic, queues=4)
    with Producer("spark-on-apache", namesrv=apache.namesrv) as producer:
        for n in range(COUNT):
            if n == COUNT // 2:
                time.sleep(0.05)
                half_ms = time.time_ns() // 1_000_000
                time.sleep(0.05)
            body = f"{n}".encode().ljust(8000 if n % 100 == 0 else 8)
            tag = "hundred" if n % 100 == 0 else "other"
            producer.send(Message(topic, body, tags=tag, keys=f"k{n}"))

    where = {"namesrv": apache.namesrv, "topic": topic, "startingOffsets": "earliest"}
    frame = spark.read.format("rocketmq").options(**where, includeProperties="true").load()
    rows = frame.collect()
    assert sorted(int(row.body) for row in rows) == list(range(COUNT))
    assert {len(row.body) for row in rows} == {8, 8000}
    assert {row.broker for row in rows} == {"apache-a"}
    assert all(row.properties["KEYS"] == row["keys"] == f"k{int(row.body)}" for row in rows)
    assert len({row.msg_id for row in rows}) == COUNT

    def count(**more: str) -> int:
        return spark.read.format("rocketmq").options(**{**where, **more}).load().count()

    assert count(tags="hundred || none") == COUNT // 100
    assert count(startingOffsets="", startingTimestamp=str(half_ms)) == COUNT // 2
    assert count(endingTimestamp=str(half_ms)) == COUNT // 2

    stream = spark.readStream.format("rocketmq").options(**where, maxOffsetsPerTrigger="1000")
    query = (
        stream.load()
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    out = spark.read.parquet(str(tmp_path / "out"))
    assert out.count() == out.select("queue_id", "queue_offset").distinct().count() == COUNT
