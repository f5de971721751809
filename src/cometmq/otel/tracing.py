"""Spans of sends, polls and handlers, and the trace context in the properties of messages.

Owns what OpenTelemetry's messaging conventions say of RocketMQ: names, kinds and attributes of
spans, and which is a parent and which a link. The context goes by the W3C names `traceparent` and
`tracestate`, so programs of other languages go on with it. Refuses to know exporters.
Java: opentelemetry-java-instrumentation's rocketmq-client, whose attributes these are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Link, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from cometmq.client.middleware.middleware import CallContext, Middleware
from cometmq.runtime.system_clock_and_files import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from opentelemetry.trace import Span, TracerProvider

    from cometmq.model.message import Message, MessageExt
    from cometmq.model.results import ConsumeStatus, SendResult

_PROPAGATOR = TraceContextTextMapPropagator()
_FIELDS = ("traceparent", "tracestate")
_SPAN, _BEGUN, _TOKEN = "otel.span", "otel.begun", "otel.token"
_GIVEN, _WRITTEN = "otel.given", "otel.written"
_TYPES = {"half": "transaction"}


class Tracing(Middleware):
    """Records spans: give it as `middleware=[Tracing()]` to producers and consumers.

    A send is a span `send TOPIC`, and its context goes with the message; a message that has a
    `traceparent` already keeps it, and the span links to it. Of `send_batch` and `send_many` each
    message has a span `create TOPIC`, and each request one `send TOPIC` with links to them. A call
    of a handler is a span `process TOPIC` with links to what its messages carry, and of a single
    message that is the parent, too; it is the current span while the handler runs. A poll that
    found messages is a span `receive TOPIC`. `provider` is OpenTelemetry's; without it the global
    one is used when the middleware is made. With `message_as_parent` false there are only links.
    """

    def __init__(
        self, provider: TracerProvider | None = None, *, message_as_parent: bool = True
    ) -> None:
        self._tracer = trace.get_tracer("cometmq", tracer_provider=provider)
        self._message_as_parent = message_as_parent
        self._now_ms = SystemClock().now_ms

    # ---- sends

    def before_send(self, message: Message, context: CallContext) -> None:
        """Begin the span of a message and put its context into the properties."""
        operation = "create" if context.kind == "batch" else "send"
        given = message.properties
        carried = _context_of(given or {})
        span = self._tracer.start_span(
            f"{operation} {message.topic}",
            kind=SpanKind.PRODUCER,
            links=[Link(carried)] if carried is not None else [],
            attributes=_of_message(message, operation, context),
        )
        state = context.state
        state[_SPAN], state[_BEGUN] = span, self._now_ms() * 1_000_000
        if carried is None and span.get_span_context().is_valid:
            carrier: dict[str, str] = {}
            _PROPAGATOR.inject(carrier, trace.set_span_in_context(span))
            message.properties = {**(given or {}), **carrier}
            state[_GIVEN], state[_WRITTEN] = given, message.properties

    def after_send(self, message: Message, context: CallContext, result: SendResult | None) -> None:
        """End the span of a message that was stored."""
        span = self._end_send(message, context)
        if result is not None:
            span.set_attribute("messaging.message.id", result.msg_id)
            span.set_attribute("messaging.destination.partition.id", str(result.queue.queue_id))
        span.end()

    def send_failed(self, message: Message, context: CallContext, error: BaseException) -> None:
        """End the span of a message that was not sent."""
        _fail(span := self._end_send(message, context), error)
        span.end()

    def after_batch(
        self, messages: Sequence[Message], context: CallContext, results: Sequence[SendResult]
    ) -> None:
        """Record the span of one request that stored several messages."""
        topic = messages[0].topic
        attributes = _of_call(topic, "send", "send") | {
            "messaging.batch.message_count": len(messages),
            "messaging.rocketmq.client_group": context.group,
            "messaging.destination.partition.id": str(results[0].queue.queue_id),
        }
        span = self._tracer.start_span(
            f"send {topic}",
            kind=SpanKind.CLIENT,
            links=_links(message.properties or {} for message in messages),
            attributes=attributes,
            start_time=context.state.get(_BEGUN),  # type: ignore[arg-type]
        )
        span.end()

    def _end_send(self, message: Message, context: CallContext) -> Span:
        """The span of a message, which carries no longer what was written for this send."""
        written: Any = context.state.pop(_WRITTEN, None)
        given: Any = context.state.pop(_GIVEN, None)
        now = message.properties
        if now is written:
            message.properties = given
        elif now and written and now.get("traceparent") == written["traceparent"]:
            before = {name: given[name] for name in _FIELDS if given and name in given}
            rest = {name: value for name, value in now.items() if name not in _FIELDS}
            message.properties = rest | before
        return context.state.pop(_SPAN)  # type: ignore[return-value]

    # ---- handlers and polls

    def before_handle(self, messages: list[MessageExt], context: CallContext) -> None:
        """Begin the span of a call of a handler, and make it the current one."""
        span = self._begin_receiving("process", SpanKind.CONSUMER, messages, context)
        context.state[_SPAN] = span
        context.state[_TOKEN] = contexts.attach(trace.set_span_in_context(span))

    def after_handle(
        self, _messages: list[MessageExt], context: CallContext, status: ConsumeStatus | None
    ) -> None:
        """End the span of a call that returned."""
        span = self._end_handle(context)
        if status is not None and not status.is_done:
            span.set_status(StatusCode.ERROR, "the handler asked for the messages again")
            span.set_attribute("error.type", status.name)
        span.end()

    def handle_failed(
        self, _messages: list[MessageExt], context: CallContext, error: BaseException
    ) -> None:
        """End the span of a call that raised."""
        _fail(span := self._end_handle(context), error)
        span.end()

    def after_poll(self, messages: list[MessageExt], context: CallContext) -> None:
        """Record a poll that found messages; its span is a moment, the waiting is not in it."""
        for topic in dict.fromkeys(message.topic for message in messages):
            found = [message for message in messages if message.topic == topic]
            self._begin_receiving("receive", SpanKind.CLIENT, found, context).end()

    def _begin_receiving(
        self, operation: str, kind: SpanKind, messages: list[MessageExt], context: CallContext
    ) -> Span:
        first, count = messages[0], len(messages)
        links = _links(message.properties for message in messages)
        parent = None
        if self._message_as_parent and count == 1 and links and operation == "process":
            remote = trace.NonRecordingSpan(links[0].context)
            parent = trace.set_span_in_context(remote)
        attributes = _of_call(first.topic, operation, operation) | {
            "messaging.consumer.group.name": context.group,
            "messaging.rocketmq.client_group": context.group,
        }
        queues = {message.queue_id for message in messages}
        if len(queues) == 1:
            attributes["messaging.destination.partition.id"] = str(queues.pop())
        if count == 1:
            attributes |= _of_received(first)
        else:
            attributes["messaging.batch.message_count"] = count
        return self._tracer.start_span(
            f"{operation} {first.topic}",
            context=parent,
            kind=kind,
            links=links,
            attributes=attributes,
        )

    def _end_handle(self, context: CallContext) -> Span:
        token: Any = context.state.pop(_TOKEN)
        contexts.detach(token)
        return context.state.pop(_SPAN)  # type: ignore[return-value]


def _of_call(topic: str, name: str, kind: str) -> dict[str, Any]:
    return {
        "messaging.system": "rocketmq",
        "messaging.destination.name": topic,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }


def _of_message(message: Message, operation: str, context: CallContext) -> dict[str, Any]:
    kind = _TYPES.get(context.kind, "normal")
    found = _of_call(message.topic, operation, operation)
    found["messaging.rocketmq.client_group"] = context.group
    found["messaging.message.body.size"] = len(message.body)
    if message.tags:
        found["messaging.rocketmq.message.tag"] = message.tags
    if message.keys:
        found["messaging.rocketmq.message.keys"] = _words(message.keys)
    if message.sharding_key is not None:
        kind = "fifo"
        found["messaging.rocketmq.message.group"] = message.sharding_key
    if message.delay_level:
        kind = "delay"
        found["messaging.rocketmq.message.delay_time_level"] = message.delay_level
    elif message.due is not None:
        kind = "delay"
    found["messaging.rocketmq.message.type"] = kind
    return found


def _of_received(message: MessageExt) -> dict[str, Any]:
    found: dict[str, Any] = {
        "messaging.message.id": message.msg_id,
        "messaging.message.body.size": len(message.body),
    }
    if message.tags:
        found["messaging.rocketmq.message.tag"] = message.tags
    if message.keys:
        found["messaging.rocketmq.message.keys"] = _words(message.keys)
    if message.sharding_key is not None:
        found["messaging.rocketmq.message.group"] = message.sharding_key
    return found


def _words(keys: object) -> list[str]:
    return keys.split() if isinstance(keys, str) else [str(key) for key in keys]  # type: ignore[attr-defined]


def _context_of(properties: Mapping[str, str]) -> trace.SpanContext | None:
    """The trace context that a message carries; None where it carries none that is valid."""
    carrier = {name: properties[name] for name in _FIELDS if name in properties}
    if not carrier:
        return None
    found = trace.get_current_span(_PROPAGATOR.extract(carrier, contexts.Context()))
    return found.get_span_context() if found.get_span_context().is_valid else None


def _links(all_properties: Iterable[Mapping[str, str]]) -> list[Link]:
    found = (_context_of(properties) for properties in all_properties)
    return [Link(one) for one in found if one is not None]


def _fail(span: Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_status(StatusCode.ERROR, str(error))
    span.set_attribute("error.type", type(error).__qualname__)
