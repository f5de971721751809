"""The job's processes and the files they share with it: producers, followers, the broker.

Owns who runs and where each process reads and writes; refuses to know when and why. Invariant:
leaving the context stops every process. One thread uses it.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from cometmq.demo.flights import concurrent_group, consumer_process, producer_process
from cometmq.demo.flights.child_processes import Broker, Child, ChildError
from cometmq.demo.flights.observations import count

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Self

TOPIC, QUEUES = "flights", 16
LOCK_LIFE_MS, LOCK_VALID_S = 6000, 4.0
"""A killed member's queues move on when its locks have run out at the broker."""

BROKER_SETTINGS = (
    f"queueLockExpireMs={LOCK_LIFE_MS}",
    "flushConsumerOffsetInterval=1000",
    f"messageDelayLevel={concurrent_group.DELAY_LEVELS}",
    f"maxTransferCountOnMessageInMemory={consumer_process.PULL_BATCH}",
)

PRODUCERS = 2
STALL_S = 90.0
"""A wait ends with an error when nothing has moved for so long."""
_POLL_S = 0.1


class Processes:
    """All of them; a context manager."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._children: dict[str, Child] = {}
        self._journals: dict[str, list[Path]] = {}
        self.broker = Broker(directory, BROKER_SETTINGS)
        self.spools = [directory / f"producer-{index}.events" for index in range(PRODUCERS)]
        """What each producer sends."""

    def __enter__(self) -> Self:
        """Start the broker."""
        self.broker.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop all."""
        self.stop_members()
        self.broker.stop()

    def start_producers(self, per_second: float) -> None:
        """Begin to send; all producers together send at most so many messages a second."""
        for index, spooled in enumerate(self.spools):
            order = producer_process.Order(
                namesrv=self.broker.namesrv,
                topic=TOPIC,
                events=str(spooled),
                counter=str(spooled.with_suffix(".count")),
                summary=str(spooled.with_suffix(".json")),
                per_second=per_second / PRODUCERS,
            )
            self._start(f"producer-{index}", producer_process.__name__, order.as_argument())

    def start_member(self, group: str, *, orderly: bool, threads: int, pause_every: int) -> None:
        """Let one more process follow as a member of the group."""
        journals = self._journals.setdefault(group, [])
        name = f"{group}-{len(journals)}"
        journals.append(self._directory / f"{name}.seen")
        order = consumer_process.Order(
            namesrv=self.broker.namesrv,
            topic=TOPIC,
            group=group,
            orderly=orderly,
            journal=str(journals[-1]),
            threads=threads,
            pause_every=pause_every,
            lock_valid_s=LOCK_VALID_S,
        )
        self._start(name, consumer_process.__name__, order.as_argument())

    def kill_member(self, group: str) -> None:
        """kill -9 for the youngest member of the group."""
        name = max(name for name in self._children if name.startswith(group))
        self._children.pop(name).kill()

    def restart_broker(self) -> None:
        """kill -9 for the broker, and start it again on the same store and ports."""
        self.broker.kill()
        self.broker.start()

    def stop_members(self) -> None:
        """End all producers and followers, in order."""
        children, self._children = self._children, {}
        for child in children.values():
            child.ask_to_stop()
        for child in children.values():
            child.stop()

    def journals(self, group: str) -> list[Path]:
        """The observations of every process that was ever a member."""
        return list(self._journals.get(group, []))

    def handled(self, group: str) -> int:
        """Messages handled by the group so far, repeats included."""
        return sum(map(count, self._journals.get(group, [])))

    def sent(self) -> int:
        """Messages that the producers know to be stored."""
        return sum(
            producer_process.stored_so_far(path.with_suffix(".count")) for path in self.spools
        )

    def is_sending(self) -> bool:
        """Whether a producer is at work."""
        return any(child.is_running for name, child in self._children.items() if "producer" in name)

    def summaries(self) -> list[dict[str, int]]:
        """What each producer said at its end."""
        return [json.loads(path.with_suffix(".json").read_text()) for path in self.spools]

    def wait(self, is_done: Callable[[], bool], look: Callable[[], object]) -> None:
        """Wait until `is_done`, calling `look` often; what it returns must move now and then.

        Raises ChildError when a process fails or nothing has moved for `STALL_S` seconds.
        """
        seen, moved_s = look(), time.monotonic()
        while not is_done():
            time.sleep(_POLL_S)
            self._require_no_failure()
            now = look()
            if now != seen:
                seen, moved_s = now, time.monotonic()
            elif time.monotonic() - moved_s > STALL_S:
                raise ChildError(
                    f"nothing has moved for {STALL_S:.0f} s; the logs are in {self._directory}"
                )
        look()

    def _start(self, name: str, module: str, argument: str) -> None:
        log = self._directory / f"{name}.log"
        self._children[name] = Child(name, module, [argument], log)

    def _require_no_failure(self) -> None:
        self.broker.require_no_failure()
        for child in self._children.values():
            child.require_no_failure()
