"""The control: a concurrent group, which keeps no order, consumes the same input.

The audit finds no violation in the orderly group. It must find some here; otherwise the audit
itself is broken. The handler refuses the same messages; here they pass through the group's retry
topic and the broker's delay levels (set short for the demo) into the group's dead-letter topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.model.topic import dlq_topic_of, retry_topic_of

if TYPE_CHECKING:
    from cometmq.demo.flights.checks.broker_queries import BrokerQueries
    from cometmq.demo.flights.checks.order_audit import AuditResult
    from cometmq.demo.flights.processes.job_processes import JobProcesses
    from cometmq.demo.flights.progress import Progress

GROUP = "flights-concurrent"
MEMBERS, THREADS = 2, 8


def pause_every(messages: int) -> int:
    """The handlers pause at one in this many messages: often enough for a small input too."""
    return min(max(messages // 2000, 8), 512)


def begin(processes: JobProcesses, messages: int) -> None:
    """Start the members of the group; they consume while the caller goes on."""
    for _ in range(MEMBERS):
        processes.start_member(
            GROUP, parks=False, threads=THREADS, pause_every=pause_every(messages)
        )


def finish(
    processes: JobProcesses,
    queries: BrokerQueries,
    topic: str,
    messages: int,
    refused: int,
    progress: Progress,
) -> None:
    """Wait until all messages are handled and `refused` are dead letters, then stop the group."""
    report_progress = progress.step("the concurrent control", messages)

    def look() -> int:
        handled = processes.handled(GROUP)
        report_progress(min(handled, messages))
        return handled

    def is_done() -> bool:
        if sum(queries.stored(dlq_topic_of(GROUP)).values()) < refused:
            return False
        return not any(queries.lag(GROUP, one) for one in (topic, retry_topic_of(GROUP)))

    processes.wait(is_done, look)
    processes.stop_members()


def violations_min(result: AuditResult) -> int:
    """The fewest violations the audit must find: one, unless there is only one message."""
    return 1 if result.unique > 1 else 0
