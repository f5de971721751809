"""The message trace: tells a topic what became of each message, for those who ask later.

Owns the records that wait and their sending; refuses to know what is traced. Invariant: it is
bounded (`WAITING_MAX` records, the rest is dropped and counted) and it never fails nor delays what
it tells of. May be told from any thread; one loop sends.
Java: AsyncTraceDispatcher, SendMessageTraceHookImpl, ConsumeMessageTraceHookImpl
"""

from __future__ import annotations

import logging
import time
from collections import deque
from copy import copy
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from cometmq.client.handling.handler_call import is_async
from cometmq.client.producer.prepared_message import prepare
from cometmq.client.producer.queue_selector import QueueSelector
from cometmq.client.producer.retrying_sender import RetryingSender
from cometmq.client.session.client_options import ProducerOptions
from cometmq.errors import CometError
from cometmq.model.message import Message, Property
from cometmq.model.results import ConsumeStatus
from cometmq.rules.namespace import without_namespace
from cometmq.wire.bodies import trace
from cometmq.wire.bodies.trace import Subject

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Sequence

    from cometmq.client.consumer.subscriptions import Subscriptions
    from cometmq.client.handling.handler_call import AsyncHandler, Handler, SyncHandler
    from cometmq.client.producer.prepared_message import PreparedBatch, PreparedMessage
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
FLUSH_S, LOOK_S = 5.0, 0.5
_STATES = {8: "COMMIT_MESSAGE", 12: "ROLLBACK_MESSAGE", 0: "UNKNOW"}
_numbers = count(1)


