"""What goes wrong on purpose in mid-run: a consumer dies and another joins, the broker dies.

Owns when and whom; refuses to know what should follow. Invariant: both happen while messages are
still being sent, and each once; `require_done` makes a run fail in which one did not.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cometmq.demo.flights.child_processes import ChildError

if TYPE_CHECKING:
    from collections.abc import Callable

CONSUMER_AT, BROKER_AT = 0.3, 0.6
"""Shares of all messages sent when the consumer and the broker are killed."""


@dataclass(slots=True)
class Kill:
    """One thing that happens once, when so much has been sent."""

    name: str
    at_share: float
    act: Callable[[], None]
    happened: bool = False


@dataclass(slots=True)
class Kills:
    """The kills of one run, and when each happened."""

    plan: list[Kill]
    moments: list[tuple[float, str]] = field(default_factory=list)
    """When (monotonic clock, seconds) and what happened."""

    def look(self, sent: int, messages: int) -> None:
        """Do what is due now that `sent` of `messages` are stored."""
        for kill in self.plan:
            if not kill.happened and sent >= kill.at_share * messages:
                kill.happened = True
                self.moments.append((time.monotonic(), kill.name))
                kill.act()

    def require_done(self) -> None:
        """Raise ChildError when something of the plan has not happened."""
        left = [kill.name for kill in self.plan if not kill.happened]
        if left:
            raise ChildError(f"the run was over before this happened: {', '.join(left)}")
