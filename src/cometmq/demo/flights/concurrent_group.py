"""The control: the same input through a concurrent group, which keeps no order.

Owns this stage and what must come of it. The audit that finds nothing in the orderly group must
find violations here, else it is the audit that is broken. The same messages are refused; here they
take the way over the group's retry topic and the broker's delay levels (set short for the demo)
into the group's own dead-letter topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.model.topic import dlq_topic_of, retry_topic_of

if TYPE_CHECKING:
    from cometmq.demo.flights.broker_queries import Gauge
    from cometmq.demo.flights.job_processes import Processes
    from cometmq.demo.flights.order_audit import Verdict
    from cometmq.demo.flights.progress import Progress

GROUP = "flights-concurrent"
MEMBERS, THREADS = 2, 8
DELAY_LEVELS = "1s 2s 3s"
"""The broker's delay levels during the demo; attempts after the first wait for level 1."""


def pause_every(messages: int) -> int:
    """One in how many messages the handlers pause at: often enough for a small input too."""
    return min(max(messages // 2000, 8), 512)


def begin(processes: Processes, messages: int) -> None:
    """Start the group; it works beside what the caller does meanwhile."""
    for _ in range(MEMBERS):
        processes.start_member(
            GROUP, orderly=False, threads=THREADS, pause_every=pause_every(messages)
        )


def finish(
    processes: Processes,
    gauge: Gauge,
    topic: str,
    messages: int,
    refused: int,
    progress: Progress,
) -> None:
    """Wait until everything is handled and the `refused` are buried, then end the group."""
    tell = progress.step("the concurrent control", messages)

    def look() -> int:
        handled = processes.handled(GROUP)
        tell(min(handled, messages))
        return handled

    def is_done() -> bool:
        if sum(gauge.stored(dlq_topic_of(GROUP)).values()) < refused:
            return False
        return not any(gauge.lag(GROUP, one) for one in (topic, retry_topic_of(GROUP)))

    processes.wait(is_done, look)
    processes.stop_members()


def violations_wanted(verdict: Verdict) -> int:
    """How many violations there must be at least: one, if anything could overtake anything."""
    return 1 if verdict.unique > 1 else 0
