"""One generated plan that two groups handle: a push consumer's, and another one."""

from __future__ import annotations

import random
from collections import Counter
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from client.short_delay_cluster import until
from cometmq import Admin, BreakerLimits, PushConsumer
from cometmq.spark import listen
from spark import handler_plans as plans
from spark.handler_plans import ERRORS, WAIT_S, PlannedHandler, Stored, calls_of, dead_count
from spark.micro_batches import MicroBatches, NotReported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.live import Live

_numbers = count()
CALM = BreakerLimits(keys=100, results=100)
ORDERS = ("none", "queue", "key")
CELLS = [(order, shift) for order in ORDERS for shift in range(len(plans.policies_of(order)))]
"""With the kinds of failures in each plan: all pairs of a policy and a kind, in each order."""


class PlannedCase:
    """One plan, the policies of its errors, and two groups that handle the same messages."""

    def __init__(self, live: Live, root: Path, shift: int, order: str, seed: int = 0) -> None:
        dice = random.Random(f"{seed} {shift}")
        self.live, self.order, self.root = live, order, root
        self.names = plans.shifted(order, shift)
        endless = {error for error, kind in ERRORS.items() if self.names[kind] == "block"}
        self.plan = plans.generated(dice.randrange(10**6), endless)
        self.topic = live.make_topic(f"Planned{next(_numbers)}", 2)
        # concurrently a message fails with its neighbours, and which these are is chance
        self.batch_size = 1 if order == "none" else dice.choice((1, 1, 3))
        self.dies_at = dice.choice([body for body in self.plan.bodies if self._is_handled(body)])
        plans.send(live, self.topic, self.plan)

    def settings(self, group: str) -> dict[str, Any]:
        sink = Stored(self.path(group))
        chosen = {kind: plans.policy(name, sink) for kind, name in self.names.items()}
        return {
            "order": self.order,
            "consume_from": "first",
            "suspend_ms": 20,
            "breaker": CALM if self.order == "key" else None,
            "batch_size": self.batch_size,
            "max_attempts": plans.MAX_ATTEMPTS,
            "on_failure": {kind: one for kind, one in chosen.items() if one is not None},
        }

    def path(self, group: str) -> str:
        return str(self.root / group)

    def handler(self, group: str, ends_process_at: str = "") -> PlannedHandler:
        return PlannedHandler(self.plan, self.path(group), ends_process_at)

    def is_over(self, group: str) -> bool:
        """Whether each message has come to its end for the group, as far as that leaves traces."""
        calls = {(body, times, kind) for body, times, kind in calls_of(self.path(group))}
        ends = Counter(kind for _, _, kind in calls)
        given_up = self._given_up()
        by = Counter(self.names[ERRORS[self.plan.failures[body].error]] for body in given_up)
        dead = sum(by[name] for name in plans.DEAD)
        return (
            all((body, last, "failed") in calls for body, last in given_up.items() if last >= 0)
            and ends["done"] + len(given_up) == len(self.plan.bodies)
            and ends["stored"] == by["store"]
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
            assert mine == theirs, (mine, theirs)
        assert handled.dead == pushed.dead

    def judge_commits(self, group: str) -> None:
        """All messages are behind the group's offsets."""
        with Admin(namesrv=self.live.namesrv) as admin:
            offsets = admin.group_offsets(group, self.topic)
        found = sum(offset or 0 for offset in offsets.values())
        assert found == len(self.plan.bodies), f"{offsets} for {len(self.plan.bodies)} messages"

    def _is_handled(self, body: str) -> bool:
        failure = self.plan.failures.get(body)
        return failure is None or failure.error != "unreadable"

    def _given_up(self) -> dict[str, int]:
        """What is given up, and its `reconsume_times` at its last call; -1 where there is none."""
        found = {}
        for body, failure in self.plan.failures.items():
            last = plans.LAST_FAILURE[self.names[ERRORS[failure.error]]]
            if not self._is_handled(body):
                found[body] = -1
            elif failure.times > last:
                found[body] = last
        return found


def push(case: PlannedCase, group: str, **changed: Any) -> PushConsumer:
    """A push consumer of the case; `changed` are other settings."""
    settings = case.settings(group) | changed
    consumer = PushConsumer(group, namesrv=case.live.namesrv, **settings)
    consumer.subscribe(case.topic, "*", case.handler(group))
    return consumer


def run_both(case: PlannedCase, dies: str = "") -> None:
    """Handle the plan twice; each batch up to the third dies once, where `dies` says."""
    died: set[int] = set()
    pushed, handled = f"pushed-{case.topic}", f"handled-{case.topic}"
    with push(case, pushed):
        query = MicroBatches(
            case.live, handled, case.topic, case.handler(handled), **case.settings(handled)
        )

        def step() -> bool:
            ends = dies if len(died) < 3 and query.batches not in died else ""
            died.add(query.batches + 1)
            try:
                query.run_batch(ends)
            except NotReported:
                query.start()
            return case.is_over(handled)

        until(step, WAIT_S)
        until(lambda: case.is_over(pushed), WAIT_S)
        while query.run_batch():
            pass
        query.run_batch()  # the planner learns that the last batch is done, and commits
    case.judge(pushed, handled)
    case.judge_commits(handled)


def run_both_on_spark(spark: SparkSession, case: PlannedCase) -> None:
    """Handle the plan by a push consumer, and by queries of which a worker dies, and compare."""
    pushed, handled = f"pushed-{case.topic}", f"spark-{case.topic}"
    handler = case.handler(handled, ends_process_at=case.dies_at)
    settings = {
        **case.settings(handled),
        "namesrv": case.live.namesrv,
        "checkpoint": str(case.root / "checkpoint"),
        "trigger": {"availableNow": True},
        "source": {"maxOffsetsPerTrigger": "9"},
    }

    def step() -> bool:
        query = listen(spark, handled, case.topic, "*", handler, **settings)
        try:
            assert query.awaitTermination(WAIT_S)
        except PySparkException:
            assert Path(f"{case.path(handled)}.ended").exists()
        return case.is_over(handled)

    with push(case, pushed):
        until(step, 300)
        until(lambda: case.is_over(pushed), WAIT_S)
    step()
    case.judge(pushed, handled)
    case.judge_commits(handled)
