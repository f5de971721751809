"""Counters of what passes through the broker, and the rates that admin tools show.

Owns totals per topic and group, and rates over the last minutes from samples taken every 10 s.
Refuses to know requests. Counting is one addition to a slot; nothing here is on disk.
Java: BrokerStatsManager, StoreStatsService.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SAMPLE_S = 10
"""Time between samples, seconds."""

KEYS_MAX = 100_000
"""Counters kept; further names are not counted."""

_SAMPLES = 61  # ten minutes
_DAY_MS = 86_400_000


class Counter:
    """How many, and how many bytes."""

    __slots__ = ("bytes", "count", "samples")

    def __init__(self) -> None:
        self.count = self.bytes = 0
        self.samples: deque[int] = deque([0], maxlen=_SAMPLES)

    def add(self, count: int, size: int) -> None:
        """Count."""
        self.count += count
        self.bytes += size

    def rate(self, seconds: int = 60) -> float:
        """Messages a second over about the last `seconds`, up to the newest sample."""
        back = min(len(self.samples) - 1, max(1, seconds // SAMPLE_S))
        if back < 1:
            return 0.0
        return (self.samples[-1] - self.samples[-1 - back]) / (back * SAMPLE_S)


class Stats:
    """All counters. Belongs to the broker's loop."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.boot_ms = now_ms()
        self._other = Counter()
        self._puts: dict[str, Counter] = {}
        self._gets: dict[tuple[str, str], Counter] = {}
        self._sent_back: dict[tuple[str, str], Counter] = {}
        self._buried: dict[tuple[str, str], Counter] = {}
        self.puts, self.gets = Counter(), Counter()
        """Totals, as of the last `refresh`."""
        self._day = now_ms() // _DAY_MS
        self.puts_at_midnight, self.gets_at_midnight = [0, 0], [0, 0]
        """Totals at the midnight before yesterday's and today's, as Java shows them."""

    def put(self, topic: str, count: int, size: int) -> None:
        """Count messages stored by clients."""
        self.counter_of_puts(topic).add(count, size)

    def counter_of_puts(self, topic: str) -> Counter:
        """The counter of messages stored by clients in the topic, for who counts by itself."""
        return _of(self._puts, topic, self._other)

    def got(self, group: str, topic: str, count: int, size: int) -> None:
        """Count messages pulled."""
        _of(self._gets, (topic, group), self._other).add(count, size)

    def sent_back(self, group: str, topic: str) -> None:
        """Count a message sent back."""
        _of(self._sent_back, (topic, group), self._other).add(1, 0)

    def buried(self, group: str, topic: str) -> None:
        """Count a dead letter."""
        _of(self._buried, (topic, group), self._other).add(1, 0)

    def topic_rate(self, topic: str) -> float:
        """Messages a second sent to the topic, over the last minute."""
        counter = self._puts.get(topic)
        return counter.rate() if counter else 0.0

    def group_rate(self, group: str, topic: str) -> float:
        """Messages a second pulled by the group from the topic, over the last minute."""
        counter = self._gets.get((topic, group))
        return counter.rate() if counter else 0.0

    def sample(self) -> None:
        """Remember the counts; called every `SAMPLE_S` seconds."""
        for table in self._tables():
            for counter in table.values():
                counter.samples.append(counter.count)
        self.refresh()
        for total in (self.puts, self.gets):
            total.samples.append(total.count)
        day = self._now_ms() // _DAY_MS
        if day != self._day:
            self._day = day
            self.puts_at_midnight = [self.puts_at_midnight[1], self.puts.count]
            self.gets_at_midnight = [self.gets_at_midnight[1], self.gets.count]

    def refresh(self) -> None:
        """Bring the totals up to date."""
        for total, table in ((self.puts, self._puts), (self.gets, self._gets)):
            total.count = sum(counter.count for counter in table.values())
            total.bytes = sum(counter.bytes for counter in table.values())

    def _tables(self) -> Iterable[dict[Any, Counter]]:
        return self._puts, self._gets, self._sent_back, self._buried


_K = TypeVar("_K")


def _of(table: dict[_K, Counter], key: _K, other: Counter) -> Counter:
    counter = table.get(key)
    if counter is None:
        if len(table) >= KEYS_MAX:
            return other
        counter = table[key] = Counter()
    return counter
