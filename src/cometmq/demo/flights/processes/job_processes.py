"""The job's processes (producers, consumers, the broker) and the files they share with it.

Owns which processes run and where they read and write; does not know when and why. Invariant:
leaving the context stops every process. One thread uses it.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from cometmq.demo.flights.checks.observations import count
from cometmq.demo.flights.processes import consumer_process, producer_process
from cometmq.demo.flights.processes.child_processes import BrokerProcess, ChildFailed, ChildProcess

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Self

TOPIC, QUEUES = "flights", 16
LOCK_LIFE_MS, LOCK_VALID_S = 6000, 4.0
"""A killed member's queues move to others when its locks have expired at the broker."""

DELAY_LEVELS = "1s 2s 3s"
"""The broker's delay levels; attempts of a concurrent group after the first wait for level 1."""

BROKER_SETTINGS = (
    f"queueLockExpireMs={LOCK_LIFE_MS}",
    "flushConsumerOffsetInterval=1000",
    f"messageDelayLevel={DELAY_LEVELS}",
    f"maxTransferCountOnMessageInMemory={consumer_process.PULL_BATCH}",
)

PRODUCERS = 2
STALL_S = 90.0
"""A wait fails when there was no progress for so long."""
_POLL_S = 0.1


class JobProcesses:
    """All processes of the job, as a context manager."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._children: dict[str, ChildProcess] = {}
        self._observation_paths: dict[str, list[Path]] = {}
        self.broker = BrokerProcess(directory, BROKER_SETTINGS)
        self.event_paths = [directory / f"producer-{index}.events" for index in range(PRODUCERS)]
        """The files of events, one for each producer."""

    def __enter__(self) -> Self:
        """Start the broker."""
        self.broker.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop all."""
        self.stop_members()
        self.broker.stop()

    def start_producers(self, per_second: float) -> None:
        """Start the producers; together they send at most `per_second` messages a second."""
        for index, path in enumerate(self.event_paths):
            arguments = producer_process.ProducerArguments(
                namesrv=self.broker.namesrv,
                topic=TOPIC,
                events=str(path),
                counter=str(path.with_suffix(".count")),
                summary=str(path.with_suffix(".json")),
                per_second=per_second / PRODUCERS,
            )
            self._start(f"producer-{index}", producer_process.__name__, arguments.as_text())

    def start_member(self, group: str, *, parks: bool, threads: int, pause_every: int) -> None:
        """Start one more consumer process as a member of the group."""
        observation_paths = self._observation_paths.setdefault(group, [])
        name = f"{group}-{len(observation_paths)}"
        observation_paths.append(self._directory / f"{name}.seen")
        arguments = consumer_process.ConsumerArguments(
            namesrv=self.broker.namesrv,
            topic=TOPIC,
            group=group,
            parks=parks,
            state_dir=str(self._directory / "offsets"),
            journal=str(observation_paths[-1]),
            threads=threads,
            pause_every=pause_every,
            lock_valid_s=LOCK_VALID_S,
        )
        self._start(name, consumer_process.__name__, arguments.as_text())

    def kill_member(self, group: str) -> None:
        """kill -9 the newest member of the group."""
        name = max(name for name in self._children if name.startswith(group))
        self._children.pop(name).kill()

    def restart_broker(self) -> None:
        """kill -9 the broker, and restart it on the same store and ports."""
        self.broker.kill()
        self.broker.start()

    def stop_members(self) -> None:
        """Stop all producers and consumers."""
        children, self._children = self._children, {}
        for child in children.values():
            child.send_sigterm()
        for child in children.values():
            child.stop()

    def observation_paths(self, group: str) -> list[Path]:
        """The observation files of every process that was ever a member of the group."""
        return list(self._observation_paths.get(group, []))

    def handled(self, group: str) -> int:
        """Messages handled by the group so far, duplicates included."""
        return sum(map(count, self._observation_paths.get(group, [])))

    def sent(self) -> int:
        """Messages that the producers know to be stored."""
        return sum(
            producer_process.stored_so_far(path.with_suffix(".count")) for path in self.event_paths
        )

    def is_sending(self) -> bool:
        """Whether a producer is still running."""
        return any(child.is_running for name, child in self._children.items() if "producer" in name)

    def summaries(self) -> list[dict[str, int]]:
        """The summary that each producer wrote at its end."""
        return [json.loads(path.with_suffix(".json").read_text()) for path in self.event_paths]

    def wait(self, is_done: Callable[[], bool], look: Callable[[], object]) -> None:
        """Wait until `is_done`, polling `look`, whose result must change from time to time.

        Raises ChildFailed when a process fails or nothing has changed for `STALL_S` seconds.
        """
        seen, moved_s = look(), time.monotonic()
        while not is_done():
            time.sleep(_POLL_S)
            self._require_no_failure()
            now = look()
            if now != seen:
                seen, moved_s = now, time.monotonic()
            elif time.monotonic() - moved_s > STALL_S:
                raise ChildFailed(
                    f"no progress for {STALL_S:.0f} s; see the logs in {self._directory}"
                )
        look()

    def _start(self, name: str, module: str, argument: str) -> None:
        log = self._directory / f"{name}.log"
        self._children[name] = ChildProcess(name, module, [argument], log)

    def _require_no_failure(self) -> None:
        self.broker.require_no_failure()
        for child in self._children.values():
            child.require_no_failure()
