"""The control: the same input through a concurrent group, which keeps no order.

Owns what the control is and what must come of it; refuses to start processes. The audit that finds
nothing in the orderly group must find violations here, else it is the audit that is broken. The
same 458 messages are refused; here they take the way over the group's retry topic and the broker's
delay levels (set short for the demo) into the group's own dead-letter topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cometmq.demo.flights.audit import Verdict

GROUP = "flights-concurrent"
MEMBERS = 2
THREADS = 8
DELAY_LEVELS = "1s 2s 3s"
"""The broker's delay levels during the demo; attempts after the first wait for level 1."""


def violations_wanted(verdict: Verdict) -> int:
    """How many violations there must be at least: one, if anything could overtake anything."""
    return 1 if verdict.unique > 1 else 0


def pause_every(messages: int) -> int:
    """One in how many messages the handlers pause at: often enough for a small input too."""
    return min(max(messages // 2000, 8), 512)
