"""Handlers of a push consumer that Spark itself runs, with a real broker."""

from __future__ import annotations

import importlib
import zipfile
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException

from client.short_delay_cluster import until
from cometmq import Admin, OnFailure
from cometmq.spark import listen
from cometmq.spark.handling.batch_runner import OutcomeCheck
from spark import handler_plans
from spark.handler_plans import (
    FOR_EVER,
    POLICIES,
    WAIT_S,
    CountingHandler,
    Failure,
    Plan,
    PlannedHandler,
    calls_of,
    dead_count,
    outcome_of,
    send,
)
from spark.planned_case import ORDERS, PlannedCase, run_both_on_spark
from spark.streams import said

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from spark.live import Live

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
_numbers = count()
ONCE = {"availableNow": True}
STEPS = tuple(f"{key}-{number}" for number in range(6) for key in "ab")
SHIPPED = """
def note(path, messages):
    with open(path, "a") as calls:
        calls.writelines(f"{message.body.decode()}\\n" for message in messages)
"""
STOP = OnFailure.retry(1, OnFailure.stop(), pause_ms=10)


@pytest.fixture(scope="module", autouse=True)
def _handlers_are_pickled_whole() -> Iterator[None]:
    """Workers of Spark cannot import the modules of tests."""
    cloudpickle.register_pickle_by_value(handler_plans)
    yield
    cloudpickle.unregister_pickle_by_value(handler_plans)


@pytest.fixture
def start(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path
) -> Callable[..., StreamingQuery]:
    """Starts a query of one group and checkpoint; again when called again."""
    group = f"listeners{next(_numbers)}"

    def start(handler: Any, **settings: Any) -> StreamingQuery:
        given = {
            "namesrv": live.namesrv,
            "checkpoint": str(tmp_path / "checkpoint"),
            "consume_from": "first",
            "suspend_ms": 10,
            **settings,
        }
        return listen(spark, group, topic, "*", handler, **given)

    start.group = group  # type: ignore[attr-defined]
    return start


def lag(live: Live, group: str, topic: str) -> int:
    with Admin(namesrv=live.namesrv) as admin:
        ends = sum(found.max_offset for found in admin.topic_stats(topic).values())
        return ends - sum(offset or 0 for offset in admin.group_offsets(group, topic).values())


def finish(query: StreamingQuery) -> None:
    assert query.awaitTermination(WAIT_S)


def test_failures_go_back_to_the_broker_and_come_again_until_they_are_dead_letters(
    live: Live, topic: str, start: Any, tmp_path: Path
) -> None:
    plan = Plan(STEPS, {"a-1": Failure(1, "value"), "b-2": Failure(FOR_EVER, "value")})
    send(live, topic, plan)
    path = str(tmp_path / "calls")
    query = start(PlannedHandler(plan, path), max_attempts=2)
    try:
        until(lambda: dead_count(live, start.group) == 1, WAIT_S)
        until(lambda: ("a-1", 1, "done") in calls_of(path), WAIT_S)
        until(lambda: lag(live, start.group, topic) == 0, WAIT_S)
    finally:
        query.stop()
    found = outcome_of(live, start.group, path)
    assert len(calls_of(path)) == len(STEPS) + 2, "a call too many, or too few"
    assert list(found.dead) == ["b-2"]
    letter = found.dead["b-2"]
    assert letter["DLQ_REASON"] == "ValueError: b-2"
    assert (letter["DLQ_ATTEMPTS"], letter["DLQ_ORIGIN_TOPIC"]) == ("2", topic)


@pytest.mark.parametrize("order", [pytest.param("queue", marks=pytest.mark.slow), "key"])
def test_a_worker_that_dies_in_the_handler_repeats_its_batch_in_order(
    live: Live, topic: str, start: Any, tmp_path: Path, order: str
) -> None:
    plan = Plan(STEPS, {"a-2": Failure(1, "value")})
    send(live, topic, plan)
    path = str(tmp_path / "calls")
    handler = PlannedHandler(plan, path, ends_process_at="b-3")
    settings = {"order": order, "on_failure": STOP, "trigger": ONCE}
    with pytest.raises(PySparkException):
        finish(start(handler, **settings))
    finish(start(handler, **settings))
    calls = outcome_of(live, start.group, path).without_repeats()
    assert [body for body, _, kind in calls["a"] if kind == "done"] == list(STEPS[::2])
    assert [body for body, _, kind in calls["b"] if kind == "done"] == list(STEPS[1::2])
    assert lag(live, start.group, topic) == 0


