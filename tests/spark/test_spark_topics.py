"""Spark reads several topics, parts of queues, filtered messages; the broker learns how far."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from cometmq import Admin
from spark.streams import Stream, texts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from spark.live import Live

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]


def test_several_topics_and_some_of_their_queues(
    spark: SparkSession, live: Live, topic: str
) -> None:
    other = live.make_topic(f"{topic}Other", 1)
    live.send(topic, 0, texts(0, 10))
    live.send(topic, 1, texts(10, 30))
    live.send(other, 0, texts(30, 70))

    def counts(**options: str) -> dict[str, int]:
        read = spark.read.format("rocketmq").options(namesrv=live.namesrv, **options)
        return dict(Counter(row.topic for row in read.load().select("topic").collect()))

    both = {topic: 30, other: 40}
    assert counts(subscribe=f"{topic},{other}") == both
    assert counts(subscribePattern=f"{topic}(Other)?") == both
    broker = spark.read.format("rocketmq").options(namesrv=live.namesrv, topic=other).load()
    name = broker.first().broker
    assert counts(assign=json.dumps({topic: [f"{name}:1"], other: [f"{name}:0"]})) == {
        topic: 20, other: 40,
    }  # fmt: skip
    starts = json.dumps({topic: {f"{name}:0": 9, f"{name}:1": -1}, other: {f"{name}:0": 35}})
    assert counts(subscribe=f"{topic},{other}", startingOffsets=starts) == {topic: 1, other: 5}


def test_a_hot_queue_is_split_and_a_condition_filters_at_the_broker(
    live: Live, topic: str, load: Callable[..., DataFrame]
) -> None:
    live.send(topic, 0, texts(0, 90), {"amount": "3"})
    live.send(topic, 0, texts(90, 100), {"amount": "7"})
    split = load(minPartitions="4", includeBody="false")
    assert "body" not in split.columns
    sizes = [len(part) for part in split.select("queue_offset").rdd.glom().collect()]
    assert sizes == [25] * 4
    assert load(sql="amount BETWEEN 5 AND 9").count() == 10


def test_a_stream_over_several_topics_goes_on_from_a_checkpoint_of_one_and_commits_its_offsets(
    live: Live, topic: str, stream: Stream, tmp_path: Path
) -> None:
    live.send(topic, 0, texts(0, 10))
    stream.run(maxOffsetsPerTrigger="4")
    log = tmp_path / "checkpoint" / "offsets"
    last = max(int(path.name) for path in log.iterdir() if path.name.isdecimal())
    head, planned = (log / str(last)).read_text().rsplit("\n", 1)
    (queues,) = json.loads(planned)["topics"].values()
    (log / str(last)).write_text(f"{head}\n{json.dumps(queues)}")  # as earlier releases wrote it
    (log / f".{last}.crc").unlink(missing_ok=True)
    live.send(topic, 1, texts(10, 15))
    stream.run(commitOffsets="true", group="report")
    other = live.make_topic(f"{topic}Other", 1)
    live.send(other, 0, texts(15, 20))
    stream.options = {"namesrv": live.namesrv, "subscribe": f"{topic},{other}"}
    stream.run(commitOffsets="true", group="report")
    assert sorted(map(int, stream.bodies)) == list(range(20))
    with Admin(namesrv=live.namesrv) as admin:
        for name, count in ((topic, 15), (other, 5)):
            progress = admin.consume_stats("report", name)
            assert sum(one.consumer_offset for one in progress.values()) == count
            assert all(one.consumer_offset == one.broker_offset for one in progress.values())


def test_a_limit_on_bytes_makes_several_batches(live: Live, topic: str, stream: Stream) -> None:
    live.send(topic, 0, [b"%d" % at + b" " * 2000 for at in range(40)])
    stream.run(maxBytesPerTrigger="22000", maxOffsetsPerTrigger="0")
    sizes = [len(bodies) for _, bodies in stream.batches]
    assert sum(sizes) == 40
    assert max(sizes) <= 22_000 // 2000
    assert len(sizes) == 4
