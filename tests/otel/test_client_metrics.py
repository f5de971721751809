"""Metrics of clients: the same figures by prometheus_client and by OpenTelemetry."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest

from client.short_delay_cluster import until
from cometmq import (
    AsyncProducer,
    ClientMetrics,
    ConsumeFrom,
    Message,
    Producer,
    PushConsumer,
)
from cometmq.metrics.instruments import Histogram
from cometmq.metrics.registry import Metric, MetricKind, MetricsRegistry
from cometmq.otel import observe_metrics
from cometmq.testing.cluster import InProcessCluster, LocalCluster

if TYPE_CHECKING:
    from cometmq import MessageExt

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "opentelemetry.md"


def test_prometheus_and_opentelemetry_see_what_clients_did(tmp_path: Path) -> None:
    handled: list[MessageExt] = []
    metrics = ClientMetrics()
    consumer_settings = {"consume_from": ConsumeFrom.FIRST}
    with (
        LocalCluster(tmp_path, broker_name="broker-a") as cluster,
        Producer("measured", namesrv=cluster.namesrv) as producer,
    ):
        consumer = PushConsumer("measurers", namesrv=cluster.namesrv, **consumer_settings)
        consumer.subscribe("Measured", "*", handled.extend)
        for number in range(7):
            producer.send(Message("Measured", b"%d" % number))
        with consumer:
            metrics.watch(producer, consumer)
            registry = CollectorRegistry()
            registry.register(metrics)

            def counted() -> bool:
                text = generate_latest(registry).decode()
                return any(
                    line.startswith("cometmq_client_handled_total{") and line.endswith(" 7.0")
                    for line in text.splitlines()
                )

            until(counted)
            text = generate_latest(registry).decode()
            assert 'cometmq_client_sends_total{broker="broker-a",client_id=' in text
            sends = next(
                line for line in text.splitlines() if line.startswith("cometmq_client_sends_total{")
            )
            assert sends.endswith(" 7.0")
            assert "rocketmq_consumer_cached_messages{" in text
            reader = InMemoryMetricReader()
            meter = MeterProvider([reader]).get_meter("test")
            observe_metrics(meter, metrics.metrics, metrics.samples, {"app": "orders"})
            found = points(reader)
            ((labels, value),) = found["cometmq_client_sends_total"]
            assert (value, labels["broker"], labels["app"]) == (7, "broker-a", "orders")
            assert ("Measured", 7) in [
                (each["topic"], count) for each, count in found["cometmq_client_handled_total"]
            ]
            metrics.unwatch(consumer)
            assert "cometmq_client_handled_total{" not in generate_latest(registry).decode()


def test_a_client_of_asyncio_is_read_from_another_thread(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with InProcessCluster(tmp_path) as cluster:
            metrics, producer = ClientMetrics(), AsyncProducer("a", namesrv=cluster.namesrv)
            async with producer:
                metrics.watch(producer)
                await producer.send(Message("Measured", b"x"))
                here = {(s.metric.name, s.labels[1]): s.value for s in metrics.samples()}
                there = {
                    (s.metric.name, s.labels[1]): s.value
                    for s in await asyncio.to_thread(metrics.samples)
                }
            assert here[("cometmq_client_sends_total", "broker-a")] == 1
            assert here == there
            assert metrics.samples() == []

    asyncio.run(scenario())


def test_a_brokers_registry_is_observed_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with InProcessCluster(tmp_path) as cluster:
            async with AsyncProducer("a", namesrv=cluster.namesrv) as producer:
                for _ in range(3):
                    await producer.send(Message("Measured", b"x"))
            registry = cluster.role.state.metrics
            reader = InMemoryMetricReader()
            meter = MeterProvider([reader]).get_meter("test")
            observe_metrics(meter, registry.metrics, registry.collect, {"node_id": "broker-a"})
            found = points(reader)
            assert [value for _, value in found["cometmq_sends_total"]] == [3]
            assert found["cometmq_connections"][0][0] == {"node_id": "broker-a"}

    asyncio.run(scenario())


def test_a_histogram_is_observed_as_number_and_sum() -> None:
    registry, histogram = MetricsRegistry(), Histogram((1.0, 2.0))
    registry.histogram(Metric("waits_seconds", MetricKind.HISTOGRAM, "s", "Waits."), histogram)
    histogram.observe(1.5, 2)
    histogram.observe(4.0)
    reader = InMemoryMetricReader()
    observe_metrics(MeterProvider([reader]).get_meter("t"), registry.metrics, registry.collect)
    found = points(reader)
    assert found["waits_seconds_count"] == [({}, 3)]
    assert found["waits_seconds_sum"] == [({}, 7.0)]


def test_every_metric_of_clients_is_on_its_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [metric.name for metric in ClientMetrics.metrics if f"`{metric.name}`" not in text] == []


def points(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, object], float]]]:
    """What an export would have, by metric: labels and value of each series."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: [(dict(p.attributes or {}), p.value) for p in metric.data.data_points]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
