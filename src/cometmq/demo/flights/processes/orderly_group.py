"""The first stage: an orderly group consumes while everything is sent; two processes are killed.

Runs the stage and its planned kills; does not judge the outcome. Invariant: it returns once the
broker reports that the group has committed everything and the group's processes have ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.demo.flights.processes import concurrent_group
from cometmq.demo.flights.processes.fault_injection import (
    BROKER_AT,
    CONSUMER_AT,
    KillSchedule,
    PlannedKill,
)
from cometmq.demo.flights.processes.job_processes import QUEUES, TOPIC

if TYPE_CHECKING:
    from cometmq.demo.flights.checks.broker_queries import BrokerQueries
    from cometmq.demo.flights.processes.job_processes import JobProcesses
    from cometmq.demo.flights.progress import Progress

GROUP = "flights-orderly"
MEMBERS, THREADS = 2, 8
SHORTEST_S = 10.0
"""Sending takes at least so long, so that the kills happen while messages are being sent."""


def send_and_follow(
    processes: JobProcesses, queries: BrokerQueries, messages: int, progress: Progress
) -> list[tuple[float, str]]:
    """Run the stage; return which process was killed when (monotonic clock, seconds)."""

    def replace() -> None:
        processes.kill_member(GROUP)
        _start_member(processes, messages)

    queries.create_topic(TOPIC, QUEUES)
    for _ in range(MEMBERS):
        _start_member(processes, messages)
    kills = KillSchedule(
        [
            PlannedKill("a consumer was killed, another joined", CONSUMER_AT, replace),
            PlannedKill(
                "the broker was killed and started again", BROKER_AT, processes.restart_broker
            ),
        ]
    )
    processes.start_producers(messages / SHORTEST_S)
    tell_sent = progress.step("sending", messages)
    tell_followed = progress.step("following every aircraft", messages)

    def look() -> tuple[int, int]:
        sent, orderly = processes.sent(), processes.handled(GROUP)
        kills.look(sent, messages)
        tell_sent(sent)
        tell_followed(min(orderly, messages))
        return sent, orderly

    processes.wait(lambda: not processes.is_sending(), look)
    processes.wait(lambda: queries.lag(GROUP, TOPIC) == 0, look)
    kills.require_done()
    processes.stop_members()
    return kills.moments


def _start_member(processes: JobProcesses, messages: int) -> None:
    pause_every = concurrent_group.pause_every(messages)
    processes.start_member(GROUP, orderly=True, threads=THREADS, pause_every=pause_every)
