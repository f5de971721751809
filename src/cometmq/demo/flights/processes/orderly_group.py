"""The first stage: a group follows every aircraft while all is sent; two processes are killed.

Its members handle keys in parallel, each in order, and park the aircraft of a message that they
refuse; an operator repairs it and releases the aircraft meanwhile. Runs the stage and its planned
kills; does not judge the outcome. Invariant: it returns once the broker reports that the group has
committed everything and nothing is parked, and the group's processes have ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cometmq.demo.flights.processes import concurrent_group
from cometmq.demo.flights.processes.aircraft_repairs import AircraftRepairs
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


class FollowedStage(NamedTuple):
    """What happened in the stage."""

    moments: list[tuple[float, str]]
    """Which process was killed when (monotonic clock, seconds)."""
    repairs: AircraftRepairs


def send_and_follow(
    processes: JobProcesses, queries: BrokerQueries, messages: int, bad: int, progress: Progress
) -> FollowedStage:
    """Run the stage, in which `bad` messages are refused."""

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
    tell_repaired = progress.step("repairing parked messages", bad)
    repairs = AircraftRepairs(queries.admin, GROUP)

    def look() -> tuple[int, int]:
        sent, orderly = processes.sent(), processes.handled(GROUP)
        kills.look(sent, messages)
        tell_sent(sent)
        tell_followed(min(orderly, messages))
        tell_repaired(len(repairs.repaired))
        return sent, orderly

    def is_done() -> bool:
        return queries.lag(GROUP, TOPIC) == 0 and not queries.admin.parked(GROUP)

    repairs.start()
    try:
        processes.wait(lambda: not processes.is_sending(), look)
        processes.wait(is_done, look)
    finally:
        repairs.stop()
    look()
    kills.require_done()
    processes.stop_members()
    return FollowedStage(kills.moments, repairs)


def _start_member(processes: JobProcesses, messages: int) -> None:
    pause_every = concurrent_group.pause_every(messages)
    processes.start_member(GROUP, parks=True, threads=THREADS, pause_every=pause_every)
