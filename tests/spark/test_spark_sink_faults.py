"""The sink while tasks fail and brokers go away: nothing is lost, and repeats can be dropped."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from cometmq.spark import deduplicated
from cometmq.spark.sink import chunk_sender
from spark.live import Live
from spark.sink_tasks import Task

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark.live import TwoBrokers

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Live]:
    """A broker that may be killed."""
    with Live(tmp_path / "own") as broker:
        yield broker


def rows_once(spark: SparkSession, task: Task) -> list[int]:
    """The rows of a topic by `deduplicated`, sorted."""
    read = spark.read.format("rocketmq").options(namesrv=task.namesrv, topic=task.topic)
    frame = deduplicated(read.option("includeProperties", "true").load())
    return sorted(int(row.body) for row in frame.select("body").collect())


def fail() -> None:
    raise ValueError("the task fails")


def test_a_task_that_fails_after_half_of_its_sends_and_is_retried_by_two_attempts_at_once(
    spark: SparkSession, live: Live, topic: str
) -> None:
    task = Task(live.namesrv, topic, 2000)
    with pytest.raises(ValueError, match="the task fails"):
        task.run({1000: fail})
    assert task.stored(), "half of it was sent"
    with ThreadPoolExecutor(2) as attempts:  # as speculation runs two attempts at once
        assert [one.count for one in attempts.map(lambda _: task.run(), range(2))] == [2000, 2000]
    assert len(task.stored()) > 4000
    assert rows_once(spark, task) == list(range(2000))


def test_a_broker_that_is_killed_and_started_again_during_a_write(
    spark: SparkSession, own: Live
) -> None:
    task = Task(own.namesrv, own.make_topic("Killed", 3), 3000, keys=50)

    def kill() -> None:
        own.kill()
        threading.Thread(target=own.restart).start()

    assert task.run({1000: kill, 2000: kill}).count == 3000
    task.check_order(task.stored())
    assert rows_once(spark, task) == list(range(3000))


def test_one_broker_of_two_takes_the_rows_without_key_while_the_other_is_away(
    two: TwoBrokers,
) -> None:
    task = Task(two.namesrv, two.make_topic("Either", 2), 3000)
    assert task.run({1000: two.second.kill}).count == 3000
    assert len(task.stored()) > 2000, "the first broker has what came later"
    two.start_second()
    assert set(task.stored()) == set(range(3000))


def test_rows_of_a_key_wait_for_the_broker_of_their_queue(two: TwoBrokers) -> None:
    task = Task(two.namesrv, two.make_topic("Keyed", 2), 3000, keys=40)

    def kill() -> None:
        two.kill_second()
        threading.Thread(target=two.start_second).start()

    assert task.run({1000: kill}).count == 3000
    task.check_order(task.stored())


def test_rows_of_a_key_do_not_overtake_one_another_when_sends_time_out(
    own: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk_sender, "_ATTEMPT_S", 0.2)
    task = Task(own.namesrv, own.make_topic("Stopped", 2), 3000, keys=50)

    def halt() -> None:
        os.kill(own.pid, signal.SIGSTOP)
        threading.Timer(0.7, os.kill, [own.pid, signal.SIGCONT]).start()

    assert task.run({600: halt, 1800: halt}).count == 3000
    stored = task.stored()
    assert len(stored) > 3000, "a send that timed out was stored nevertheless"
    task.check_order(stored)
