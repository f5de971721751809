"""Traces and metrics where programs misuse them, loops hang, and other producers write nonsense."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

from cometmq import AsyncProducer, ClientError, ClientMetrics, Message, Middleware, Producer
from cometmq.otel import Tracing, observe_metrics
from cometmq.otel.tracing import _context_of
from cometmq.testing import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cometmq.client.middleware.middleware import CallContext
    from cometmq.metrics.registry import Sample


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with LocalCluster(tmp_path_factory.mktemp("store")) as cluster:
        yield cluster.namesrv


class Stamp(Middleware):
    """Another middleware that writes a property of its own."""

    def before_send(self, message: Message, _context: CallContext) -> None:
        message.properties = {**(message.properties or {}), "stamp": "1"}


def test_a_message_that_is_sent_several_times_at_once_is_left_as_it_was(namesrv: str) -> None:
    async def scenario(given: dict[str, str] | None, *others: Middleware) -> Any:
        message = Message("several", b"x", properties=given)
        tracing = Tracing(TracerProvider())
        async with AsyncProducer("p", namesrv=namesrv, middleware=[tracing, *others]) as producer:
            await asyncio.gather(*(producer.send(message) for _ in range(5)))
        return message.properties

    assert not asyncio.run(scenario(None))
    for given in ({"a": "1"}, {"traceparent": "nonsense"}):
        assert asyncio.run(scenario(given)) == given
    assert asyncio.run(scenario({"a": "1"}, Stamp())) == {"a": "1", "stamp": "1"}


class Renamed(AsyncProducer):
    """A client whose name does not begin with Async."""


def test_a_client_is_read_on_its_loop_whatever_its_class_is_called(namesrv: str) -> None:
    metrics, threads = ClientMetrics(), set[int]()

    class Seen(Renamed):
        def metric_samples(self) -> list[Sample]:
            threads.add(threading.get_ident())
            return super().metric_samples()

    async def scenario() -> None:
        async with Seen("p", namesrv=namesrv) as producer:
            metrics.watch(producer)
            await producer.send(Message("several", b"x"))
            assert await asyncio.to_thread(metrics.samples)

    asyncio.run(scenario())
    assert threads == {threading.get_ident()}
    assert metrics.samples() == []


def test_a_client_is_shown_once_and_what_is_no_client_is_refused(namesrv: str) -> None:
    metrics = ClientMetrics()
    with Producer("p", namesrv=namesrv) as producer:
        metrics.watch(producer, producer)
        metrics.watch(producer)
        producer.send(Message("several", b"x"))
        series = [(one.metric.name, one.labels) for one in metrics.samples()]
    assert series
    assert len(series) == len(set(series))
    with pytest.raises(ClientError, match="is no producer or push consumer"):
        metrics.watch(producer, 7)  # type: ignore[arg-type]
    with pytest.raises(ClientError, match="watch an asyncio client on its loop"):
        metrics.watch(AsyncProducer("p", namesrv=namesrv))


def test_loops_that_hang_cost_one_wait_together_and_are_asked_once(
    namesrv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cometmq.client.client_metrics._ANSWER_S", 1.0)
    metrics, begun, go_on = ClientMetrics(), threading.Event(), threading.Event()
    asked: list[int] = []

    class Counted(AsyncProducer):
        def metric_samples(self) -> list[Sample]:
            asked.append(1)
            return super().metric_samples()

    async def hang() -> None:
        producers = [Counted(f"p{at}", namesrv=namesrv) for at in range(6)]
        for one in producers:
            await one.start()
        metrics.watch(*producers)
        begun.set()
        assert go_on.wait(60)  # the loop does nothing meanwhile
        await asyncio.sleep(0)
        for one in producers:
            await one.stop()

    thread = threading.Thread(target=lambda: asyncio.run(hang()))
    thread.start()
    try:
        assert begun.wait(30)
        began = time.monotonic()
        assert metrics.samples() == []
        assert time.monotonic() - began < 5.5  # not one wait for each client
        assert metrics.samples() == []
    finally:
        go_on.set()
        thread.join(30)
    assert len(asked) <= 6
    assert metrics.samples() == []


def test_clients_of_loops_that_are_over_are_forgotten(namesrv: str) -> None:
    metrics = ClientMetrics()

    async def once() -> None:
        async with AsyncProducer("p", namesrv=namesrv) as producer:
            metrics.watch(producer)

    for _ in range(5):
        asyncio.run(once())
        metrics.samples()
    assert metrics.watched == 0


def test_a_registry_that_cannot_be_read_is_asked_once_an_export(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader, calls = InMemoryMetricReader(), list[int]()

    def read() -> list[Sample]:
        calls.append(1)
        raise ZeroDivisionError

    observe_metrics(MeterProvider([reader]).get_meter("m"), ClientMetrics.metrics, read)
    reader.get_metrics_data()
    assert len(calls) == 1
    assert [one.levelname for one in caplog.records] == ["ERROR"]


NONSENSE = (
    "", "x", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "ff-" + "a" * 32 + "-" + "b" * 16 + "-01",
    "00-" + "a" * 32 + "-" + "b" * 16 + "-01-more", "00-" + "a" * 32 + "-" + "b" * 16 + "-zz",
    "0" * 10_000, "00-" + "A" * 32 + "-" + "b" * 16 + "-01", "é" * 55,
)  # fmt: skip


@pytest.mark.parametrize("traceparent", NONSENSE, ids=lambda text: text[:12])
def test_what_other_producers_write_as_context_stops_no_handler(traceparent: str) -> None:
    carried = {"traceparent": traceparent, "tracestate": "=,,;" + "k" * 20_000}
    found = _context_of(carried)
    assert found is None or found.is_valid
