"""Samples become text that Prometheus's own library reads back."""

from __future__ import annotations

import builtins
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as open_metrics,
)
from prometheus_client.parser import text_string_to_metric_families as plain_text

from cometmq.errors import SettingsError
from cometmq.metrics.instruments import Histogram
from cometmq.metrics.registry import Metric, MetricKind, Sample
from cometmq.monitoring.prometheus_writer import (
    BUCKETS_MAX,
    LabelledSamples,
    PrometheusWriter,
    require_library,
)

SENT = Metric("rocketmq_messages_in_total", MetricKind.COUNTER, "{message}", "In.", ("topic",))
TOPICS = Metric("rocketmq_topic_number", MetricKind.GAUGE, "{topic}", "Topics.")
TIMES = Metric("cometmq_put_seconds", MetricKind.HISTOGRAM, "s", "Times.")
NODE = {"cluster": "c", "node_type": "broker", "node_id": 'b"0\n\\'}


def encoded(samples: list[Sample], series_max: int = 100, accept: str = "") -> str:
    roles = [LabelledSamples(NODE, samples)]
    return PrometheusWriter(series_max).encode(roles, accept)[0].decode()


def read(text: str) -> dict[tuple[str, str], float]:
    """Each sample by its name and its own label."""
    found = {}
    for family in plain_text(text):
        for name, labels, value, *_ in family.samples:
            assert {key: labels.pop(key) for key in NODE} == NODE
            found[name, next(iter(labels.values()), "")] = value
    return found


def test_every_kind_of_metric_is_read_back_with_its_labels() -> None:
    histogram = Histogram((0.5, 1.0))
    for value in (0.1, 0.6, 0.7, 9.0):
        histogram.observe(value)
    text = encoded(
        [
            Sample(SENT, ("T",), 3),
            Sample(SENT, ("U",), 5),
            Sample(TOPICS, (), 7),
            Sample(TIMES, (), histogram.distribution()),
        ]
    )
    found = read(text)
    assert found.pop(("cometmq_put_seconds_sum", "")) == pytest.approx(10.4)
    assert found == {
        ("rocketmq_messages_in_total", "T"): 3,
        ("rocketmq_messages_in_total", "U"): 5,
        ("rocketmq_topic_number", ""): 7,
        ("cometmq_put_seconds_bucket", "0.5"): 1,
        ("cometmq_put_seconds_bucket", "1.0"): 3,
        ("cometmq_put_seconds_bucket", "+Inf"): 4,
        ("cometmq_put_seconds_count", ""): 4,
    }


def test_a_client_that_accepts_open_metrics_gets_it() -> None:
    accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
    histogram = Histogram((1.0,))
    samples = [Sample(SENT, ("T",), 3), Sample(TIMES, (), histogram.distribution())]
    body, kind = PrometheusWriter(9).encode([LabelledSamples(NODE, samples)], accept)
    assert kind.startswith("application/openmetrics-text")
    families: dict[str, Any] = {each.name: each for each in open_metrics(body.decode())}
    assert families["rocketmq_messages_in"].samples[0].value == 3


def test_many_buckets_are_shown_as_few_that_count_the_same() -> None:
    histogram = Histogram(tuple(float(each) for each in range(1, 101)))
    for value in range(100):
        histogram.observe(value)
    found = read(encoded([Sample(TIMES, (), histogram.distribution())]))
    buckets = {key: value for (name, key), value in found.items() if name.endswith("_bucket")}
    assert len(buckets) <= BUCKETS_MAX + 1
    assert buckets["+Inf"] == found["cometmq_put_seconds_count", ""] == 100
    assert all(key == "+Inf" or value == float(key) for key, value in buckets.items())


def test_series_of_one_metric_are_bounded_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    samples = [Sample(SENT, (f"T{number}",), number) for number in range(10)]
    text = PrometheusWriter(4)
    for _ in range(3):
        roles = [LabelledSamples(NODE, [*samples, Sample(TOPICS, (), 1)])]
        found = read(text.encode(roles, "")[0].decode())
        shown = [name for name, _ in found]
        assert shown.count("rocketmq_messages_in_total") == 4
        assert found["cometmq_series_left_out", "rocketmq_messages_in_total"] == 6
        assert found["rocketmq_topic_number", ""] == 1
    assert caplog.text.count("metricsOtelCardinalityLimit") == 1


def test_without_the_library_a_start_is_refused_with_the_name_of_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.startswith("prometheus_client"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(SettingsError, match=r"pip install 'cometmq\[metrics\]'"):
        require_library()
