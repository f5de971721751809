"""The faults injected into a run: a consumer is killed and replaced, the broker is killed.

Decides when to kill which process; does not judge the outcome. Invariant: each kill happens once,
while messages are still being sent; `require_done` fails a run that missed one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cometmq.demo.flights.processes.child_processes import ChildFailed

if TYPE_CHECKING:
    from collections.abc import Callable

CONSUMER_AT, BROKER_AT = 0.3, 0.6
"""Shares of all messages sent when the consumer and the broker are killed."""


@dataclass(slots=True)
class PlannedKill:
    """A kill that is due once `at_share` of all messages have been sent."""

    name: str
    at_share: float
    act: Callable[[], None]
    happened: bool = False


@dataclass(slots=True)
class KillSchedule:
    """The planned kills of one run, and when each happened."""

    plan: list[PlannedKill]
    moments: list[tuple[float, str]] = field(default_factory=list)
    """When (monotonic clock, seconds) and what happened."""

    def look(self, sent: int, messages: int) -> None:
        """Kill what is due now that `sent` of `messages` are stored."""
        for kill in self.plan:
            if not kill.happened and sent >= kill.at_share * messages:
                kill.happened = True
                self.moments.append((time.monotonic(), kill.name))
                kill.act()

    def require_done(self) -> None:
        """Raise ChildFailed when a planned kill has not happened."""
        left = [kill.name for kill in self.plan if not kill.happened]
        if left:
            raise ChildFailed(f"the run ended before this happened: {', '.join(left)}")
