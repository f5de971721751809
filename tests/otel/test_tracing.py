"""Spans over real sockets: what OpenTelemetry's messaging conventions ask for, by its exporter."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from client.short_delay_cluster import until
from cometmq import (
    AsyncProducer,
    AsyncPushConsumer,
    ConsumeFrom,
    InvalidMessage,
    LitePullConsumer,
    Message,
    Producer,
    PushConsumer,
)
from cometmq.otel import Tracing
from cometmq.testing.cluster import InProcessCluster, LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from opentelemetry.sdk.trace import ReadableSpan

    from cometmq import MessageExt


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with LocalCluster() as cluster:
        yield cluster.namesrv


class Recorded:
    """A tracer provider whose ended spans are kept."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    @property
    def count(self) -> int:
        return len(self._exporter.get_finished_spans())


def links_of(span: ReadableSpan) -> set[int]:
    return {link.context.span_id for link in span.links}


def test_a_handler_goes_on_with_the_trace_of_the_send(namesrv: str) -> None:
    recorded, inside = Recorded(), list[int]()
    tracer = trace.get_tracer("test", tracer_provider=recorded.provider)

    def handle(messages: list[MessageExt]) -> None:
        inside.append(trace.get_current_span().get_span_context().span_id)
        assert messages[0].properties["traceparent"].startswith("00-")

    consumer = PushConsumer(
        "traced-one",
        namesrv=namesrv,
        consume_from=ConsumeFrom.FIRST,
        middleware=[Tracing(recorded.provider)],
    )
    consumer.subscribe("TracedOne", "*", handle)
    message = Message("TracedOne", b"hello", tags="t", keys="k1 k2", sharding_key="A")
    with (
        Producer("tracers", namesrv=namesrv, middleware=[Tracing(recorded.provider)]) as producer,
        consumer,
    ):
        with tracer.start_as_current_span("checkout") as outer:
            result = producer.send(message)
        assert message.properties is None, "the caller's message is as it was"
        until(lambda: recorded.named("process TracedOne"))
    (sent,), (processed,) = recorded.named("send TracedOne"), recorded.named("process TracedOne")
    assert sent.kind is SpanKind.PRODUCER
    assert sent.parent is not None
    assert sent.parent.span_id == outer.get_span_context().span_id
    assert dict(sent.attributes or {}) == {
        "messaging.system": "rocketmq",
        "messaging.destination.name": "TracedOne",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.rocketmq.client_group": "tracers",
        "messaging.message.body.size": 5,
        "messaging.message.id": result.msg_id,
        "messaging.destination.partition.id": str(result.queue.queue_id),
        "messaging.rocketmq.message.type": "fifo",
        "messaging.rocketmq.message.tag": "t",
        "messaging.rocketmq.message.keys": ("k1", "k2"),
        "messaging.rocketmq.message.group": "A",
    }
    assert processed.kind is SpanKind.CONSUMER
    assert processed.parent is not None
    assert processed.parent.span_id == sent.context.span_id
    assert processed.context.trace_id == outer.get_span_context().trace_id
    assert links_of(processed) == {sent.context.span_id}
    assert inside == [processed.context.span_id]
    attributes = dict(processed.attributes or {})
    assert attributes["messaging.consumer.group.name"] == "traced-one"
    assert attributes["messaging.operation.type"] == "process"
    assert attributes["messaging.message.id"] == result.msg_id


