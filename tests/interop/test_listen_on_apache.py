"""Handlers in micro-batches over topics of Apache RocketMQ's broker, beside a push consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from cometmq import OnFailure
from interop.apache import ApacheCluster
from interop.on_spark import ON_SPARK, OnApache
from spark import handler_plans as plans
from spark.handler_plans import FOR_EVER, Failure, Plan, PlannedHandler
from spark.micro_batches import AMID, MicroBatches
from spark.planned_case import CELLS, PlannedCase, run_both

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from spark.live import Live

pytestmark = ON_SPARK


@pytest.fixture
def live(apache: ApacheCluster) -> Live:
    return cast("Live", OnApache(apache))


@pytest.mark.parametrize(("order", "shift"), CELLS)
def test_each_policy_of_each_failure_ends_as_with_a_push_consumer_though_half_a_batch_is_lost(
    live: Live, tmp_path: Path, order: str, shift: int
) -> None:
    run_both(PlannedCase(live, tmp_path, shift, order), AMID)


@pytest.fixture
def strict(apache_jars: Path, tmp_path: Path) -> Iterator[Live]:
    """A broker that creates no topics by itself, as in production."""
    cluster = ApacheCluster(apache_jars, tmp_path / "strict", autoCreateTopicEnable="false")
    yield cast("Live", OnApache(cluster))
    cluster.stop()


def test_a_key_is_diverted_in_order_by_a_group_that_the_broker_has_never_seen(
    strict: Live, tmp_path: Path
) -> None:
    topic, path = strict.make_topic("Diverted", 2), str(tmp_path / "calls")
    plan = Plan(("a-0", "b-0", "a-1", "b-1", "a-2", "a-3"), {"a-1": Failure(FOR_EVER, "value")})
    policy = OnFailure.retry(1, OnFailure.divert(), pause_ms=10)
    query = MicroBatches(
        strict,
        "never-seen",
        topic,
        PlannedHandler(plan, path),
        consume_from="first",
        order="key",
        on_failure=policy,
    )
    for more in (plan, Plan(("a-4", "b-4"), {})):
        plans.send(strict, topic, more)
        while query.run_batch():
            pass
        query.start()
    done = [body for body, _, kind in plans.calls_of(path) if kind == "done"]
    assert [body for body in done if body[0] == "a"] == ["a-0"]
    assert [body for body in done if body[0] == "b"] == ["b-0", "b-1", "b-4"]
    letters = plans.letters_of(strict, "never-seen")
    assert [one.body.decode() for one in letters] == ["a-1", "a-2", "a-3", "a-4"]
    assert {one.properties["DLQ_ORIGIN_TOPIC"] for one in letters} == {topic}
