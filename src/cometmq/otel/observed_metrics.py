"""Metrics of a registry as OpenTelemetry's meters see them: read when an exporter asks.

Owns the translation: counters and gauges are observed, a histogram is the counters of its number
and its sum (OpenTelemetry observes no histograms). Refuses to count.
"""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING

from opentelemetry.metrics import CallbackOptions, Observation

from cometmq.metrics.instruments import HistogramCounts
from cometmq.metrics.registry import Metric, MetricKind, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from opentelemetry.metrics import Meter

_READ_ONCE_S = 1.0
"""What was read for one metric serves the others for so long."""


def observe_metrics(
    meter: Meter,
    metrics: Iterable[Metric],
    read: Callable[[], Iterable[Sample]],
    labels: Mapping[str, str] | None = None,
) -> None:
    """Have a meter observe metrics under their own names, each series with these `labels` too.

    `read` returns the samples; it is called in the thread of the exporter, once for all metrics of
    one export. For clients: `observe_metrics(meter, watched.metrics, watched.samples)`, where
    `watched` is a `ClientMetrics`.
    """
    reading = _SharedReading(read)
    shared = dict(labels or {})
    for metric in metrics:
        if metric.kind is MetricKind.HISTOGRAM:
            for ending, unit in (("count", "{value}"), ("sum", metric.unit)):
                meter.create_observable_counter(
                    f"{metric.name}_{ending}",
                    [_observer(reading, metric, shared, ending)],
                    unit,
                    metric.description,
                )
            continue
        is_counter = metric.kind is MetricKind.COUNTER
        make = meter.create_observable_counter if is_counter else meter.create_observable_gauge
        observer = _observer(reading, metric, shared)
        make(metric.name, [observer], metric.unit, metric.description)


class _SharedReading:
    """What was read last, by the name of the metric."""

    def __init__(self, read: Callable[[], Iterable[Sample]]) -> None:
        self._read = read
        self._found: dict[str, list[Sample]] = {}
        self._until = 0.0
        self._lock = Lock()

    def of(self, name: str) -> list[Sample]:
        with self._lock:
            if time.monotonic() >= self._until:
                self._found = {}
                try:
                    for sample in self._read():
                        self._found.setdefault(sample.metric.name, []).append(sample)
                finally:  # an error is raised for one metric of an export, not for each
                    self._until = time.monotonic() + _READ_ONCE_S
            return self._found.get(name, [])


def _observer(
    reading: _SharedReading, metric: Metric, labels: Mapping[str, str], ending: str = ""
) -> Callable[[CallbackOptions], list[Observation]]:
    def observe(_options: CallbackOptions) -> list[Observation]:
        return [
            Observation(
                _value(sample.value, ending),
                {**labels, **dict(zip(metric.labels, sample.labels, strict=True))},
            )
            for sample in reading.of(metric.name)
        ]

    return observe


def _value(value: float | HistogramCounts, ending: str) -> float:
    if isinstance(value, HistogramCounts):
        return value.sum if ending == "sum" else sum(value.counts)
    return value