@pytest.mark.slow
def test_a_driver_that_dies_between_outcome_and_commit_repeats_the_batch(
    live: Live, topic: str, start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(STEPS, {})
    send(live, topic, plan)
    path = str(tmp_path / "calls")
    run = OutcomeCheck.__call__

    def die_behind(self: OutcomeCheck, frame: Any, batch: int) -> None:
        run(self, frame, batch)
        raise RuntimeError("the driver dies")

    settings = {"order": "key", "max_attempts": 2, "trigger": ONCE}
    with monkeypatch.context() as patched:
        patched.setattr(OutcomeCheck, "__call__", die_behind)
        with pytest.raises(PySparkException, match="the driver dies"):
            finish(start(PlannedHandler(plan, path), **settings))
    assert len(calls_of(path)) == len(STEPS)
    assert lag(live, start.group, topic) == len(STEPS)
    finish(start(PlannedHandler(plan, path), **settings))
    assert len(calls_of(path)) == 2 * len(STEPS)
    assert lag(live, start.group, topic) == 0


def test_a_policy_of_stopping_fails_the_query_before_the_message_and_says_which(
    live: Live, topic: str, start: Any, tmp_path: Path
) -> None:
    plan = Plan(STEPS, {"a-3": Failure(FOR_EVER, "value")})
    send(live, topic, plan)
    path = str(tmp_path / "calls")
    settings = {"order": "key", "on_failure": STOP, "trigger": ONCE}
    with pytest.raises(PySparkException) as stopped:
        finish(start(PlannedHandler(plan, path), **settings))
    assert "its policy is to stop: ValueError: a-3" in said(stopped)
    assert "comes again when the query is started again" in said(stopped)
    calls = outcome_of(live, start.group, path).calls
    assert calls["a"][-2:] == [("a-3", 0, "failed"), ("a-3", 1, "failed")]
    assert lag(live, start.group, topic) == len(STEPS)
    finish(start(PlannedHandler(Plan(STEPS, {}), path), **settings))
    calls = outcome_of(live, start.group, path).without_repeats()
    assert [body for body, _, kind in calls["a"] if kind == "done"] == list(STEPS[::2])


def test_a_handler_keeps_its_state_from_batch_to_batch_in_a_worker_process(
    live: Live, topic: str, start: Any, tmp_path: Path
) -> None:
    send(live, topic, Plan(STEPS, {}))
    (tmp_path / "seen").mkdir()
    settings = {"trigger": ONCE, "source": {"maxOffsetsPerTrigger": "2", "slots": "1"}}
    query = start(CountingHandler(str(tmp_path / "seen")), consume_threads=1, **settings)
    finish(query)
    assert sum(one["numInputRows"] for one in query.recentProgress) == len(STEPS)
    counts = sorted(int(path.name.partition("-")[2]) for path in (tmp_path / "seen").iterdir())
    assert counts[-1] > 2, "each batch began with a new handler"


def test_a_handler_may_lie_in_an_archive_of_modules_that_spark_ships(
    spark: SparkSession, live: Live, topic: str, start: Any, tmp_path: Path
) -> None:
    send(live, topic, Plan(STEPS, {}))
    with zipfile.ZipFile(tmp_path / "shipped.zip", "w") as shipped:
        shipped.writestr("shipped_handlers.py", SHIPPED)
    spark.sparkContext.addPyFile(str(tmp_path / "shipped.zip"))
    handlers = importlib.import_module("shipped_handlers")
    finish(start(partial(handlers.note, str(tmp_path / "calls")), trigger=ONCE))
    assert sorted((tmp_path / "calls").read_text().split()) == sorted(STEPS)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shift", range(len(POLICIES)))
def test_a_plan_ends_as_with_a_push_consumer_though_workers_die(
    spark: SparkSession, live: Live, tmp_path: Path, order: str, shift: int
) -> None:
    run_both_on_spark(spark, PlannedCase(live, tmp_path, shift, order, seed=200))