class Trace:
    """Tells of one producer or consumer. `kind` is PRODUCE or CONSUME."""

    def __init__(
        self, session: ClientSession, group: str, kind: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._session, self._loop = session, loop
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

    def sent(
        self, message: PreparedMessage, source: Message, result: SendResult, began: float
    ) -> None:
        """Tell of a message that was sent; `began` is the loop's time."""
        if not result.trace_on:
            return
        kind = trace.DELAY if source.delay_level else trace.NORMAL
        if f"{Property.TRAN_MSG}\x01" in message.properties:
            kind = trace.HALF
        self._note_sent(
            message, source, result.queue, began, kind, result.region_id, result.offset_msg_id
        )

    def sent_batch(self, sent: PreparedBatch, results: list[SendResult], began: float) -> None:
        """Tell of a batch that was sent: one record, its ids joined, as Java's client does."""
        first = results[0]
        if not first.trace_on:
            return
        subject = Subject(sent.topic, ",".join(sent.msg_ids))
        cost_ms = int((self._loop.time() - began) * 1000)
        self._note(
            trace.sent(
                subject,
                at_ms=self._session.clock.now_ms() - cost_ms,
                region=first.region_id,
                group=self._group,
                store_host=self._host(first.queue),
                body_bytes=sent.body_bytes,
                cost_ms=cost_ms,
                kind=trace.NORMAL,
                offset_msg_id=",".join(result.offset_msg_id for result in results),
                is_ok=True,
            ),
            subject,
        )

    def failed(
        self, message: PreparedMessage, source: Message, queue: MessageQueue | None, began: float
    ) -> None:
        """Tell of a message that was not sent."""
        self._note_sent(message, source, queue, began, trace.NORMAL, "", None)

    def ended(
        self, topic: str, half: SendResult, state: TransactionState, *, from_check: bool
    ) -> None:
        """Tell of the end of a transaction."""
        subject = Subject(topic, half.msg_id)
        self._note(
            trace.ended(
                subject,
                at_ms=self._session.clock.now_ms(),
                region=half.region_id,
                group=self._group,
                store_host=self._host(half.queue),
                transaction_id=half.transaction_id or half.msg_id,
                state=_STATES[state.value],
                from_check=from_check,
            ),
            subject,
        )

    def over(self, subscriptions: Subscriptions) -> Subscriptions:
        """The same subscriptions, each handler with a word before and after its calls."""
        told = copy(subscriptions)
        told.replace_handlers(
            lambda topic: self.through(subscriptions.subscription_of(topic).handler)
        )
        return told

    def through(self, handler: Handler) -> Handler:
        """The handler, with a word before and after each of its calls."""
        if is_async(handler):
            told = cast("AsyncHandler", handler)

            async def traced(messages: list[MessageExt]) -> Any:
                finish, verdict = self._begin(messages), None
                is_raised = True
                try:
                    verdict = await told(messages)
                    is_raised = False
                finally:
                    finish(verdict, is_raised)
                return verdict

            return traced
        plain = cast("SyncHandler", handler)

        def traced_plain(messages: list[MessageExt]) -> Any:
            finish, verdict = self._begin(messages), None
            is_raised = True
            try:
                verdict = plain(messages)
                is_raised = False
            finally:
                finish(verdict, is_raised)
            return verdict

        return traced_plain

    async def flush(self) -> None:
        """Send all that waits; what no broker takes within `FLUSH_S` is dropped."""
        deadline = self._loop.time() + FLUSH_S
        while self._waiting:
            if self._loop.time() >= deadline:
                self.dropped += len(self._waiting)
                self._waiting.clear()
                return
            await self._send(self._next_batch(), deadline)

    def _note_sent(
        self,
        message: PreparedMessage,
        source: Message,
        queue: MessageQueue | None,
        began: float,
        kind: int,
        region: str,
        offset_msg_id: str | None,
    ) -> None:
        subject = Subject(source.topic, message.msg_id, source.tags or "", source.keys or "")
        cost_ms = int((self._loop.time() - began) * 1000)
        self._note(
            trace.sent(
                subject,
                at_ms=self._session.clock.now_ms() - cost_ms,
                region=region,
                group=self._group,
                store_host=self._host(queue) if queue else "",
                body_bytes=len(source.body),
                cost_ms=cost_ms,
                kind=kind,
                offset_msg_id=offset_msg_id or "",
                is_ok=offset_msg_id is not None,
            ),
            subject,
        )

    def _begin(self, messages: Sequence[MessageExt]) -> Callable[[object, bool], None]:
        """Tell that messages are about to be handled; what to call when they were."""
        told = [one for one in messages if one.properties.get(Property.TRACE_ON) != "false"]
        began, request_id = time.monotonic(), f"{self._session.client_id}-{next(_numbers)}"
        for one in told:
            subject = _subject(one)
            region = one.properties.get(Property.MSG_REGION, "")
            self._note(
                trace.before(
                    subject,
                    at_ms=self._session.clock.now_ms(),
                    region=region,
                    group=self._group,
                    request_id=request_id,
                    retries=one.reconsume_times,
                ),
                subject,
            )

        def finish(verdict: object, is_raised: bool) -> None:
            code, is_ok = _judged(verdict, is_raised)
            cost_ms = int((time.monotonic() - began) * 1000 / max(1, len(messages)))
            for one in told:
                subject = _subject(one)
                self._note(
                    trace.after(
                        subject,
                        at_ms=self._session.clock.now_ms(),
                        group=self._group,
                        request_id=request_id,
                        cost_ms=cost_ms,
                        is_ok=is_ok,
                        code=code,
                    ),
                    subject,
                )

        return finish

    def _note(self, record: str, subject: Subject) -> None:
        if len(self._waiting) >= WAITING_MAX:
            self.dropped += 1
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
            if not self.dropped:
                log.warning("the message trace is not taken, its records are dropped: %s", error)
            self.dropped += len(batch)

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


def _subject(message: MessageExt) -> Subject:
    return Subject(message.topic, message.msg_id, message.tags or "", " ".join(message.keys))


def _judged(verdict: object, is_raised: bool) -> tuple[int, bool]:
    if is_raised:
        return trace.EXCEPTION, False
    if isinstance(verdict, ConsumeStatus) and not verdict.is_done:
        return trace.FAILED, False
    return trace.SUCCESS, True
