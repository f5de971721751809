"""Metrics of the clients of one program, read when somebody asks: nothing is counted for them.

Owns their names and labels, Apache's clients' where these have such a metric. Refuses to know who
exports them: prometheus_client collects a `ClientMetrics`, OpenTelemetry observes it
(`cometmq.otel`). Java: the meters of rocketmq-clients, by name.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from cometmq.metrics.registry import Metric, MetricKind, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

_COUNTER, _GAUGE = MetricKind.COUNTER, MetricKind.GAUGE
_PRODUCER, _CONSUMER = ("client_id", "broker"), ("client_id", "consumer_group", "topic")

SENDS = Metric(
    "cometmq_client_sends_total", _COUNTER, "{request}", "Requests that were stored.", _PRODUCER
)
SENDS_FAILED = Metric(
    "cometmq_client_sends_failed_total",
    _COUNTER,
    "{request}",
    "Attempts to send that failed; broker is empty where none was found.",
    _PRODUCER,
)
SEND_SECONDS = Metric(
    "cometmq_client_send_seconds_total",
    _COUNTER,
    "s",
    "Time of the requests that were stored, together.",
    _PRODUCER,
)
SENDS_IN_FLIGHT = Metric(
    "cometmq_client_sends_in_flight", _GAUGE, "{request}", "Requests without answer.", _PRODUCER
)
BROKER_AVOIDED = Metric(
    "cometmq_client_broker_avoided", _GAUGE, "1", "1 while latency_fault avoids it.", _PRODUCER
)
HANDLED = Metric(
    "cometmq_client_handled_total", _COUNTER, "{message}", "Messages handled.", _CONSUMER
)
HANDLE_FAILED = Metric(
    "cometmq_client_handle_failed_total",
    _COUNTER,
    "{message}",
    "Messages whose handler failed.",
    _CONSUMER,
)
HANDLE_CALLS = Metric(
    "cometmq_client_handle_calls_total", _COUNTER, "{call}", "Calls of handlers.", _CONSUMER
)
HANDLE_SECONDS = Metric(
    "cometmq_client_handle_seconds_total", _COUNTER, "s", "Time of these calls.", _CONSUMER
)
PULLED = Metric("cometmq_client_pulled_total", _COUNTER, "{message}", "Messages pulled.", _CONSUMER)
CACHED = Metric(
    "rocketmq_consumer_cached_messages",
    _GAUGE,
    "{message}",
    "Messages that were pulled and are not done.",
    _CONSUMER,
)
CACHED_BYTES = Metric(
    "rocketmq_consumer_cached_bytes", _GAUGE, "By", "The size of their bodies.", _CONSUMER
)
QUEUES = Metric(
    "cometmq_client_queues", _GAUGE, "{queue}", "Queues that the member has.", _CONSUMER
)
PAUSED = Metric(
    "cometmq_client_paused",
    _GAUGE,
    "1",
    "1 while a consumer is paused.",
    ("client_id", "consumer_group"),
)
ALL = (
    SENDS,
    SENDS_FAILED,
    SEND_SECONDS,
    SENDS_IN_FLIGHT,
    BROKER_AVOIDED,
    HANDLED,
    HANDLE_FAILED,
    HANDLE_CALLS,
    HANDLE_SECONDS,
    PULLED,
    CACHED,
    CACHED_BYTES,
    QUEUES,
    PAUSED,
)
_ANSWER_S = 5.0


class MeasuredClient(Protocol):
    """A producer or a push consumer, of either kind."""

    def metric_samples(self) -> list[Sample]:
        """What it has counted, and how it is now."""
        ...


class ClientMetrics:
    """The metrics of the clients that are watched. Safe to use from any thread.

    `prometheus_client.REGISTRY.register(metrics)` shows them among a program's own.
    """

    metrics = ALL
    """What there is."""

    def __init__(self) -> None:
        self._clients: list[tuple[MeasuredClient, asyncio.AbstractEventLoop | None]] = []

    def watch(self, *clients: MeasuredClient) -> None:
        """Show these clients from now on; asyncio ones are given on their loop."""
        for client in clients:
            is_asyncio = type(client).__name__.startswith("Async")
            loop = asyncio.get_running_loop() if is_asyncio else None
            self._clients = [*self._clients, (client, loop)]

    def unwatch(self, client: MeasuredClient) -> None:
        """Show a client no longer."""
        self._clients = [one for one in self._clients if one[0] is not client]

    def samples(self) -> list[Sample]:
        """Everything, as it is now; a loop that does not answer within 5 s is left out."""
        found: list[Sample] = []
        for client, loop in self._clients:
            try:
                found += _ask(client, loop)
            except (TimeoutError, RuntimeError):  # its loop hangs, or is closed
                continue
        return found

    def collect(self) -> Iterator[Any]:
        """For prometheus_client, which asks for its own families; needs the extra `metrics`."""
        from cometmq.monitoring.prometheus_writer import LabelledSamples, PrometheusWriter

        return PrometheusWriter(_SERIES_MAX).families([LabelledSamples({}, self.samples())])


_SERIES_MAX = 50_000


def _ask(client: MeasuredClient, loop: asyncio.AbstractEventLoop | None) -> list[Sample]:
    """Ask a client on its loop; a blocking one does that by itself."""
    if loop is None or loop is _running_loop():
        return client.metric_samples()
    answer: Future[list[Sample]] = Future()
    loop.call_soon_threadsafe(lambda: answer.set_result(client.metric_samples()))
    return answer.result(_ANSWER_S)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
