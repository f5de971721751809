"""What only Spark itself and a real broker show. One session and one broker for all of it."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

from client.short_delay_cluster import until
from cometmq.spark.source.source_options import SLOTS_VARIABLE
from spark.streams import WAIT_S, Stream, said, texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from spark.live import Live

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]


def test_the_session_runs_this_interpreter_and_tells_workers_how_many_tasks_run(
    spark: SparkSession,
) -> None:
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert os.environ[SLOTS_VARIABLE] == "2"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_spark_finds_the_format_by_its_name_and_reads_every_message_once(
    live: Live, topic: str, load: Callable[..., DataFrame]
) -> None:
    live.send(topic, 0, texts(0, 2000), {"TAGS": "low", "KEYS": "k", "colour": "red"})
    live.send(topic, 1, texts(2000, 3000), {"TAGS": "high"})
    frame = load(includeProperties="true")
    assert frame.rdd.getNumPartitions() == 2
    rows = frame.orderBy("queue_id", "queue_offset").collect()
    assert [row.body for row in rows] == texts(0, 3000)
    assert [row.queue_offset for row in rows] == [*range(2000), *range(1000)]
    first: Any = rows[0]
    assert (first.topic, first.tags, first["keys"], first.reconsume_times) == (topic, "low", "k", 0)
    assert first.properties["colour"] == "red"
    assert not any(key.startswith("__CRC32") for key in first.properties)
    assert abs(first.store_ts.timestamp() - time.time()) < 86_400
    assert len({row.msg_id for row in rows}) == 3000


def test_tags_columns_and_bounds_are_applied_by_the_reader(
    live: Live, topic: str, load: Callable[..., DataFrame]
) -> None:
    live.send(topic, 0, texts(0, 50), {"TAGS": "old"})
    time.sleep(0.05)
    between = str(time.time_ns() // 1_000_000)
    time.sleep(0.05)
    live.send(topic, 0, texts(50, 60), {"TAGS": "new"})
    assert load(tags="new || other").count() == 10
    assert load(startingTimestamp=between).count() == 10
    assert load(endingTimestamp=between).count() == 50
    broker = load().first().broker
    exact = load(
        columns="body,queue_offset",
        startingOffsets=f'{{"{broker}:0": 48}}',
        endingOffsets=f'{{"{broker}:0": 52}}',
    )
    assert exact.columns == ["queue_offset", "body"]
    assert [row.body for row in exact.orderBy("queue_offset").collect()] == texts(48, 52)


def test_a_batch_frame_is_a_snapshot_and_filters_of_one_query_leave_others_alone(
    live: Live, topic: str, load: Callable[..., DataFrame]
) -> None:
    live.send(topic, 0, texts(5))
    live.send(topic, 1, texts(7))
    frame = load()
    assert frame.where("queue_id = 1").count() == 7
    assert frame.where("queue_id = 0").count() == 5
    assert frame.where("queue_id = 1").union(frame).count() == 19
    live.send(topic, 0, texts(3))
    assert frame.count() == 12
    assert load().count() == 15


def test_a_view_can_be_created_and_a_wrong_schema_of_the_user_is_refused(
    spark: SparkSession, live: Live, topic: str
) -> None:
    live.send(topic, 1, texts(4))
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW readings USING rocketmq "
        f"OPTIONS (namesrv '{live.namesrv}', topic '{topic}')"
    )
    assert spark.sql("SELECT sum(queue_offset) FROM readings").first()[0] == 6
    reader = spark.read.format("rocketmq").options(namesrv=live.namesrv, topic=topic)
    assert reader.schema("body binary, queue_id int").load().columns == ["body", "queue_id"]
    with pytest.raises(PySparkException) as wrong:
        reader.schema("body string").load().count()
    assert 'the schema given to format("rocketmq") is wrong: body is binary' in said(wrong)


def test_an_empty_topic_has_no_rows_and_a_missing_one_is_a_one_sentence_error(
    load: Callable[..., DataFrame],
) -> None:
    assert load().count() == 0
    assert load(topic="Nowhere", failOnMissingTopic="false").count() == 0
    with pytest.raises(PySparkException) as missing:
        load(topic="Nowhere", retryForMs="0").count()
    assert "topic Nowhere does not exist: no name server" in said(missing)
    with pytest.raises(AnalysisException) as unknown:
        load(startingOffset="latest")
    assert "has no option startingoffset: did you mean startingOffsets" in said(unknown)


def test_a_batch_that_failed_is_replayed_with_the_same_range(
    live: Live, topic: str, stream: Stream
) -> None:
    live.send(topic, 0, texts(0, 300))

    def fail(batch: int) -> None:
        if batch == 1:
            raise RuntimeError("the sink is away")

    stream.on_batch = fail
    with pytest.raises(PySparkException, match="the sink is away"):
        stream.run(maxOffsetsPerTrigger="100")
    live.send(topic, 0, texts(300, 400))
    stream.on_batch = lambda batch: None
    stream.run(maxOffsetsPerTrigger="1000")
    numbers, bodies = zip(*stream.batches, strict=True)
    assert numbers == (0, 1, 1, 2)
    assert bodies[1] == bodies[2]
    assert len(bodies[1]) == 100
    assert [*bodies[0], *bodies[1], *bodies[3]] == [body.decode() for body in texts(0, 400)]


def test_available_now_ends_where_the_topic_ended_when_it_started_and_obeys_the_limit(
    live: Live, topic: str, stream: Stream
) -> None:
    live.send(topic, 0, texts(0, 90))
    live.send(topic, 1, texts(90, 100))
    stream.on_batch = lambda batch: live.send(topic, 0, texts(100, 150)) if batch == 0 else None
    query = stream.run(maxOffsetsPerTrigger="30")
    assert [len(bodies) for _, bodies in stream.batches] == [30, 30, 30, 10]
    assert sorted(map(int, stream.bodies)) == list(range(100))
    source = query.recentProgress[-1]["sources"][0]
    end = json.loads(str(source["endOffset"]).replace("'", '"'))
    assert sum(sum(queues.values()) for queues in end["topics"].values()) == 100
    stream.on_batch = lambda batch: None
    stream.run()
    assert sorted(map(int, stream.bodies)) == list(range(150))


def test_queues_that_appear_later_are_read_from_their_first_message(
    live: Live, topic: str, stream: Stream
) -> None:
    live.send(topic, 0, texts(0, 10))
    stream.run()
    live.grow_topic(topic, 4)
    live.send(topic, 3, texts(10, 20))
    stream.run()
    stream.run()
    assert sorted(map(int, stream.bodies)) == list(range(20))


def test_a_stream_outlives_a_broker_that_is_killed_and_started_again(
    live: Live, topic: str, stream: Stream
) -> None:
    live.send(topic, 0, texts(0, 500))
    query = stream.run(once=False, startingOffsets="earliest")
    try:
        until(lambda: len(stream.bodies) == 500, WAIT_S)
        live.kill()
        time.sleep(0.5)
        live.start()
        live.send(topic, 1, texts(500, 700))
        until(lambda: len(stream.bodies) >= 700, WAIT_S)
        assert query.isActive
    finally:
        query.stop()
    assert sorted(map(int, stream.bodies)) == list(range(700))
