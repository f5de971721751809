"""Spark says so when messages cannot be read: a broker that is away, a topic made anew."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, PySparkException

from client.short_delay_cluster import until
from spark.streams import WAIT_S, Stream, said, texts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from spark.live import Live, TwoBrokers

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]


def test_half_of_a_topic_is_not_taken_for_the_whole_while_a_broker_is_away(
    spark: SparkSession, two: TwoBrokers, tmp_path: Path
) -> None:
    topic = two.make_topic("Halves", 1)
    first, second = two.broker, two.second.facts["broker"]
    for broker, numbers in ((first, (0, 50)), (second, (50, 100))):
        two.broker = broker
        two.send(topic, 0, texts(*numbers))
    two.broker = first
    options = {"namesrv": two.namesrv, "topic": topic, "startingOffsets": "earliest"}
    stream = Stream(spark, {**options, "retryForMs": "500"}, tmp_path)
    stream.run(maxOffsetsPerTrigger="30")
    assert len(stream.bodies) == 100
    two.kill_second()

    def count(**more: str) -> int:
        return spark.read.format("rocketmq").options(**options, **more).load().count()

    with pytest.raises(PySparkException) as away:
        count(brokers="broker-b", retryForMs="500")
    assert "broker broker-b is away" in said(away)
    assert "retryForMs=500" in said(away)
    with pytest.raises(PySparkException) as unfinished:
        stream.run()
    assert f"broker broker-b is away and queues {topic}@broker-b/0 cannot be read" in said(
        unfinished
    )
    two.start_second()
    assert count(brokers="broker-b") == 100
    stream.run()
    assert sorted(map(int, stream.bodies)) == list(range(100))


@pytest.mark.slow
def test_a_running_stream_waits_for_one_broker_of_two_and_reads_every_message_once(
    spark: SparkSession, two: TwoBrokers, tmp_path: Path
) -> None:
    topic = two.make_topic("Waits", 2)
    first = two.broker

    def send(broker: str, *numbers: int) -> None:
        two.broker = broker
        for queue_id in (0, 1):
            two.send(topic, queue_id, texts(*numbers)[queue_id::2])
        two.broker = first

    options = {"namesrv": two.namesrv, "topic": topic, "startingOffsets": "earliest"}
    stream = Stream(spark, options, tmp_path)
    query = stream.run(once=False)
    try:
        count = 0
        for _ in range(3):
            send(first, count, count + 400)
            send(two.second.facts["broker"], count + 400, count + 800)
            two.kill_second()
            send(first, count + 800, count + 1000)
            two.start_second()
            send(two.second.facts["broker"], count + 1000, count + 1200)
            count += 1200
        until(lambda: len(stream.bodies) >= count, WAIT_S)
        assert query.isActive
    finally:
        query.stop()
    assert sorted(map(int, stream.bodies)) == list(range(count))


def test_a_topic_deleted_and_made_anew_that_outgrew_the_checkpoint_is_an_error(
    live: Live, topic: str, stream: Stream
) -> None:
    live.send(topic, 0, texts(0, 100))
    stream.run()
    live.delete_topic(topic)
    live.make_topic(topic, 2)
    live.send(topic, 0, texts(100, 400))
    with pytest.raises(PySparkException) as anew:
        stream.run()
    assert f"queue {topic}@" in said(anew)
    assert "so the topic was deleted and made anew" in said(anew)
    assert len(stream.bodies) == 100


def test_a_start_after_the_end_is_refused(
    live: Live, topic: str, load: Callable[..., DataFrame]
) -> None:
    live.send(topic, 0, texts(0, 10))
    broker = load().first().broker
    with pytest.raises(PySparkException) as late:
        load(
            startingOffsets=json.dumps({f"{broker}:0": 8}),
            endingOffsets=json.dumps({f"{broker}:0": 7}),
        ).count()
    assert f"the start of queue {topic}@{broker}/0, 8, lies after its end, 7" in said(late)


def test_wrong_options_fail_in_load_and_those_of_a_stream_with_one_error(
    spark: SparkSession, live: Live, topic: str, load: Callable[..., DataFrame], stream: Stream
) -> None:
    with pytest.raises(AnalysisException) as future:
        load(startingTimestamp="2999-01-01")
    assert "lies in the future: give an earlier one" in said(future)
    with pytest.raises(AnalysisException) as foreign:
        load(**{"kafka.bootstrap.servers": live.namesrv})
    assert "that is Kafka's word, write namesrv" in said(foreign)
    with pytest.raises(AnalysisException):
        spark.readStream.format("rocketmq").options(namesrv=live.namesrv).load()
    with pytest.raises(PySparkException) as bounded:
        stream.run(endingOffsets="latest")
    assert "an end such as endingOffsets is for batch reads: leave it out" in said(bounded)
    assert "another exception" not in said(bounded)
