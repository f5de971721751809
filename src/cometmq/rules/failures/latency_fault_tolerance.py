"""Avoids brokers for a while that answered late or not at all.

Has RocketMQ's two tables of latencies and times to avoid, and chooses a queue even when all brokers
are avoided. Time is an argument. Invariant: there is always a choice; only the order changes.
Java: MQFaultStrategy, LatencyFaultToleranceImpl
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cometmq.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cometmq.model.queue import MessageQueue


@dataclass(frozen=True, slots=True)
class LatencyTable:
    """From the latency of a send to the time its broker is avoided, all in ms.

    A send that took `latency_ms[n]` or longer has its broker avoided for `avoid_ms[n]`; latencies
    ascend. Raises SettingsError for what is no such table.
    """

    latency_ms: tuple[int, ...]
    avoid_ms: tuple[int, ...]
    isolation_ms: int
    """How long a broker is avoided after an error."""

    def __post_init__(self) -> None:
        """Check the table."""
        numbers = (*self.latency_ms, *self.avoid_ms, self.isolation_ms)
        if (
            len(self.latency_ms) != len(self.avoid_ms)
            or list(self.latency_ms) != sorted(set(self.latency_ms))
            or not all(type(each) is int and each >= 0 for each in numbers)
        ):
            raise SettingsError(
                f"{self} is no table of latencies: latency_ms must ascend, avoid_ms must have as "
                "many numbers, and all must be whole and not negative"
            )

    def avoid_ms_after(self, latency_ms: float) -> int:
        """How long a broker with this latency is avoided."""
        place = bisect_right(self.latency_ms, latency_ms)
        return self.avoid_ms[place - 1] if place else 0


TABLES = {
    "classic": LatencyTable(
        (50, 100, 550, 1_000, 2_000, 3_000, 15_000),
        (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000),
        600_000,
    ),
    "current": LatencyTable(
        (50, 100, 550, 1_800, 3_000, 5_000, 15_000),
        (0, 0, 2_000, 5_000, 6_000, 10_000, 30_000),
        10_000,
    ),
}
"""RocketMQ's tables of 4.x and of 5.x."""


class _Health:
    """The health of one broker."""

    __slots__ = ("avoid_until_ms", "is_reachable", "latency_ms")

    def __init__(self) -> None:
        self.latency_ms = 0.0
        self.avoid_until_ms = 0.0
        self.is_reachable = True


class LatencyFaultTolerance:
    """The health of one producer's brokers. Times are given in ms of one clock."""

    def __init__(self, table: LatencyTable, *, detects: bool = False) -> None:
        """With `detects` an unreachable broker is avoided until `record_reachable`."""
        self._table = table
        self._detects = detects
        self._brokers: dict[str, _Health] = {}

    def record_latency(self, broker_name: str, latency_ms: float, now_ms: float) -> None:
        """Note the latency of a send."""
        assert latency_ms >= 0, "a latency is not negative: one clock"
        health = self._of(broker_name)
        health.latency_ms = latency_ms
        health.avoid_until_ms = now_ms + self._table.avoid_ms_after(latency_ms)
        health.is_reachable = True

    def record_failure(self, broker_name: str, now_ms: float, *, was_reached: bool) -> None:
        """Note an error: `was_reached` when the broker answered with it."""
        health = self._of(broker_name)
        health.latency_ms = self._table.isolation_ms
        health.avoid_until_ms = now_ms + self._table.isolation_ms
        health.is_reachable = was_reached or not self._detects

    def record_reachable(self, broker_name: str) -> None:
        """Note that a broker answers again: it is no longer avoided."""
        health = self._of(broker_name)
        health.is_reachable = True
        health.avoid_until_ms = 0.0

    def avoidance(self, broker_name: str) -> tuple[float, bool]:
        """Until when a broker is avoided, ms, and whether it is reachable."""
        health = self._brokers.get(broker_name)
        return (0.0, True) if health is None else (health.avoid_until_ms, health.is_reachable)

    def unreachable_brokers(self) -> list[str]:
        """The brokers to probe."""
        return [name for name, health in self._brokers.items() if not health.is_reachable]

    def choose(
        self,
        queues: Sequence[MessageQueue],
        turn: int,
        avoid: str | None,
        now_ms: float,
    ) -> MessageQueue:
        """The next queue on a healthy broker, round robin; else the best there is.

        `avoid` is the broker that failed last. If no broker is healthy, one of the better half by
        latency is chosen, and the next of its queues.
        """
        assert queues, "there is a queue to choose"
        names = {queue.broker_name for queue in queues}
        fine = {name for name in names if self._is_fine(name, now_ms)}
        wanted = (fine - {avoid}) or fine
        if not wanted:
            reachable = {name for name in names if self._of(name).is_reachable}
            better = self._better_half(reachable or names)
            wanted = {better[turn % len(better)]}
        fit = [queue for queue in queues if queue.broker_name in wanted]
        return fit[turn % len(fit)]  # Java steps on to the next that fits: it has all of the rest

    def _is_fine(self, name: str, now_ms: float) -> bool:
        health = self._brokers.get(name)
        return health is None or (health.is_reachable and now_ms >= health.avoid_until_ms)

    def _better_half(self, names: Iterable[str]) -> list[str]:
        ranked = sorted(
            names, key=lambda name: (self._of(name).latency_ms, self._of(name).avoid_until_ms, name)
        )
        return ranked[: max(1, len(ranked) // 2)]

    def _of(self, name: str) -> _Health:
        health = self._brokers.get(name)
        if health is None:
            health = self._brokers[name] = _Health()
        return health
