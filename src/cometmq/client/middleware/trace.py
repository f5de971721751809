"""The message trace: a middleware that records in a topic what became of each message.

Owns the records and their sending; refuses to know how messages are sent and handled. Invariant: at
most `WAITING_MAX` records wait, others are dropped and counted; it neither fails nor delays what it
records. Its hooks may run on any thread; one loop sends.
Java: AsyncTraceDispatcher, SendMessageTraceHookImpl, ConsumeMessageTraceHookImpl
"""

from __future__ import annotations

import logging
import time
from collections import deque
from itertools import count
from typing import TYPE_CHECKING

from cometmq.client.middleware.middleware import Middleware
from cometmq.client.producer.prepared_message import batch_item_bytes, prepare
from cometmq.client.producer.producer_options import ProducerOptions
from cometmq.client.producer.queue_selector import QueueSelector
from cometmq.client.producer.retrying_sender import RetryingSender
from cometmq.errors import CometError
from cometmq.model.message import Message, Property
from cometmq.model.results import ConsumeStatus
from cometmq.rules.namespace import without_namespace
from cometmq.wire.bodies import trace
from cometmq.wire.bodies.trace import TracedMessage

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Sequence

    from cometmq.client.middleware.middleware import CallContext
    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.message import MessageExt
    from cometmq.model.queue import MessageQueue
    from cometmq.model.results import SendResult, TransactionState

log = logging.getLogger(__name__)

WAITING_MAX = 2048
"""Records that may wait to be sent."""
BATCH_MAX = 20
"""Records of one message of the trace topic."""
BYTES_MAX = 128_000
"""Longest message of the trace topic."""
KEYS_CHARS_MAX = 16_384
"""Longest list of keys of one message of the trace topic: 496 ids."""
FLUSH_S = 5.0
"""Records wait no longer than this before they are sent."""
LOOK_S = 0.5
_STATES = {8: "COMMIT_MESSAGE", 12: "ROLLBACK_MESSAGE", 0: "UNKNOW"}
_numbers = count(1)


