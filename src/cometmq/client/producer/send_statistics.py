"""How a producer sends: requests stored and failed by broker, and how long they took.

Owns the counts; refuses to know who sends. The hot paths add to a `SendCounts` of the broker, or of
a thread's connection; rates are made of them when somebody asks.
Java: none.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SAMPLE_S = 10.0
_SAMPLES = 7
UNROUTED = ""
"""Stands for the broker of attempts that found none."""


class SendCounts:
    """What was counted for one broker, or over one connection. One thread at a time adds to it."""

    __slots__ = ("failed", "ok", "spent_s")

    def __init__(self) -> None:
        self.ok = 0
        self.failed = 0
        self.spent_s = 0.0
        """How long those that were stored took, together."""

    def add(self, other: SendCounts) -> None:
        """Take over what another one has counted."""
        self.ok += other.ok
        self.failed += other.failed
        self.spent_s += other.spent_s


class SendRates(NamedTuple):
    """The last minute of one broker, or what there is of it."""

    ok_per_second: float
    failed_per_second: float
    latency_ms: float


class _Sample(NamedTuple):
    at_s: float
    ok: int
    failed: int
    spent_s: float


class SendStatistics:
    """The counts of one started producer. Belongs to its loop, but for those of threads."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._counts: dict[str, SendCounts] = {}
        self._samples: dict[str, deque[_Sample]] = {}
        self.thread_counts: Callable[[], Iterator[tuple[str, SendCounts]]] = lambda: iter(())
        """The counts of threads that send themselves, by broker name."""

    def of(self, broker_name: str) -> SendCounts:
        """The counts of a broker: add to them."""
        found = self._counts.get(broker_name)
        if found is None:
            found = self._counts[broker_name] = SendCounts()
            self._begin(broker_name)
        return found

    def totals(self) -> dict[str, SendCounts]:
        """What was counted since the start, by broker name."""
        found: dict[str, SendCounts] = {}
        for name, counts in (*self._counts.items(), *self.thread_counts()):
            found.setdefault(name, SendCounts()).add(counts)
        return found

    def sample(self) -> None:
        """Take a sample; call it every `SAMPLE_S`."""
        now_s = self._now_s()
        for name, counts in self.totals().items():
            self._begin(name).append(_Sample(now_s, counts.ok, counts.failed, counts.spent_s))

    def rates(self) -> dict[str, SendRates]:
        """The rates by broker name."""
        now_s = self._now_s()
        return {
            name: _rates(self._begin(name)[0], counts, now_s)
            for name, counts in self.totals().items()
        }

    def _begin(self, name: str) -> deque[_Sample]:
        found = self._samples.get(name)
        if found is None:
            start = _Sample(self._now_s(), 0, 0, 0.0)
            found = self._samples[name] = deque([start], _SAMPLES)
        return found


def _rates(first: _Sample, counts: SendCounts, now_s: float) -> SendRates:
    seconds = max(now_s - first.at_s, 1.0)  # else one send just after the start is thousands
    ok = counts.ok - first.ok
    latency_ms = (counts.spent_s - first.spent_s) * 1000 / ok if ok else 0.0
    return SendRates(ok / seconds, (counts.failed - first.failed) / seconds, latency_ms)
