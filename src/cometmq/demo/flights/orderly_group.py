"""The first half of the job: everything is sent while an orderly group follows, and two die.

Owns this stage and what goes wrong in it on purpose; refuses to judge what came of it.
Invariant: it returns when the broker says that the group has committed everything, and then its
processes have ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.demo.flights import concurrent_group
from cometmq.demo.flights.fault_injection import BROKER_AT, CONSUMER_AT, Kill, Kills
from cometmq.demo.flights.job_processes import QUEUES, TOPIC

if TYPE_CHECKING:
    from cometmq.demo.flights.broker_queries import Gauge
    from cometmq.demo.flights.job_processes import Processes
    from cometmq.demo.flights.progress import Progress

GROUP = "flights-orderly"
MEMBERS, THREADS = 2, 8
SHORTEST_S = 10.0
"""Sending takes at least so long: a shorter run would have no middle for the kills."""


def send_and_follow(
    processes: Processes, gauge: Gauge, messages: int, progress: Progress
) -> list[tuple[float, str]]:
    """Do it all; returns when (monotonic clock, seconds) which process was killed."""

    def replace() -> None:
        processes.kill_member(GROUP)
        _start_member(processes, messages)

    gauge.create_topic(TOPIC, QUEUES)
    for _ in range(MEMBERS):
        _start_member(processes, messages)
    kills = Kills(
        [
            Kill("a consumer was killed, another joined", CONSUMER_AT, replace),
            Kill("the broker was killed and started again", BROKER_AT, processes.restart_broker),
        ]
    )
    processes.start_producers(messages / SHORTEST_S)
    tell_sent = progress.step("sending", messages)
    tell_followed = progress.step("following every aircraft", messages)

    def look() -> tuple[int, int]:
        sent, followed = processes.sent(), processes.handled(GROUP)
        kills.look(sent, messages)
        tell_sent(sent)
        tell_followed(min(followed, messages))
        return sent, followed

    processes.wait(lambda: not processes.is_sending(), look)
    processes.wait(lambda: gauge.lag(GROUP, TOPIC) == 0, look)
    kills.require_done()
    processes.stop_members()
    return kills.moments


def _start_member(processes: Processes, messages: int) -> None:
    pause_every = concurrent_group.pause_every(messages)
    processes.start_member(GROUP, orderly=True, threads=THREADS, pause_every=pause_every)
