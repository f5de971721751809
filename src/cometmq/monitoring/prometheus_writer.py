"""Samples as the text that Prometheus reads, by prometheus_client, the extra `metrics`.

Owns the translation of our metrics into that library's, and what is left out of it. Refuses to
know where samples come from. The library is imported when a role that exports starts.
Java: OpenTelemetry's PrometheusHttpServer, whose endings of units the names have, too.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from cometmq.errors import SettingsError
from cometmq.metrics.instruments import HistogramCounts
from cometmq.metrics.registry import Metric, MetricKind, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

log = logging.getLogger(__name__)

BUCKETS_MAX = 25
"""Buckets shown of a histogram; of one with more, neighbours are shown as one."""
LEFT_OUT = Metric(
    "cometmq_series_left_out",
    MetricKind.GAUGE,
    "{series}",
    "Series of a metric beyond metricsOtelCardinalityLimit.",
    ("metric",),
)


class LabelledSamples(NamedTuple):
    """Samples of one role, and the labels that all of them have."""

    labels: Mapping[str, str]
    samples: list[Sample]


def require_library() -> None:
    """Import prometheus_client; raises SettingsError, one sentence, where it is not there."""
    try:
        import prometheus_client.exposition  # noqa: F401
    except ImportError as error:
        raise SettingsError(
            "metricsExporterType is PROM, which needs the extra `metrics`: "
            "pip install 'cometmq[metrics]'"
        ) from error


class PrometheusWriter:
    """Makes the text. Its one thread at a time may be another than the loop's."""

    def __init__(self, series_max: int) -> None:
        """`series_max` is the bound of one metric's series, of each role."""
        self._series_max = series_max
        self._said: set[str] = set()

    def encode(self, roles: list[LabelledSamples], accept: str) -> tuple[bytes, str]:
        """The text and its content type, OpenMetrics where the client accepts that."""
        from prometheus_client.exposition import choose_encoder

        encoder, content_type = choose_encoder(accept)
        return encoder(_Collector(list(self.families(roles)))), content_type

    def families(self, roles: list[LabelledSamples]) -> Iterator[Any]:
        """The families of prometheus_client, by name."""
        from prometheus_client.core import Metric as Family

        families: dict[str, Any] = {}
        for role in roles:
            for metric, labels, value in self._within_bounds(role.samples):
                family = families.get(metric.name)
                if family is None:
                    name = metric.name
                    if metric.kind is MetricKind.COUNTER:
                        name = name.removesuffix("_total")
                    family = families[metric.name] = Family(
                        name, metric.description, metric.kind.value
                    )
                named = {**role.labels, **dict(zip(metric.labels, labels, strict=True))}
                _add(family, metric.name, named, value)
        for _, family in sorted(families.items()):
            yield family

    def _within_bounds(self, samples: list[Sample]) -> Iterator[Sample]:
        """The samples up to the bound of each metric, then how many there were more."""
        counts: dict[str, int] = {}
        for sample in samples:
            name = sample.metric.name
            counts[name] = count = counts.get(name, 0) + 1
            if count <= self._series_max:
                yield sample
        for name, count in counts.items():
            if count > self._series_max:
                self._warn_once(name)
                yield Sample(LEFT_OUT, (name,), count - self._series_max)

    def _warn_once(self, name: str) -> None:
        if name not in self._said:
            self._said.add(name)
            log.warning(
                "%s has more than %d series (metricsOtelCardinalityLimit); the others are left out",
                name,
                self._series_max,
            )


class _Collector:
    """What the library's encoders ask for families."""

    def __init__(self, families: list[Any]) -> None:
        self._families = families

    def collect(self) -> list[Any]:
        return self._families


def _add(family: Any, name: str, labels: dict[str, str], value: float | HistogramCounts) -> None:
    if not isinstance(value, HistogramCounts):
        family.add_sample(name, labels, value)
        return
    from prometheus_client.utils import floatToGoString

    total, last = 0, len(value.bounds)
    step = -(-last // BUCKETS_MAX)
    for at, (bound, count) in enumerate(
        zip((*value.bounds, float("inf")), value.counts, strict=True)
    ):
        total += count
        if at == last or at % step == step - 1:
            family.add_sample(f"{name}_bucket", {**labels, "le": floatToGoString(bound)}, total)
    family.add_sample(f"{name}_count", labels, total)
    family.add_sample(f"{name}_sum", labels, value.sum)
