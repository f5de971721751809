"""The same plan of failures through a push consumer and through micro-batches, compared."""

from __future__ import annotations

import random
from itertools import count
from typing import TYPE_CHECKING

import pytest

from client.short_delay_cluster import until
from spark.handler_plans import WAIT_S
from spark.micro_batches import MicroBatches, NotReported
from spark.planned_case import ORDERS, PlannedCase, committed, push

if TYPE_CHECKING:
    from pathlib import Path

    from spark.live import Live

pytestmark = pytest.mark.spark
_numbers = count()


def run_both(case: PlannedCase, lost: frozenset[int] = frozenset()) -> None:
    """Handle the plan twice; batches whose numbers are in `lost` end before they are noted."""
    number = next(_numbers)
    pushed, handled = f"pushed{number}", f"handled{number}"
    with push(case, pushed):
        query = MicroBatches(
            case.live, handled, case.topic, case.handler(handled), **case.settings(handled)
        )

        def step() -> bool:
            try:
                query.run_batch(is_reported=query.batches not in lost)
            except NotReported:
                query.start()
            return case.is_over(handled)

        until(step, WAIT_S)
        until(lambda: case.is_over(pushed), WAIT_S)
        while query.run_batch():
            pass
        query.run_batch()  # the planner learns that the last batch is done, and commits
    case.judge(pushed, handled)
    assert committed(case.live, handled, case.topic) == len(case.plan.bodies)


@pytest.mark.parametrize("order", ORDERS)
def test_a_plan_of_failures_ends_as_with_a_push_consumer(
    live: Live, tmp_path: Path, order: str
) -> None:
    run_both(PlannedCase(live, tmp_path, 1, order))


@pytest.mark.parametrize("order", ["queue", "key"])
def test_a_replayed_batch_repeats_and_changes_nothing_else(
    live: Live, tmp_path: Path, order: str
) -> None:
    run_both(PlannedCase(live, tmp_path, 2, order), lost=frozenset({0}))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_plans_end_as_with_a_push_consumer(
    live: Live, tmp_path: Path, order: str, seed: int
) -> None:
    dice = random.Random(seed)
    lost = frozenset(batch for batch in range(6) if dice.random() < 0.3)
    run_both(PlannedCase(live, tmp_path, seed, order), lost)
