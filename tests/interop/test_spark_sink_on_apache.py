"""Our Spark sink writes to topics of an Apache RocketMQ broker as it does to ours."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from client.short_delay_cluster import until
from cometmq import Admin
from cometmq.spark import deduplicated
from interop.apache import ApacheCluster
from interop.on_spark import ON_SPARK
from spark.streams import said

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = ON_SPARK
LARGEST = 300_000


@pytest.fixture(scope="module")
def small(apache_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheCluster]:
    """An Apache broker that takes requests of 300 kB at most."""
    home = tmp_path_factory.mktemp("small")
    cluster = ApacheCluster(apache_jars, home, maxMessageSize=LARGEST)
    yield cluster
    cluster.stop()


def make(cluster: ApacheCluster, topic: str) -> dict[str, str]:
    """Make a topic with two queues; the options that read or write it."""
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic(topic, queues=2)
    return {"namesrv": cluster.namesrv, "topic": topic}


def load(spark: SparkSession, where: dict[str, str]) -> DataFrame:
    return spark.read.format("rocketmq").options(**where, includeProperties="true").load()


def save(frame: DataFrame, where: dict[str, str], **more: str) -> None:
    frame.write.format("rocketmq").mode("append").options(**where, **more).save()


def test_a_frame_is_read_back_with_every_column_and_keys_in_order(
    small: ApacheCluster, spark: SparkSession
) -> None:
    where = make(small, "SinkColumns")
    frame = spark.range(0, 4000, numPartitions=1).selectExpr(
        "cast(id as string) AS body",
        "if(id % 2 = 0, 'even', null) AS tags",
        "array(concat('key', id), 'all') AS keys",
        "map('colour', 'red') AS properties",
        "concat('k', id % 7) AS sharding_key",
        "if(id >= 3900, 1, null) AS queue_id",
    )
    save(frame, where)
    of_key: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for row in load(spark, where).orderBy("queue_id", "queue_offset").collect():
        number = int(row.body)
        assert row.tags == ("even" if number % 2 == 0 else None)
        assert row["keys"] == f"key{number} all"
        assert row.properties["colour"] == "red"
        assert number < 3900 or row.queue_id == 1
        of_key[row.properties["__SHARDINGKEY"], number >= 3900].append(number)
    assert sum(map(len, of_key.values())) == 4000
    assert all(numbers == sorted(numbers) for numbers in of_key.values())


def test_delayed_rows_arrive_when_their_delay_is_over(
    small: ApacheCluster, spark: SparkSession
) -> None:
    where = make(small, "SinkDelays")
    delay = "if(id % 10 = 0, 5, 0) AS delay_level"  # level 5 is 2 s in these tests
    save(spark.range(100).selectExpr("cast(id as string) AS body", delay), where)
    until(lambda: load(spark, where).count() == 100, 120)
    rows = load(spark, where).collect()
    assert {int(row.body) for row in rows} == set(range(100))
    waited = [row.store_ts - row.born_ts for row in rows if int(row.body) % 10 == 0]
    assert min(waited) >= timedelta(seconds=2)


def test_what_the_broker_refuses_goes_to_the_table_and_the_rest_of_its_batch_does_not(
    small: ApacheCluster, spark: SparkSession, tmp_path: Path
) -> None:
    where = make(small, "SinkRefused")
    body = f"if(id % 150 = 7, repeat('x', {LARGEST + 1}), cast(id as string)) AS body"
    frame = spark.range(0, 600, numPartitions=2).selectExpr(body, "id")
    with pytest.raises(PySparkException) as failed:
        save(frame, where, ignoreColumns="id")
    assert "was not sent to the topic SinkRefused" in said(failed)
    table = tmp_path / "rejected"
    save(frame, where, ignoreColumns="id", rejectedPath=str(table))
    rejected = spark.read.parquet(str(table))
    assert sorted(row.id for row in rejected.collect()) == [7, 157, 307, 457]
    assert all("code 13" in row.reason for row in rejected.select("rejected.reason").collect())
    sent = {int(row.body) for row in load(spark, where).collect()}
    assert sent == set(range(600)) - {7, 157, 307, 457}


def test_a_stream_that_fails_and_starts_again_sends_at_most_what_deduplicated_drops(
    small: ApacheCluster, spark: SparkSession, tmp_path: Path
) -> None:
    source, copy = make(small, "SinkFrom"), make(small, "SinkTo")
    save(spark.range(1000).selectExpr("cast(id as string) AS body"), source)

    def run(body: str) -> None:
        columns = "topic,broker,queue_id,queue_offset,body"
        options = {**source, "startingOffsets": "earliest", "columns": columns}
        stream = spark.readStream.format("rocketmq").options(**options).load()
        writer = stream.selectExpr("* EXCEPT (body)", f"{body} AS body").writeStream
        query = (
            writer.format("rocketmq")
            .options(**copy, maxInFlight="400")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    with pytest.raises(PySparkException) as failed:
        run("if(queue_offset = 450, cast('' as binary), body)")
    assert "row 450 of partition" in said(failed)
    run("body")
    counts = Counter(int(row.body) for row in load(spark, copy).collect())
    assert set(counts) == set(range(1000))
    assert max(counts.values()) == 2
    assert sorted(int(row.body) for row in deduplicated(load(spark, copy)).collect()) == list(
        range(1000)
    )
