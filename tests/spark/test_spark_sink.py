"""Writing to topics with Spark itself and a real broker, read back by the source."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from cometmq.spark import deduplicated
from spark.streams import WAIT_S, said, texts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from spark.live import Live

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]


def test_a_written_frame_is_read_back_exactly(
    spark: SparkSession, live: Live, topic: str, load: Callable[..., DataFrame]
) -> None:
    frame = spark.range(3000).selectExpr(
        "cast(id as string) AS body",
        "if(id % 2 = 0, 'even', null) AS tags",
        "array(concat('k', id), 'all') AS keys",
        "map('colour', 'red') AS properties",
        f"'{topic}' AS topic",
        "id AS unused",
    )
    sink = frame.write.format("rocketmq").mode("append").option("namesrv", live.namesrv)
    with pytest.raises(PySparkException) as unknown:
        sink.save()
    assert "the sink does not know the columns unused: drop or rename them" in said(unknown)
    sink.option("ignoreColumns", "unused").save()
    rows = load(includeProperties="true").collect()
    assert sorted(int(row.body) for row in rows) == list(range(3000))
    for row in rows:
        number = int(row.body)
        assert row.tags == ("even" if number % 2 == 0 else None)
        assert row["keys"] == f"k{number} all"
        assert row.properties["colour"] == "red"
    assert len({row.properties["SPARK_WRITE"] for row in rows}) == 3000
    assert {row.queue_id for row in rows} == {0, 1}


def test_rows_of_one_key_keep_their_order_and_a_given_queue_gets_its_rows(
    spark: SparkSession, live: Live, topic: str, load: Callable[..., DataFrame]
) -> None:
    frame = spark.range(0, 4000, numPartitions=1).selectExpr(
        "cast(id as string) AS body",
        "concat('k', id % 7) AS sharding_key",
        "if(id >= 3900, 1, null) AS queue_id",
    )
    sink = frame.write.format("rocketmq").mode("append")
    sink.options(namesrv=live.namesrv, topic=topic, maxInFlight="1000").save()
    by_key: defaultdict[str, list[int]] = defaultdict(list)
    places: defaultdict[str, set[int]] = defaultdict(set)
    read = load(columns="queue_id,queue_offset,body,sharding_key")
    for row in read.orderBy("queue_id", "queue_offset").collect():
        number = int(row.body)
        if number < 3900:
            by_key[row.sharding_key].append(number)
            places[row.sharding_key].add(row.queue_id)
        else:
            assert row.queue_id == 1
    assert by_key == {f"k{key}": list(range(key, 3900, 7)) for key in range(7)}
    assert all(len(queues) == 1 for queues in places.values())


def test_a_row_that_cannot_be_sent_fails_the_write_and_is_named(
    spark: SparkSession, live: Live, topic: str
) -> None:
    frame = spark.range(0, 10, numPartitions=1).selectExpr("if(id = 7, '', 'x') AS body")
    sink = frame.write.format("rocketmq").mode("append").option("namesrv", live.namesrv)
    with pytest.raises(PySparkException) as empty:
        sink.option("topic", topic).save()
    assert f"row 7 of partition 0 was not sent to the topic {topic}: the body of" in said(empty)
    with pytest.raises(PySparkException) as overwritten:
        sink.option("topic", topic).mode("overwrite").save()
    assert "a topic cannot be overwritten" in said(overwritten)


def test_rows_that_cannot_be_sent_go_to_a_table_are_repaired_there_and_written_back(
    spark: SparkSession, live: Live, topic: str, load: Callable[..., DataFrame], tmp_path: Path
) -> None:
    frame = spark.range(0, 1000, numPartitions=3).selectExpr(
        "if(id % 100 = 7, null, cast(id as string)) AS body",
        "concat('k', id) AS keys",
        "id AS number",
    )
    path = str(tmp_path / "rejected")
    sink = {"namesrv": live.namesrv, "topic": topic, "rejectedPath": path}
    writer = frame.write.format("rocketmq").mode("append").options(**sink)
    writer.option("ignoreColumns", "number").save()
    assert load().count() == 990
    rejected = spark.read.parquet(path)
    rows = rejected.select("number", "keys", "rejected.*").collect()
    assert sorted(row.number for row in rows) == list(range(7, 1000, 100))
    assert {row.partition for row in rows} == {0, 1, 2}
    assert {row.reason for row in rows} == {f"the body of a message for {topic} is null"}
    repaired = rejected.selectExpr("cast(number as string) AS body", "keys")
    repaired.write.format("rocketmq").mode("append").options(**sink).save()
    assert sorted(int(row.body) for row in load().collect()) == list(range(1000))
    assert spark.read.parquet(path).count() == 10


def test_a_batch_of_a_stream_that_is_replayed_leaves_each_rejected_row_once(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path
) -> None:
    copy = live.make_topic(f"{topic}Copy", 2)
    live.send(topic, 0, texts(0, 300))
    live.send(topic, 1, texts(300, 600))
    where = {"namesrv": live.namesrv, "topic": topic, "startingOffsets": "earliest"}
    path, checkpoint = tmp_path / "rejected", tmp_path / "checkpoint"

    def run() -> None:
        stream = spark.readStream.format("rocketmq").options(**where).load()
        body = "if(queue_offset % 10 = 3, cast('' as binary), body) AS body"
        writer = stream.selectExpr("* EXCEPT (body)", body).writeStream.format("rocketmq")
        writer = writer.options(namesrv=live.namesrv, topic=copy, rejectedPath=str(path))
        writer = writer.option("ignoreColumns", "msg_id,born_ts,store_ts,reconsume_times")
        writer = writer.queryName(f"to {copy}").option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_S)

    def forget_the_commit_of(batch: int) -> None:
        for file in (checkpoint / "commits").glob(f"*{batch}*"):
            file.unlink()

    def rejected() -> list[tuple[int, int]]:
        rows = spark.read.parquet(str(path)).collect()
        assert len(rows) == len({(row.queue_id, row.queue_offset) for row in rows})
        return sorted((row.rejected.batch, row.queue_offset) for row in rows)

    run()
    first = [(0, offset) for offset in range(3, 300, 10) for _ in (0, 1)]
    assert rejected() == first
    live.send(topic, 0, texts(600, 700))
    run()
    second = [(1, offset) for offset in range(303, 400, 10)]
    assert rejected() == first + second
    forget_the_commit_of(1)
    run()
    assert rejected() == first + second
    read = spark.read.format("rocketmq").option("includeProperties", "true")
    sent = read.options(namesrv=live.namesrv, topic=copy).load()
    assert sent.count() == 630 + 90, "the last batch was sent twice"
    assert deduplicated(sent).count() == 630
    assert not list((path / "_staged").iterdir())


def test_a_stream_that_is_restarted_sends_again_at_most_what_deduplicated_drops(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path
) -> None:
    copy = live.make_topic(f"{topic}Copy", 2)
    live.send(topic, 0, texts(0, 600), {"TAGS": "A"})
    live.send(topic, 1, texts(600, 1000))
    options = {"namesrv": live.namesrv, "topic": topic, "startingOffsets": "earliest"}

    def run(body: str) -> None:
        columns = "topic,broker,queue_id,queue_offset,tags,body,properties"
        stream = spark.readStream.format("rocketmq").options(**options, columns=columns).load()
        writer = stream.selectExpr("* EXCEPT (body)", f"{body} AS body").writeStream
        query = (
            writer.format("rocketmq")
            .options(namesrv=live.namesrv, topic=copy, maxInFlight="400")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(WAIT_S)

    with pytest.raises(PySparkException) as failed:  # the last row of a queue; others were sent
        run("if(queue_offset = 599, cast('' as binary), body)")
    assert "row 599 of partition" in said(failed)
    run("body")
    live.send(topic, 0, texts(1000, 1100))
    run("body")
    read = spark.read.format("rocketmq").option("includeProperties", "true")
    sent = read.options(namesrv=live.namesrv, topic=copy).load()
    counts = Counter(int(row.body) for row in sent.collect())
    assert set(counts) == set(range(1100))
    assert max(counts.values()) == 2, "the batch that failed was sent in part, and replayed"
    rows = deduplicated(sent).collect()
    assert sorted(int(row.body) for row in rows) == list(range(1100))
    assert all(row.properties["SPARK_ORIGIN"].startswith(f"{topic}/") for row in rows)
    batches = {row.properties["SPARK_WRITE"].split("/")[1] for row in rows}
    assert batches == {"0", "1"}
