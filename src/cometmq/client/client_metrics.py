"""Metrics of the clients of one program, read when somebody asks: nothing is counted for them.

Owns their names and labels, Apache's clients' where these have such a metric. Refuses to know who
exports them: prometheus_client collects a `ClientMetrics`, OpenTelemetry observes it
(`cometmq.otel`). Java: the meters of rocketmq-clients, by name.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import CancelledError, Future
from inspect import iscoroutinefunction
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from cometmq.errors import ClientError
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
"""How long all loops together have for their answers."""


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
        self._clients: list[_WatchedClient] = []
        self._lock = Lock()

    def watch(self, *clients: MeasuredClient) -> None:
        """Show these clients from now on; asyncio ones are given on their loop.

        One that is shown already is not shown twice, one whose loop is closed no longer. Raises
        ClientError for what is no client, and for an asyncio client where no loop runs.
        """
        found = [_watched(client) for client in clients]
        with self._lock:
            for one in found:
                if all(one.client is not other.client for other in self._clients):
                    self._clients = [*self._clients, one]

    def unwatch(self, client: MeasuredClient) -> None:
        """Show a client no longer."""
        with self._lock:
            self._clients = [one for one in self._clients if one.client is not client]

    @property
    def watched(self) -> int:
        """How many clients are shown."""
        return len(self._clients)

    def samples(self) -> list[Sample]:
        """Everything, as it is now; loops that do not answer within 5 s are left out."""
        with self._lock:
            self._clients = [one for one in self._clients if not one.is_over]
            clients = self._clients
        asked = [(one, one.ask()) for one in clients]
        deadline_s = time.monotonic() + _ANSWER_S
        found: list[Sample] = []
        for one, question in asked:
            found += (
                one.client.metric_samples()
                if question is None
                else _answer_of(question, deadline_s)
            )
        return found

    def collect(self) -> Iterator[Any]:
        """For prometheus_client, which asks for its own families; needs the extra `metrics`."""
        from cometmq.monitoring.prometheus_writer import LabelledSamples, PrometheusWriter

        return PrometheusWriter(_SERIES_MAX).families([LabelledSamples({}, self.samples())])


_SERIES_MAX = 50_000


class _WatchedClient:
    """A client, its loop if it is one of asyncio, and the question that it has not answered yet."""

    def __init__(self, client: MeasuredClient, loop: asyncio.AbstractEventLoop | None) -> None:
        self.client, self._loop = client, loop
        self._asked: Future[list[Sample]] | None = None

    @property
    def is_over(self) -> bool:
        """Whether its loop is closed."""
        return self._loop is not None and self._loop.is_closed()

    def ask(self) -> Future[list[Sample]] | None:
        """Ask it on the loop of another thread, unless it still owes an answer.

        None for one that is asked directly: here is its loop, or it is a blocking client, which
        asks its loop by itself.
        """
        if self._loop is None or self._loop is _running_loop():
            return None
        if self._asked is None or self._asked.done():
            question = self._samples()
            try:
                self._asked = asyncio.run_coroutine_threadsafe(question, self._loop)
            except RuntimeError:  # the loop was closed meanwhile
                question.close()
                self._asked = Future()
                self._asked.set_result([])
        return self._asked

    async def _samples(self) -> list[Sample]:
        return self.client.metric_samples()


def _answer_of(question: Future[list[Sample]], deadline_s: float) -> list[Sample]:
    """What a client answers; nothing where no answer comes in time, or its loop ends."""
    try:
        return question.result(max(0.0, deadline_s - time.monotonic()))
    except (TimeoutError, CancelledError):
        return []


def _watched(client: MeasuredClient) -> _WatchedClient:
    if not callable(getattr(client, "metric_samples", None)):
        raise ClientError(f"{client!r:.80} is no producer or push consumer, it has no metrics")
    if not iscoroutinefunction(getattr(client, "start", None)):
        return _WatchedClient(client, None)
    loop = _running_loop()
    if loop is None:
        raise ClientError("watch an asyncio client on its loop: call watch() in a coroutine")
    return _WatchedClient(client, loop)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
