"""What measures: a counter, a histogram, and a family of such things by the values of labels.

Owns the numbers; refuses to know names, units and clocks. Everything here belongs to one event
loop and takes no lock. Invariant: what a counter or a histogram has counted never falls.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

CHILDREN_MAX = 100_000
"""Children of one family; names beyond them share one child."""

T = TypeVar("T")


class Counter:
    """A number that only grows. A hot line adds to `value` itself."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int = 1) -> None:
        """Count `amount`, which is not negative."""
        assert amount >= 0, f"a counter cannot fall by {-amount}"
        self.value += amount


class HistogramCounts(NamedTuple):
    """What a histogram holds: how many values fell below each bound, and beyond the last."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


class Histogram:
    """Counts values by size: `counts[i]` has those from `bounds[i - 1]` up to below `bounds[i]`."""

    __slots__ = ("bounds", "counts", "longest", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        assert list(bounds) == sorted(set(bounds)), "the bounds of a histogram must ascend"
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.longest = 0.0
        """The largest value so far."""

    def observe(self, value: float, count: int = 1) -> None:
        """Count a value that was seen `count` times."""
        self.counts[bisect_right(self.bounds, value)] += count
        self.sum += value * count
        if value > self.longest:
            self.longest = value

    def distribution(self) -> HistogramCounts:
        """A copy of what was counted so far."""
        return HistogramCounts(self.bounds, tuple(self.counts), self.sum)


class MetricFamily(Generic[T]):
    """Instruments of one kind, one for each combination of label values."""

    __slots__ = ("_make", "children", "children_max", "labels", "overflow")

    def __init__(
        self, labels: tuple[str, ...], make: Callable[[], T], children_max: int = CHILDREN_MAX
    ) -> None:
        self.labels = labels
        self.children: dict[tuple[str, ...], T] = {}
        self.children_max = children_max
        self._make = make
        self.overflow = make()
        """Takes what is counted for names beyond `children_max`."""

    def child(self, *values: str) -> T:
        """The instrument of these label values, created when it is asked for first."""
        found = self.children.get(values)
        if found is None:
            assert len(values) == len(self.labels), f"{values} are no values of {self.labels}"
            if len(self.children) >= self.children_max:
                return self.overflow
            found = self.children[values] = self._make()
        return found

    def remove(self, label: str, value: str) -> list[tuple[tuple[str, ...], T]]:
        """Remove the children with this value of a label, and return them with their values."""
        if label not in self.labels:
            return []
        at = self.labels.index(label)
        return [(key, self.children.pop(key)) for key in list(self.children) if key[at] == value]
