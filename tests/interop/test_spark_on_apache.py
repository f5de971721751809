"""Our Spark source reads topics of Apache RocketMQ's brokers, and says so when it cannot."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from client.short_delay_cluster import until
from cometmq import Admin, Message, Producer
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.admin import DeleteTopicRequestHeader
from cometmq.wire.headers.namesrv import DeleteTopicFromNamesrvRequestHeader
from interop.apache import ApacheCluster
from interop.on_spark import ON_SPARK
from spark.streams import Stream, said

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = ON_SPARK
COUNT = 3000


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


@pytest.fixture(scope="module")
def filtering(
    apache_jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApacheCluster]:
    """An Apache broker that filters by properties."""
    home = tmp_path_factory.mktemp("filtering")
    cluster = ApacheCluster(apache_jars, home, enablePropertyFilter="true")
    yield cluster
    cluster.stop()


def fill(namesrv: str, topic: str, numbers: range, **properties: str) -> None:
    with Admin(namesrv=namesrv) as admin:
        admin.create_topic(topic, queues=2)
    with Producer("spark-on-apache", namesrv=namesrv) as producer:
        for number in numbers:
            producer.send(Message(topic, b"%d" % number, properties=properties))


def test_several_topics_conditions_and_committed_offsets_on_an_apache_broker(
    filtering: ApacheCluster, spark: SparkSession, tmp_path: Path
) -> None:
    namesrv = filtering.namesrv
    fill(namesrv, "ManyA", range(40), colour="red")
    fill(namesrv, "ManyB", range(40, 60), colour="blue")
    read = spark.read.format("rocketmq").options(namesrv=namesrv, subscribePattern="Many.")
    assert {
        row["topic"]: row["count"] for row in read.load().groupBy("topic").count().collect()
    } == {
        "ManyA": 40,
        "ManyB": 20,
    }
    everything = spark.read.format("rocketmq").options(namesrv=namesrv, subscribePattern=".*")
    topics = {row.topic for row in everything.load().select("topic").distinct().collect()}
    assert topics == {"ManyA", "ManyB"}
    both = {"namesrv": namesrv, "subscribe": "ManyA,ManyB"}
    blue = spark.read.format("rocketmq").options(**both, sql="colour = 'blue'").load()
    assert blue.count() == 20
    split = spark.read.format("rocketmq").options(**both, minPartitions="7").load()
    assert [len(part) for part in split.rdd.glom().collect()] == [8, 9, 8, 9, 8, 9, 9]
    stream = Stream(spark, {**both, "startingOffsets": "earliest"}, tmp_path)
    stream.run(maxOffsetsPerTrigger="25", commitOffsets="true", group="report")
    assert sorted(map(int, stream.bodies)) == list(range(60))
    with Admin(namesrv=namesrv) as admin:
        for topic, count in (("ManyA", 40), ("ManyB", 20)):
            stats = admin.consume_stats("report", topic).values()
            assert sum(one.consumer_offset for one in stats) == count


def test_a_topic_of_an_apache_broker_that_was_made_anew_is_an_error(
    filtering: ApacheCluster, spark: SparkSession, tmp_path: Path
) -> None:
    namesrv = filtering.namesrv
    fill(namesrv, "Anew", range(20))
    options = {"namesrv": namesrv, "topic": "Anew", "startingOffsets": "earliest"}
    stream = Stream(spark, options, tmp_path)
    stream.run()
    with BlockingChannel(filtering.broker) as channel:
        gone = DeleteTopicRequestHeader(topic="Anew")
        assert channel.call(RequestCode.DELETE_TOPIC_IN_BROKER, gone).code == 0
    with BlockingChannel(namesrv) as channel:
        forgotten = DeleteTopicFromNamesrvRequestHeader(topic="Anew")
        assert channel.call(RequestCode.DELETE_TOPIC_IN_NAMESRV, forgotten).code == 0
    fill(namesrv, "Anew", range(20, 80))
    with pytest.raises(PySparkException) as anew:
        stream.run()
    assert "so the topic was deleted and made anew" in said(anew)
    assert len(stream.bodies) == 20


def test_an_apache_broker_that_is_away_is_missed(
    filtering: ApacheCluster,
    apache_jars: Path,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    namesrv = filtering.namesrv
    second = ApacheCluster(apache_jars, tmp_path / "b", namesrv=namesrv, brokerName="apache-b")
    try:
        fill(namesrv, "Halves", range(40))
        options = {"namesrv": namesrv, "topic": "Halves", "startingOffsets": "earliest"}
        stream = Stream(spark, {**options, "retryForMs": "500"}, tmp_path)
        stream.run()
        assert sorted(map(int, stream.bodies)) == list(range(40))
        ends = spark.read.format("rocketmq").options(**options).load()
        kept = {
            f"{row.broker}:{row.queue_id}": row["max(queue_offset)"] + 1
            for row in ends.groupBy("broker", "queue_id").agg({"queue_offset": "max"}).collect()
        }
        assert {key.partition(":")[0] for key in kept} == {"apache-a", "apache-b"}
    finally:
        second.stop()
    with Admin(namesrv=namesrv) as admin:
        until(lambda: "apache-b" not in admin.clusters().broker_addr_table, 20)
    for more in ({"brokers": "apache-b"}, {"endingOffsets": json.dumps(kept)}):
        read = spark.read.format("rocketmq").options(**options, **more, retryForMs="500")
        with pytest.raises(PySparkException) as away:
            read.load().count()
        assert "broker apache-b is away" in said(away)
    with pytest.raises(PySparkException) as unfinished:
        stream.run()
    assert "broker apache-b is away and queues Halves@apache-b/0" in said(unfinished)
