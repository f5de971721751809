"""The same plan of failures through a push consumer and through micro-batches, compared.

The cells: each policy of `failure_policy.py` that both engines carry out, by each kind of failure,
by each death, in each order. `divert`, which a push consumer refuses, has a model of its own in
`test_diverted_keys.py`; what is refused on Spark is in `test_handler_settings.py`.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

from client.short_delay_cluster import until
from cometmq import OnFailure
from spark import handler_plans as plans
from spark.handler_plans import CLASSES, ERRORS, FOR_EVER, WAIT_S, Failure, Plan
from spark.micro_batches import AMID, UNNOTED, MicroBatches
from spark.planned_case import CELLS, ORDERS, PlannedCase, push, run_both

if TYPE_CHECKING:
    from pathlib import Path

    from spark.live import Live

pytestmark = pytest.mark.spark
_numbers = count()
DEATHS = ("", UNNOTED, AMID)


def test_the_cases_are_all_pairs_of_a_policy_and_a_kind_of_failure() -> None:
    for order in ORDERS:
        policies = plans.policies_of(order)
        shifts = range(len(policies))
        found = {pair for shift in shifts for pair in plans.shifted(order, shift).items()}
        assert found == {(kind, name) for kind in CLASSES for name in policies}
    times = plans.generated(0).failures.values()
    assert {(one.error, one.times) for one in times} == {
        (error, often) for error in ERRORS for often in (1, FOR_EVER)
    }


@pytest.mark.parametrize("order", ORDERS)
def test_a_plan_of_failures_ends_as_with_a_push_consumer(
    live: Live, tmp_path: Path, order: str
) -> None:
    run_both(PlannedCase(live, tmp_path, 3, order))


@pytest.mark.parametrize("order", ["queue", "key"])
def test_a_replayed_batch_repeats_and_changes_nothing_else(
    live: Live, tmp_path: Path, order: str
) -> None:
    run_both(PlannedCase(live, tmp_path, 2, order), UNNOTED)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("dies", DEATHS)
@pytest.mark.parametrize(("order", "shift"), CELLS)
def test_each_policy_of_each_failure_ends_as_with_a_push_consumer(
    live: Live, tmp_path: Path, order: str, shift: int, dies: str
) -> None:
    run_both(PlannedCase(live, tmp_path, shift, order), dies)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("error", ERRORS)
def test_a_policy_of_stopping_stops_before_the_message_as_a_push_consumer_does(
    live: Live, tmp_path: Path, order: str, error: str
) -> None:
    case, number = PlannedCase(live, tmp_path, 0, order), next(_numbers)
    pushed, handled = f"pushed-stop{number}", f"handled-stop{number}"
    fails = {"a-3": Failure(FOR_EVER, error)}
    stops = {
        "on_failure": {
            ERRORS[error]: OnFailure.retry(1, OnFailure.stop(), pause_ms=10),
            Exception: OnFailure.dead_letter(),
        },
        "batch_size": 1,
    }
    goes_on = {"on_failure": OnFailure.skip()}
    case.topic = live.make_topic(f"Stopping{number}", 2)
    bodies = tuple(f"{key}-{at}" for at in range(6) for key in "abc")
    case.plan = Plan(bodies, fails)
    plans.send(live, case.topic, case.plan)

    with push(case, pushed, **stops) as consumer:
        assert consumer.wait(WAIT_S), "a push consumer goes on"
    query = MicroBatches(
        live, handled, case.topic, case.handler(handled), **(case.settings(handled) | stops)
    )
    with pytest.raises(AssertionError, match="its policy is to stop"):
        until(lambda: run(query), WAIT_S)
    stopped = [plans.calls_of(case.path(group)) for group in (pushed, handled)]
    assert not any(("a-3", times, "done") in calls for calls in stopped for times in (0, 1))
    case.plan = Plan(bodies, fails if error == "unreadable" else {})
    query.start(case.handler(handled), **goes_on)
    with push(case, pushed, **goes_on):
        until(lambda: are_done(case, pushed), WAIT_S)
        until(lambda: run(query) or are_done(case, handled), WAIT_S)
    found = [plans.outcome_of(live, group, case.path(group)) for group in (pushed, handled)]
    pushed_ends, handled_ends = (ends(one, is_sorted=order == "none") for one in found)
    assert pushed_ends == handled_ends
    assert found[0].dead == found[1].dead == {}


def ends(found: plans.Outcome, *, is_sorted: bool) -> dict[str, list[tuple[str, int, str]]]:
    """The calls of each key without repeats.

    How often a message failed before it is done is left out: over a restart a push consumer that
    keeps the order of keys goes on counting, and Spark begins again.
    """
    calls = {
        key: list(
            dict.fromkeys((body, at if kind == "failed" else 0, kind) for body, at, kind in of)
        )
        for key, of in found.calls.items()
    }
    return {key: sorted(of) for key, of in calls.items()} if is_sorted else calls


def run(query: MicroBatches) -> None:
    """Run the next batch, if there is one."""
    query.run_batch()


def are_done(case: PlannedCase, group: str) -> bool:
    """Whether the handler has ended well with every message that it gets."""
    done = {body for body, _, kind in plans.calls_of(case.path(group)) if kind == "done"}
    return done == {body for body in case.plan.bodies if body not in case.plan.failures}
