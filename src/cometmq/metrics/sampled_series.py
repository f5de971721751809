"""Counts and times over the last minute and the last hour, in RocketMQ's windows.

Owns the sums; refuses to know what is counted and what time it is (an argument). A series is
sampled every ten seconds and every ten minutes; a window reaches over the last six intervals.
Java: StatsItem, StatsItemSet
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

MINUTE_SAMPLE_MS, HOUR_SAMPLE_MS = 10_000, 600_000
_SAMPLES = 7


class WindowRate(NamedTuple):
    """What a window saw: `total` in all, so much a second, so much each time."""

    total: float
    per_second: float
    mean: float


_NOTHING = WindowRate(0.0, 0.0, 0.0)


class SampledSeries:
    """One thing that is counted. `value` and `times` only grow."""

    __slots__ = ("_hour", "_minute", "times", "value")

    def __init__(self, monotonic_ms: int) -> None:
        self.value = 0.0
        self.times = 0
        self._minute = deque([(monotonic_ms, 0.0, 0)], _SAMPLES)
        self._hour = deque([(monotonic_ms, 0.0, 0)], _SAMPLES)

    def add(self, value: float, times: int = 1) -> None:
        """Count something."""
        self.value += value
        self.times += times

    def sample(self, monotonic_ms: int) -> None:
        """Take a sample of each window that is due for one."""
        for window, every_ms in ((self._minute, MINUTE_SAMPLE_MS), (self._hour, HOUR_SAMPLE_MS)):
            if monotonic_ms - window[-1][0] >= every_ms:
                window.append((monotonic_ms, self.value, self.times))

    def minute(self) -> WindowRate:
        """The last minute, as far as it was sampled."""
        return _over(self._minute)

    def hour(self) -> WindowRate:
        """The last hour, as far as it was sampled."""
        return _over(self._hour)


def _over(samples: deque[tuple[int, float, int]]) -> WindowRate:
    (first_ms, first, before), (last_ms, last, after) = samples[0], samples[-1]
    if last_ms <= first_ms:
        return _NOTHING
    total, times = last - first, after - before
    return WindowRate(total, total * 1000 / (last_ms - first_ms), total / times if times else 0.0)
