"""One generated plan that two groups handle: a push consumer's, and another one."""

from __future__ import annotations

import random
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Any

from cometmq import Admin, BreakerLimits, OnFailure, PushConsumer
from spark import handler_plans as plans
from spark.handler_plans import ERRORS, PlannedHandler, Stored, calls_of, dead_count

if TYPE_CHECKING:
    from pathlib import Path

    from spark.live import Live

_numbers = count()
CALM = BreakerLimits(keys=100, results=100)
ORDERS = ("none", "queue", "key")


class PlannedCase:
    """One plan, the policies of its errors, and two groups that handle the same messages."""

    def __init__(self, live: Live, root: Path, seed: int, order: str) -> None:
        dice = random.Random(seed)
        self.live, self.order, self.root = live, order, root
        self.plan = plans.generated(seed)
        self.names = dict(zip(ERRORS, dice.sample(plans.POLICIES, len(ERRORS)), strict=True))
        self.topic = live.make_topic(f"Planned{next(_numbers)}", 2)
        # concurrently a message fails with its neighbours, and which these are is chance
        self.batch_size = 1 if order == "none" else dice.choice((1, 1, 3))
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

    def handler(self, group: str, ends_process_at: str = "") -> PlannedHandler:
        return PlannedHandler(self.plan, self.path(group), ends_process_at)

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


def push(case: PlannedCase, group: str) -> PushConsumer:
    consumer = PushConsumer(group, namesrv=case.live.namesrv, **case.settings(group))
    consumer.subscribe(case.topic, "*", case.handler(group))
    return consumer
