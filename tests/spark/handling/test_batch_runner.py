"""The same plan of failures through a push consumer and through micro-batches, compared."""

from __future__ import annotations

import random
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from client.short_delay_cluster import until
from cometmq import Admin, BreakerLimits, OnFailure, PushConsumer
from spark import handler_plans as plans
from spark.handler_plans import ERRORS, WAIT_S, PlannedHandler, Stored, calls_of, dead_count
from spark.micro_batches import MicroBatches, NotReported

if TYPE_CHECKING:
    from pathlib import Path

    from spark.live import Live

pytestmark = pytest.mark.spark
_numbers = count()
CALM = BreakerLimits(keys=100, results=100)
ORDERS = ("none", "queue", "key")


class Case:
    """One plan, the policies of its errors, and two groups that handle the same messages."""

    def __init__(self, live: Live, root: Path, seed: int, order: str) -> None:
        dice = random.Random(seed)
        self.live, self.order, self.root = live, order, root
        self.plan = plans.generated(seed)
        self.names = dict(zip(ERRORS, dice.sample(plans.POLICIES, len(ERRORS)), strict=True))
        self.topic = live.make_topic(f"Planned{next(_numbers)}", 2)
        self.batch_size = dice.choice((1, 1, 3))
        plans.send(live, self.topic, self.plan)

    def settings(self, group: str) -> dict[str, Any]:
        sink = Stored(self.path(group))
        return {
            "order": self.order,
            "consume_from": "first",
            "suspend_ms": 20,
            "breaker": CALM if self.order == "key" else None,
            "batch_size": self.batch_size,
            "on_failure": {
                ERRORS[error]: plans.policy(name, sink) for error, name in self.names.items()
            }
            | {Exception: OnFailure.retry(1)},
        }

    def path(self, group: str) -> str:
        return str(self.root / group)

    def handler(self, group: str) -> PlannedHandler:
        return PlannedHandler(self.plan, self.path(group))

    def is_over(self, group: str) -> bool:
        """Whether each message has come to its end for the group."""
        calls = {(body, times, kind) for body, times, kind in calls_of(self.path(group))}
        ends = Counter(kind for _, _, kind in calls)
        given_up = {
            (body, plans.LAST_FAILURE[self.names[failure.error]])
            for body, failure in self.plan.failures.items()
            if failure.times > plans.LAST_FAILURE[self.names[failure.error]]
        }
        dead = sum(
            self.names[self.plan.failures[body].error] in {"dead", "retry"} for body, _ in given_up
        )
        return (
            all((body, last, "failed") in calls for body, last in given_up)
            and ends["done"] + len(given_up) == len(self.plan.bodies)
            and dead_count(self.live, group) >= dead
        )

    def judge(self, group: str, other: str) -> None:
        """Compare what became of the plan: a push consumer's group, and the other one."""
        pushed = plans.outcome_of(self.live, group, self.path(group))
        handled = plans.outcome_of(self.live, other, self.path(other))
        mine, theirs = handled.without_repeats(), pushed.without_repeats()
        if self.order == "none":
            assert {k: sorted(v) for k, v in mine.items()} == {
                k: sorted(v) for k, v in theirs.items()
            }
        else:
            assert mine == theirs
        assert self.letters(handled) == self.letters(pushed)

    def letters(self, found: plans.Outcome) -> dict[str, dict[str, str]]:
        """The dead letters; concurrently each group has its own offsets in its retry topic."""
        own = {"DLQ_ORIGIN_QUEUE_ID", "DLQ_ORIGIN_OFFSET"} if self.order == "none" else set()
        return {
            body: {name: value for name, value in pairs.items() if name not in own}
            for body, pairs in found.dead.items()
        }


def committed(live: Live, group: str, topic: str) -> int:
    with Admin(namesrv=live.namesrv) as admin:
        return sum(offset or 0 for offset in admin.group_offsets(group, topic).values())


def push(case: Case, group: str) -> PushConsumer:
    consumer = PushConsumer(group, namesrv=case.live.namesrv, **case.settings(group))
    consumer.subscribe(case.topic, "*", case.handler(group))
    return consumer


def run_both(case: Case, lost: frozenset[int] = frozenset()) -> None:
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
    run_both(Case(live, tmp_path, 1, order))


@pytest.mark.parametrize("order", ["queue", "key"])
def test_a_replayed_batch_repeats_and_changes_nothing_else(
    live: Live, tmp_path: Path, order: str
) -> None:
    run_both(Case(live, tmp_path, 2, order), lost=frozenset({0}))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_plans_end_as_with_a_push_consumer(
    live: Live, tmp_path: Path, order: str, seed: int
) -> None:
    dice = random.Random(seed)
    lost = frozenset(batch for batch in range(6) if dice.random() < 0.3)
    run_both(Case(live, tmp_path, seed, order), lost if order != "none" else frozenset())
