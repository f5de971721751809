"""What a task does with a handler that waits, fails for every key, is async, or breaks off."""

from __future__ import annotations

import asyncio
import threading
import time
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from cometmq import BreakerLimits, OnFailure, RetryLater
from spark import handler_plans as plans
from spark.handler_plans import Plan
from spark.micro_batches import Here, MicroBatches

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark.live import Live

pytestmark = pytest.mark.spark
_numbers = count()
LETTERS = Plan(tuple(f"{key}-{number}" for number in range(3) for key in "abcdef"), {})


@pytest.fixture
def query(live: Live, topic: str) -> Callable[..., MicroBatches]:
    plans.send(live, topic, LETTERS)

    def query(handler: Any, **settings: Any) -> MicroBatches:
        given = {"consume_from": "first", "suspend_ms": 10, **settings}
        return MicroBatches(live, f"engine{next(_numbers)}", topic, Here(handler), **given)

    return query


def test_a_batch_waits_no_longer_than_it_may_while_nothing_gets_done(query: Any) -> None:
    def wait(messages: list[Any]) -> None:
        raise RetryLater("the bank is closed", suspend_ms=30_000)

    began = time.monotonic()
    with pytest.raises(AssertionError) as stuck:
        query(wait, order="queue", max_attempts=9, wait_most_s=0.5).run_batch()
    assert "no message was finished for wait_most_s=0.5 and no handler ran" in str(stuck.value)
    assert "which fails: RetryLater: the bank is closed" in str(stuck.value)
    assert time.monotonic() - began < 10


def test_the_time_of_a_slow_handler_does_not_count_as_waiting(query: Any) -> None:
    done = []

    def work(messages: list[Any]) -> None:
        if not done:
            time.sleep(0.6)
        done.append(messages[0].body)

    query(work, order="queue", max_attempts=2, wait_most_s=0.2).run_batch()
    assert len(done) == len(LETTERS.bodies)


def test_an_outage_by_key_fails_the_batch_and_makes_no_dead_letters(live: Live, query: Any) -> None:
    calls = []

    def fail(messages: list[Any]) -> None:
        calls.append(messages[0].body)
        raise ConnectionError("the database is away")

    limits = BreakerLimits(keys=3, results=6, pause_s=0.1)
    running = query(fail, order="key", breaker=limits, max_attempts=5, wait_most_s=1.0)
    with pytest.raises(AssertionError) as outage:
        running.run_batch()
    assert "which counts as an outage" in str(outage.value)
    assert not plans.dead_count(live, running.job.group)


def test_an_async_handler_runs_as_tasks(query: Any) -> None:
    done, at_once = [], []

    async def work(messages: list[Any]) -> None:
        at_once.append(len(asyncio.all_tasks()))
        await asyncio.sleep(0.01)
        done.extend(message.body.decode() for message in messages)

    query(work).run_batch()
    assert sorted(done) == sorted(LETTERS.bodies)
    assert max(at_once) > 1


def test_keys_are_handled_side_by_side_each_in_its_order(query: Any) -> None:
    done: list[str] = []
    meeting = threading.Barrier(3, timeout=10)

    def work(messages: list[Any]) -> None:
        body = messages[0].body.decode()
        if body.endswith("-0"):
            meeting.wait()  # three keys at the same time, or nobody goes on
        done.append(body)

    query(work, order="key", on_failure=OnFailure.stop(), consume_threads=3).run_batch()
    assert {key: [b for b in done if b[0] == key] for key in "abcdef"} == {
        key: [b for b in LETTERS.bodies if b[0] == key] for key in "abcdef"
    }


def test_a_handler_sees_the_messages_of_a_push_consumer(query: Any) -> None:
    seen = []
    running = query(lambda messages: seen.extend(messages))
    running.run_batch()
    first = min(seen, key=lambda message: (message.queue_id, message.queue_offset))
    assert first.sharding_key == first.body.decode()[0]
    assert first.msg_id
    assert first.properties["__SHARDINGKEY"] == first.sharding_key
    assert first.message_queue.topic == running.job.topic