def test_a_batch_is_one_send_with_links_and_so_is_what_handles_it(tmp_path: Path) -> None:
    recorded = Recorded()

    async def scenario() -> None:
        handled = asyncio.Event()

        async def handle(messages: list[MessageExt]) -> None:
            if len(messages) == 3:
                handled.set()

        async with InProcessCluster(tmp_path) as cluster:
            tracing = Tracing(recorded.provider)
            producer = AsyncProducer("tracers", namesrv=cluster.namesrv, middleware=[tracing])
            async with producer:
                found = await producer.send_batch([Message("TracedMany", b"x")] * 1 + [
                    Message("TracedMany", b"%d" % number) for number in range(2)
                ])  # fmt: skip
                assert len(found) == 3
            consumer = AsyncPushConsumer(
                "traced-many",
                namesrv=cluster.namesrv,
                consume_from=ConsumeFrom.FIRST,
                batch_size=8,
                middleware=[tracing],
            )
            consumer.subscribe("TracedMany", "*", handle)
            async with consumer:
                await asyncio.wait_for(handled.wait(), 30)

    asyncio.run(scenario())
    created = {span.context.span_id for span in recorded.named("create TracedMany")}
    (sent,), (processed,) = recorded.named("send TracedMany"), recorded.named("process TracedMany")
    assert len(created) == 3
    assert links_of(sent) == links_of(processed) == created
    assert sent.kind is SpanKind.CLIENT
    assert processed.parent is None, "many messages have no one parent"
    for span in (sent, processed):
        assert (span.attributes or {})["messaging.batch.message_count"] == 3


def test_failures_are_errors_of_their_spans(namesrv: str) -> None:
    recorded, attempts = Recorded(), list[int]()

    def handle(messages: list[MessageExt]) -> None:
        attempts.append(messages[0].reconsume_times)
        raise LookupError("no such order")

    consumer = PushConsumer(
        "traced-failures",
        namesrv=namesrv,
        consume_from=ConsumeFrom.FIRST,
        middleware=[Tracing(recorded.provider)],
    )
    consumer.subscribe("TracedFailures", "*", handle)
    with (
        Producer("tracers", namesrv=namesrv, middleware=[Tracing(recorded.provider)]) as producer,
        consumer,
    ):
        with pytest.raises(InvalidMessage):
            producer.send(Message("TracedFailures", b""))
        producer.send(Message("TracedFailures", b"x"))
        until(lambda: recorded.named("process TracedFailures"))
    failed, _sent = recorded.named("send TracedFailures")
    assert failed.status.status_code is StatusCode.ERROR
    assert (failed.attributes or {})["error.type"] == "InvalidMessage"
    processed = recorded.named("process TracedFailures")[0]
    assert processed.status.status_code is StatusCode.ERROR
    assert processed.status.description == "no such order"
    assert (processed.attributes or {})["error.type"] == "LookupError"
    assert processed.events[0].name == "exception"


def test_a_context_that_a_message_has_already_stays_and_is_a_link(namesrv: str) -> None:
    recorded = Recorded()
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with Producer("tracers", namesrv=namesrv, middleware=[Tracing(recorded.provider)]) as producer:
        producer.send(
            Message("TracedGiven", b"x", properties={"traceparent": given, "tracestate": "a=1"})
        )
    consumer = LitePullConsumer(
        "traced-given",
        namesrv=namesrv,
        consume_from=ConsumeFrom.FIRST,
        middleware=[Tracing(recorded.provider)],
    )
    consumer.subscribe("TracedGiven", "*")
    found: list[MessageExt] = []
    with consumer:
        until(lambda: found.extend(consumer.poll(0.5)) or found)
    assert found[0].properties["traceparent"] == given
    assert found[0].properties["tracestate"] == "a=1"
    (sent,), (received,) = recorded.named("send TracedGiven"), recorded.named("receive TracedGiven")
    assert links_of(sent) == links_of(received) == {0xB7AD6B7169203331}
    assert received.kind is SpanKind.CLIENT
    assert (received.attributes or {})["messaging.operation.type"] == "receive"


def test_without_an_sdk_nothing_is_recorded_and_nothing_is_carried(namesrv: str) -> None:
    with Producer(
        "tracers", namesrv=namesrv, middleware=[Tracing(trace.NoOpTracerProvider())]
    ) as p:
        message = Message("TracedNot", b"x")
        p.send(message)
        assert message.properties is None
