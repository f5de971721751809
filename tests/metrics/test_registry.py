"""One registry with names, units and labels; what is counted is read there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.metrics.instruments import Counter, Histogram, HistogramCounts, MetricFamily
from cometmq.metrics.registry import Metric, MetricKind, MetricsRegistry, Sample

SENT = Metric("sent_total", MetricKind.COUNTER, "{message}", "Messages sent.", ("topic",))
WAITING = Metric("waiting", MetricKind.GAUGE, "{message}", "Messages waiting.")
SPENT = Metric("spent_seconds", MetricKind.HISTOGRAM, "s", "Time spent.")


def test_what_is_registered_is_read_with_its_labels_in_the_order_of_names():
    registry, family, histogram = (
        MetricsRegistry(),
        MetricFamily(("topic",), Counter),
        Histogram((0.1, 1.0)),
    )
    registry.family(SENT, family, lambda counter: counter.value)
    registry.callback(WAITING, lambda: 7)
    registry.histogram(SPENT, histogram)
    family.child("A").add(3)
    histogram.observe(0.5, 2)
    assert [metric.name for metric in registry.metrics] == [
        "sent_total",
        "spent_seconds",
        "waiting",
    ]
    assert list(registry.collect()) == [
        Sample(SENT, ("A",), 3),
        Sample(SPENT, (), HistogramCounts((0.1, 1.0), (0, 2, 0), 1.0)),
        Sample(WAITING, (), 7),
    ]
    assert registry.value(SENT, "A") == 3
    assert registry.value(SENT, "B") == 0, "nothing was counted under this name"


def test_a_name_is_registered_once():
    registry = MetricsRegistry()
    registry.callback(WAITING, lambda: 0)
    with pytest.raises(ValueError, match="waiting is registered already"):
        registry.callback(WAITING, lambda: 1)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Sent_total", MetricKind.COUNTER),
        ("sent-total", MetricKind.COUNTER),
        ("sent", MetricKind.COUNTER),
        ("waiting_total", MetricKind.GAUGE),
        ("", MetricKind.GAUGE),
    ],
)
def test_a_name_that_exporters_cannot_show_is_refused(name, kind):
    with pytest.raises(ValueError, match=r"metric|_total"):
        Metric(name, kind, "1", "")


def test_a_family_has_a_bound_and_counts_what_is_beyond_it_together():
    family = MetricFamily(("topic",), Counter, children_max=2)
    for name in "abcd":
        family.child(name).add()
    assert sorted(family.children) == [("a",), ("b",)]
    assert family.overflow.value == 2


def test_children_are_removed_by_one_label():
    family = MetricFamily(("topic", "group"), Counter)
    for topic, group in (("T", "G"), ("T", "H"), ("G", "T")):
        family.child(topic, group).add()
    assert [key for key, _ in family.remove("group", "T")] == [("G", "T")]
    assert [key for key, _ in family.remove("topic", "T")] == [("T", "G"), ("T", "H")]
    assert family.remove("queue", "T") == [], "there is no such label"
    assert not family.children


def test_a_counter_cannot_fall():
    with pytest.raises(AssertionError, match="cannot fall"):
        Counter().add(-1)


@given(st.lists(st.floats(0, 20), max_size=50))
def test_a_histogram_has_every_value_in_the_class_it_belongs_to(values):
    bounds = (0.5, 1.0, 10.0)
    histogram = Histogram(bounds)
    for value in values:
        histogram.observe(value)
    edges = [(-1.0, 0.5), (0.5, 1.0), (1.0, 10.0), (10.0, 100.0)]
    assert histogram.counts == [sum(low <= v < high for v in values) for low, high in edges]
    assert histogram.longest == max(values, default=0.0)