class Trace(Middleware):
    """Records the calls of one producer or consumer. `kind` is PRODUCE or CONSUME."""

    def __init__(
        self, session: ClientSession, group: str, kind: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._session = session
        self._loop = loop
        self._topic = session.options.trace or ""
        self._group = without_namespace(session.options.namespace, group)
        name = f"_INNER_TRACE_PRODUCER-{group}-{kind}-{next(_numbers)}"
        self._options = ProducerOptions(group=name[:120])
        self._sender = RetryingSender(session, self._options)
        self._queue_selector = QueueSelector(0)
        self._waiting: deque[tuple[str, str]] = deque()
        self._oldest = 0.0
        self.dropped = 0
        """Records that found no room, or that no broker took."""
        session.background.every(LOOK_S, self._look, name="trace")

    def after_send(self, message: Message, context: CallContext, result: SendResult | None) -> None:
        """Record a message that was stored."""
        if result is None or not result.trace_on or context.kind == "batch":
            return
        is_delayed = message.delay_level or message.due is not None
        kind = trace.DELAY if is_delayed else trace.NORMAL
        if context.kind == "half":
            kind = trace.HALF
        self._record_send(message, context, kind, result)

    def send_failed(self, message: Message, context: CallContext, error: BaseException) -> None:
        """Record a message that was not sent, unless it was refused before it had an id."""
        msg_id = error.msg_id if isinstance(error, CometError) else ""
        if msg_id and context.kind != "batch":
            self._record_send(message, context, trace.NORMAL, None, msg_id)

    def after_batch(
        self, messages: Sequence[Message], context: CallContext, results: Sequence[SendResult]
    ) -> None:
        """Record the messages of one request: one record, its ids joined, as Java's client does."""
        first = results[0]
        if not first.trace_on:
            return
        if len(messages) == 1:
            kind = trace.DELAY if messages[0].delay_level or messages[0].due else trace.NORMAL
            self._record_send(messages[0], context, kind, first)
            return
        msg_ids = [result.msg_id for result in results]
        subject = TracedMessage(messages[0].topic, ",".join(msg_ids))
        cost_ms = _cost_ms(context)
        self._add(
            trace.sent(
                subject,
                at_ms=self._session.clock.now_ms() - cost_ms,
                region=first.region_id,
                group=self._group,
                store_host=self._host(first.queue),
                body_bytes=sum(map(batch_item_bytes, messages, msg_ids)),
                cost_ms=cost_ms,
                kind=trace.NORMAL,
                offset_msg_id=",".join(result.offset_msg_id for result in results),
                is_ok=True,
            ),
            subject,
        )

    def transaction_ends(self, topic: str, half: SendResult, state: TransactionState) -> None:
        """Record the end of a transaction."""
        subject = TracedMessage(topic, half.msg_id)
        self._add(
            trace.ended(
                subject,
                at_ms=self._session.clock.now_ms(),
                region=half.region_id,
                group=self._group,
                store_host=self._host(half.queue),
                transaction_id=half.transaction_id or half.msg_id,
                state=_STATES[state.value],
                from_check=False,
            ),
            subject,
        )

    def before_handle(self, messages: list[MessageExt], context: CallContext) -> None:
        """Record that messages are about to be handled."""
        for one in _traced(messages):
            subject = _subject(one)
            self._add(
                trace.before(
                    subject,
                    at_ms=self._session.clock.now_ms(),
                    region=one.properties.get(Property.MSG_REGION, ""),
                    group=self._group,
                    request_id=self._request_id(context),
                    retries=one.reconsume_times,
                ),
                subject,
            )

    def after_handle(
        self, messages: list[MessageExt], context: CallContext, status: ConsumeStatus | None
    ) -> None:
        """Record what the handler returned."""
        is_ok = not isinstance(status, ConsumeStatus) or status.is_done
        code = trace.SUCCESS if is_ok else trace.FAILED
        self._record_handled(messages, context, code, is_ok=is_ok)

    def handle_failed(
        self, messages: list[MessageExt], context: CallContext, error: BaseException
    ) -> None:
        """Record that the handler raised."""
        del error
        self._record_handled(messages, context, trace.EXCEPTION, is_ok=False)

    async def flush(self) -> None:
        """Send all that waits; what no broker takes within `FLUSH_S` is dropped."""
        deadline = self._loop.time() + FLUSH_S
        while self._waiting:
            if self._loop.time() >= deadline:
                self._drop(len(self._waiting), f"no broker took them within {FLUSH_S:g} s")
                self._waiting.clear()
                return
            await self._send(self._next_batch(), deadline)

    def _record_send(
        self,
        message: Message,
        context: CallContext,
        kind: int,
        result: SendResult | None,
        msg_id: str = "",
    ) -> None:
        """Add the record of one message; without a result its send failed."""
        queue = result.queue if result else context.queue
        subject = TracedMessage(
            message.topic,
            result.msg_id if result else msg_id,
            message.tags or "",
            message.keys or "",
        )
        cost_ms = _cost_ms(context)
        self._add(
            trace.sent(
                subject,
                at_ms=self._session.clock.now_ms() - cost_ms,
                region=result.region_id if result else "",
                group=self._group,
                store_host=self._host(queue) if queue else "",
                body_bytes=len(message.body),
                cost_ms=cost_ms,
                kind=kind,
                offset_msg_id=result.offset_msg_id if result else "",
                is_ok=result is not None,
            ),
            subject,
        )

    def _record_handled(
        self, messages: list[MessageExt], context: CallContext, code: int, *, is_ok: bool
    ) -> None:
        cost_ms = int(_cost_ms(context) / max(1, len(messages)))
        for one in _traced(messages):
            subject = _subject(one)
            self._add(
                trace.after(
                    subject,
                    at_ms=self._session.clock.now_ms(),
                    group=self._group,
                    request_id=self._request_id(context),
                    cost_ms=cost_ms,
                    is_ok=is_ok,
                    code=code,
                ),
                subject,
            )

    def _request_id(self, context: CallContext) -> str:
        return f"{self._session.client_id}-{context.number}"

    def _add(self, record: str, subject: TracedMessage) -> None:
        if len(self._waiting) >= WAITING_MAX:
            self._drop(1, f"{WAITING_MAX} wait to be sent")
            return
        if not self._waiting:
            self._oldest = time.monotonic()
        keys = f"{subject.msg_id.replace(',', ' ')} {subject.keys}".strip()
        self._waiting.append((record, keys))

    async def _look(self) -> None:
        is_old = time.monotonic() - self._oldest >= FLUSH_S
        if self._waiting and (is_old or len(self._waiting) >= BATCH_MAX):
            await self.flush()

    def _next_batch(self) -> list[tuple[str, str]]:
        batch: list[tuple[str, str]] = []
        size = 0
        while self._waiting and len(batch) < BATCH_MAX:
            size += len(self._waiting[0][0])
            if batch and size > BYTES_MAX:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _send(self, batch: list[tuple[str, str]], deadline: float) -> None:
        keys = _bounded(dict.fromkeys(key for _, keys in batch for key in keys.split()))
        body = "".join(record for record, _ in batch).encode()
        message, session = Message(self._topic, body, keys=keys), self._session

        async def choose(failed_broker: str | None) -> MessageQueue:
            queues = await session.routes.publish_queues(self._topic, 1)
            return self._queue_selector.round_robin(self._topic, queues, failed_broker)

        now_ms = session.clock.now_ms()
        try:
            prepared = prepare(message, self._options, session.uniq_keys.next_key(now_ms), now_ms)
            await self._sender.send(prepared, choose, 2, deadline)
        except CometError as error:
            self._drop(len(batch), str(error))

    def _drop(self, count: int, reason: str) -> None:
        """Count records that are lost; the first loss is logged."""
        if not self.dropped:
            log.warning("records of the message trace are dropped: %s", reason)
        self.dropped += count

    def _host(self, queue: MessageQueue) -> str:
        return self._session.routes.find_master_addr(queue.broker_name) or queue.broker_name


def _bounded(keys: Iterable[str]) -> str:
    """As many of the keys as a message's properties hold; those of large batches are too many."""
    found, size = [], 0
    for key in keys:
        size += len(key) + 1
        if size > KEYS_CHARS_MAX:
            break
        found.append(key)
    return " ".join(found)


def _subject(message: MessageExt) -> TracedMessage:
    return TracedMessage(message.topic, message.msg_id, message.tags or "", " ".join(message.keys))


def _traced(messages: list[MessageExt]) -> list[MessageExt]:
    """The messages that their broker wants traced."""
    return [one for one in messages if one.properties.get(Property.TRACE_ON) != "false"]


def _cost_ms(context: CallContext) -> int:
    return int((time.monotonic() - context.began_s) * 1000)
