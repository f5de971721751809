"""What happens to a topic while a query reads it: a typed error, or each message exactly once.

Behind its first batch a query finds that retention has passed it, that its topic was deleted, that
it was made anew, or that it has more queues. `once`: a batch was planned already when that happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from client.short_delay_cluster import until
from cometmq import Admin
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.wire.codes import RequestCode
from spark.live import Live
from spark.streams import WAIT_S, Stream, said, texts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
BEFORE, BATCH = 200, 50
"""How many messages there are when a query starts, and how many it reads in a batch."""
LOG_FILE_BYTES = 256 * 1024


def refused(stream: Stream, event: Callable[[], object], *, once: bool) -> str:
    """What a query says that fails because of what happens behind its first batch."""
    stream.on_batch = lambda batch: event() if batch == 0 else None
    limits = {"maxOffsetsPerTrigger": str(BATCH), "retryForMs": "500"}
    with pytest.raises(PySparkException) as error:
        assert stream.run(once=once, **limits).awaitTermination(WAIT_S)
    stream.on_batch = lambda batch: None
    assert numbers(stream) == list(range(BATCH))
    return said(error)


def numbers(stream: Stream) -> list[int]:
    return sorted(map(int, stream.bodies))


def first_offset_kept(live: Live, topic: str) -> int:
    """Have the broker delete the files that are old by its clock, and ask what is left."""
    with BlockingChannel(live.broker) as channel:
        assert channel.call(RequestCode.DELETE_EXPIRED_COMMITLOG).code == 0
    with Admin(namesrv=live.namesrv) as admin:
        return min(queue.min_offset for queue in admin.topic_stats(topic).values())


def test_retention_that_passes_a_query_is_an_error_and_else_the_rest_is_exact(
    spark: SparkSession, tmp_path: Path
) -> None:
    end = BEFORE + 400
    settings = {"file_reserved_hours": 0, "flush_disk_type": "SYNC_FLUSH"}
    with Live(tmp_path / "a", commit_log_file_bytes=LOG_FILE_BYTES, **settings) as live:
        topic = live.make_topic("Passed", 1)

        first = 0

        def has_passed() -> bool:
            nonlocal first
            first = first_offset_kept(live, topic)
            return first > BEFORE

        def pass_the_query() -> None:
            for number in range(BEFORE, end, 100):  # a batch must fit into a file
                live.send(topic, 0, [text.ljust(2000) for text in texts(number, number + 100)])
            until(has_passed, WAIT_S)

        options = {"namesrv": live.namesrv, "topic": topic, "startingOffsets": "earliest"}
        stream = Stream(spark, options, tmp_path)
        live.send(topic, 0, texts(0, BEFORE))
        error = refused(stream, pass_the_query, once=True)
        assert first < end
        assert f"no longer holds the messages from {BATCH} up to {first}" in error
        stream.run(failOnDataLoss="false")
    assert numbers(stream) == [*range(BATCH), *range(first, end)]


@pytest.mark.parametrize("once", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_topic_that_is_deleted_under_a_query_is_an_error_and_else_is_left_out(
    live: Live, topic: str, stream: Stream, *, once: bool
) -> None:
    live.send(topic, 0, texts(0, BEFORE))
    error = refused(stream, lambda: live.delete_topic(topic), once=once)
    assert f"no longer has {'queue ' if once else ''}{topic}@" in error
    assert "the topic was deleted" in error
    stream.run(failOnDataLoss="false", failOnMissingTopic="false")
    assert numbers(stream) == list(range(BATCH))


@pytest.mark.parametrize("once", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("count", [BATCH - 10, pytest.param(300, marks=pytest.mark.slow)])
def test_a_topic_that_is_made_anew_under_a_query_is_an_error_and_else_is_read_whole(
    live: Live, topic: str, stream: Stream, count: int, *, once: bool
) -> None:
    live.send(topic, 0, texts(0, BEFORE))

    def make_anew() -> None:
        live.delete_topic(topic)
        live.make_topic(topic, 2)
        live.send(topic, 0, texts(BEFORE, BEFORE + count))

    error = refused(stream, make_anew, once=once)
    assert f"queue {topic}@broker-a/0 is not the one that was read" in error
    assert "so the topic was deleted and made anew" in error
    stream.run(failOnDataLoss="false")
    assert numbers(stream) == [*range(BATCH), *range(BEFORE, BEFORE + count)]


@pytest.mark.slow
def test_queues_that_a_topic_gets_under_a_query_are_read_from_their_first_message(
    live: Live, topic: str, stream: Stream
) -> None:
    live.send(topic, 0, texts(0, BEFORE))

    def grow() -> None:
        live.grow_topic(topic, 4)
        for queue_id in range(4):
            live.send(topic, queue_id, texts(BEFORE + 10 * queue_id, BEFORE + 10 * queue_id + 10))

    stream.on_batch = lambda batch: grow() if batch == 0 else None
    query = stream.run(once=False)
    try:
        until(lambda: len(stream.bodies) >= BEFORE + 40, WAIT_S)
        assert query.isActive
    finally:
        query.stop()
    assert numbers(stream) == list(range(BEFORE + 40))
