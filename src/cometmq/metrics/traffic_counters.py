"""Counters of traffic, and what they counted within the last minute, hour and day.

Owns the samples (a minute in steps of 10 s, an hour of 10 min, a day of 1 h) and the rates made of
them. Refuses to know what passes, and the clock: times are arguments. Counting is one addition to a
slot. Java: StatsItem, StatsItemSet.
"""

from __future__ import annotations

from array import array
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SAMPLE_S = 10
"""Time between samples, seconds."""

_RATE_SAMPLES = 61  # ten minutes
_SLICE = 500
"""Counters sampled before the caller may let others run."""
_WINDOWS = ((1, 7), (60, 7), (360, 25))
"""Minute, hour and day: how many samples of 10 s make one of the window's, and how many it has."""
_FIELDS = 3
_KEPT = tuple(length * _FIELDS for _, length in _WINDOWS)


class WindowCounts(NamedTuple):
    """What a counter counted within one window; `per_call` is what one call counted."""

    sum: int
    per_second: float
    per_call: float


class TrafficWindows(NamedTuple):
    """A counter's last minute, hour and day, each as far as it is known."""

    minute: WindowCounts
    hour: WindowCounts
    day: WindowCounts


class TrafficCounter:
    """How many messages, how many bytes, and in how many calls."""

    __slots__ = ("bytes", "count", "extra", "samples")

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        self.extra = 0
        """What `count` has above one a call: who counts one at a time leaves it alone."""
        self.samples = (array("q"), array("q"), array("q"))
        """Count, bytes and calls at each sample of the three windows, beginning with zeros."""

    @property
    def calls(self) -> int:
        """In how many calls the messages came."""
        return self.count - self.extra

    def add(self, count: int, size: int) -> None:
        """Count one call."""
        self.count += count
        self.bytes += size
        self.extra += count - 1

    def sample(self, window: int) -> None:
        """Remember the counts in a window."""
        values = self.samples[window]
        if not values:
            values.extend((0, 0, 0))
        values.extend((self.count, self.bytes, self.calls))
        if len(values) > _KEPT[window]:
            del values[:_FIELDS]


class TrafficTotal(TrafficCounter):
    """A sum over counters, those that are gone included, with its rates."""

    __slots__ = ("gone_bytes", "gone_count", "rates")

    def __init__(self) -> None:
        super().__init__()
        self.gone_count = 0
        self.gone_bytes = 0
        self.rates: deque[int] = deque([0], maxlen=_RATE_SAMPLES)

    def refresh(self, counters: Iterable[TrafficCounter]) -> None:
        """Become the sum of the counters and of those that are gone."""
        kept = list(counters)
        count = self.gone_count + sum([each.count for each in kept])
        assert count >= self.count, "a total cannot fall"
        self.count = self.extra = count
        self.bytes = self.gone_bytes + sum([each.bytes for each in kept])

    def keep_counts_of(self, counter: TrafficCounter) -> None:
        """Go on counting what a counter had that is removed."""
        self.gone_count += counter.count
        self.gone_bytes += counter.bytes

    def rate(self, seconds: int = 60) -> float:
        """Messages a second over about the last `seconds`, up to the newest sample."""
        back = min(len(self.rates) - 1, max(1, seconds // SAMPLE_S))
        if back < 1:
            return 0.0
        return (self.rates[-1] - self.rates[-1 - back]) / (back * SAMPLE_S)


class WindowSampler:
    """Takes the samples of many counters, and reads windows out of them."""

    def __init__(self) -> None:
        self._times: tuple[deque[int], ...] = tuple(deque(maxlen=n) for _, n in _WINDOWS)
        self._taken = 0

    def sample(self, counters: list[TrafficCounter], monotonic_ms: int) -> Iterator[None]:
        """Sample the windows that are due; yields now and then so that others may run."""
        due = [window for window, (every, _) in enumerate(_WINDOWS) if self._taken % every == 0]
        self._taken += 1
        for index, counter in enumerate(counters, 1):
            for window in due:
                counter.sample(window)
            if index % _SLICE == 0:
                yield
        for window in due:
            times = self._times[window]
            if not times:
                times.append(monotonic_ms - _WINDOWS[window][0] * SAMPLE_S * 1000)
            times.append(monotonic_ms)

    def figures(self, counter: TrafficCounter, *, in_bytes: bool = False) -> TrafficWindows:
        """What a counter counted within the last minute, hour and day."""
        minute, hour, day = (
            self._window(counter, each, in_bytes=in_bytes) for each in range(len(_WINDOWS))
        )
        return TrafficWindows(minute, hour, day)

    def rate(self, counter: TrafficCounter | None) -> float:
        """Messages a second over the last minute; 0 for no counter."""
        return self._window(counter, 0, in_bytes=False).per_second if counter else 0.0

    def _window(self, counter: TrafficCounter, window: int, *, in_bytes: bool) -> WindowCounts:
        values = counter.samples[window]
        times = self._times[window]
        taken = min(len(values) // _FIELDS, len(times))
        if taken < 2:
            return WindowCounts(0, 0.0, 0.0)
        first = values[-taken * _FIELDS :]
        last = values[-_FIELDS:]
        counted = last[in_bytes] - first[in_bytes]
        calls = last[2] - first[2]
        spent_ms = times[-1] - times[-taken]
        return WindowCounts(
            counted,
            counted * 1000 / spent_ms if spent_ms > 0 else 0.0,
            counted / calls if calls > 0 else 0.0,
        )
