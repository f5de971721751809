"""The registry of one role: every metric with its name, unit and labels, and how to read it.

Owns the list; refuses to know what is measured and who asks. Reading costs, counting does not: an
instrument is an object of its own, and the registry looks at it when somebody reads it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from cometmq.metrics.instruments import Counter, HistogramCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cometmq.metrics.instruments import Histogram, MetricFamily

    Values = Iterable[tuple[tuple[str, ...], float | HistogramCounts]]

T = TypeVar("T")
_is_name = re.compile(r"[a-z][a-z0-9_]*").fullmatch


class MetricKind(StrEnum):
    """What may be done with a metric: the rate of a counter, the value of a gauge."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """The description of a metric.

    `unit` is one of UCUM as OpenTelemetry uses it: `By`, `s`, `{message}`. A counter's name ends in
    `_total`. Raises ValueError for a name that exporters cannot show.
    """

    name: str
    kind: MetricKind
    unit: str
    description: str
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the name."""
        if not _is_name(self.name):
            raise ValueError(f"{self.name!r} is no name of a metric: use a-z, 0-9 and _")
        if (self.kind is MetricKind.COUNTER) != self.name.endswith("_total"):
            raise ValueError(f"{self.name}: names of counters, and only they, end in _total")


class Sample(NamedTuple):
    """One value of a metric, with the values of its labels in their order."""

    metric: Metric
    labels: tuple[str, ...]
    value: float | HistogramCounts


class MetricsRegistry:
    """The metrics of one role. Belongs to its event loop."""

    def __init__(self) -> None:
        self._sources: dict[str, tuple[Metric, Callable[[], Values]]] = {}

    @property
    def metrics(self) -> list[Metric]:
        """Everything that is registered, by name."""
        return [metric for _, (metric, _) in sorted(self._sources.items())]

    def register(self, metric: Metric, read: Callable[[], Values]) -> None:
        """Have `read` asked for the label values and values of the metric.

        Raises ValueError when the name is taken.
        """
        if metric.name in self._sources:
            raise ValueError(f"the metric {metric.name} is registered already")
        self._sources[metric.name] = (metric, read)

    def counter(self, metric: Metric) -> Counter:
        """Create the counter of a metric without labels."""
        counter = Counter()
        self.callback(metric, lambda: counter.value)
        return counter

    def callback(self, metric: Metric, read: Callable[[], float]) -> None:
        """Register a metric without labels, whose value is what `read` returns when asked."""
        self.register(metric, lambda: [((), read())])

    def histogram(self, metric: Metric, histogram: Histogram) -> None:
        """Register a histogram."""
        self.register(metric, lambda: [((), histogram.distribution())])

    def family(self, metric: Metric, family: MetricFamily[T], read: Callable[[T], float]) -> None:
        """Register a family: `read` gives the value of each of its children."""
        assert metric.labels == family.labels, f"{metric.name} has other labels than its family"
        self.register(
            metric, lambda: [(key, read(child)) for key, child in family.children.items()]
        )

    def value(self, metric: Metric, *labels: str) -> float:
        """The value of one series; 0 when nothing was counted under these labels."""
        for key, value in self._sources[metric.name][1]():
            if key == labels:
                assert not isinstance(value, HistogramCounts), f"{metric.name} is a histogram"
                return value
        return 0

    def collect(self) -> Iterator[Sample]:
        """Read everything, sorted by name."""
        for _, (metric, read) in sorted(self._sources.items()):
            for labels, value in read():
                yield Sample(metric, labels, value)
