"""AsyncProducer: sends single messages, batches, one-way messages, transactions and requests.

Owns the public sending methods; refuses to know frames and retries (`send_pipeline`).
Invariant: sends of one sharding key leave one after the other, retries included; sends of other
keys do not wait for them.
Java: DefaultMQProducer
"""

from __future__ import annotations

import asyncio
import os
from inspect import isawaitable
from typing import TYPE_CHECKING, Self, Unpack

from cometmq.client.producer import message_checks as checks
from cometmq.client.producer.producer_options import producer_options
from cometmq.client.producer.producer_samples import producer_samples
from cometmq.client.producer.recall import recall
from cometmq.client.producer.request_reply import RequestReply
from cometmq.client.producer.retrying_sender import UNTIL_DEADLINE
from cometmq.client.producer.send_fast_path import result_of
from cometmq.client.producer.send_pipeline import SendPipeline
from cometmq.client.producer.thread_sender import FailedSend
from cometmq.client.producer.transactions import AsyncTransaction, ProducerTransactions, state_of
from cometmq.client.session.argument_checks import check_function
from cometmq.client.session.client_session import (
    ClientSession,
    require_not_started,
    require_started,
)
from cometmq.errors import CometError, TooManyRequests
from cometmq.model.message import Message
from cometmq.model.producer_stats import ProducerStats
from cometmq.model.results import TransactionResult, TransactionState
from cometmq.runtime.loop_clock import clock_of_running_loop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from cometmq.client.producer.producer_options import ProducerSettings, TransactionVerdict
    from cometmq.client.producer.queue_selector import SelectQueue
    from cometmq.metrics.registry import Sample
    from cometmq.model.message import MessageExt
    from cometmq.model.queue import MessageQueue
    from cometmq.model.results import SendResult


class AsyncProducer:
    """Sends messages to the brokers that the name servers know.

    `group` is the name of all producers that send for one purpose. `namesrv` is "host:port",
    several joined by ";" or as a list; without it the environment's NAMESRV_ADDR is used. `retries`
    counts further attempts after the first, on other brokers where there are any; one attempt takes
    at most `attempt_timeout_s` (None: all the time of the call). Bodies from
    `compress_over_bytes` on are compressed. `check`, a plain or async function of a message,
    answers a broker that checks back on an open transaction: True, False, or None for later.

    `retry_not_ok`: a message that was stored, but not as safely as asked for, goes to another
    broker as well. `latency_fault`, "classic" (RocketMQ 4), "current" (5) or a
    LatencyTable, avoids slow and failing brokers for a while; `detect_faults` probes whether an
    unreachable broker is back.
    `keys`, "hash" or "balanced", says how a sharding key finds its queue; with `strict_order` a
    send fails rather than let a key change its queue. `compression` is "zlib", "lz4" or "zstd".

    `access_key`, `secret_key` and `security_token` sign all requests, `tls` (True or an SSLContext)
    encrypts them, `namespace` or `namespace_v2` is the instance of a shared cluster, and
    `unit_name` a part of the client id. `trace`, True or a topic's name, records every message in
    RocketMQ's trace topic. `middleware` is a list of `Middleware`, which are called before and
    after each send. Use it as a context manager, or call start and stop.
    """

    def __init__(self, group: str, **settings: Unpack[ProducerSettings]) -> None:
        self._client_options, self._options = producer_options(group, settings, os.environ)
        self._session: ClientSession | None = None
        self._now: Callable[[], float]
        self.pipeline: SendPipeline
        """Set by start. Not for users: the blocking producer needs it."""
        self._transactions: ProducerTransactions
        self._request_reply: RequestReply
        self._pending: set[asyncio.Task[SendResult]] = set()

    async def start(self) -> None:
        """Get ready to send; does not wait for a server.

        The log has a warning soon where no name server answers or knows a broker. Raises
        ClientError when the producer is started already.
        """
        require_not_started(self._session, "producer")
        session = ClientSession(self._client_options, clock_of_running_loop())
        session.register_producer(self._options.group)
        session.start()
        group = self._options.group
        session.background.spawn(session.warn_unless_routed(group), name="name servers")
        self._session = session
        self._now = asyncio.get_running_loop().time
        self.pipeline = SendPipeline(session, self._options)
        self._transactions = ProducerTransactions(self.pipeline, self._options)
        self._request_reply = RequestReply(self.pipeline, self._options)

    async def stop(self) -> None:
        """Wait for the sends begun with send_async, then close all connections."""
        if self._session is not None:
            self.pipeline.thread_sender.close()
            self._transactions.close()
            try:
                await asyncio.gather(*self._pending, return_exceptions=True)
                if self.pipeline.trace is not None:
                    await self.pipeline.trace.flush()
            finally:  # also when the caller is cancelled
                session, self._session = self._session, None
                if session is not None:
                    self.pipeline.thread_sender.abort()
                    await session.stop()

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop."""
        await self.stop()

    async def send(
        self,
        message: Message,
        timeout_s: float = 3.0,
        *,
        queue: MessageQueue | SelectQueue | None = None,
    ) -> SendResult:
        """Send one message and wait until a broker has stored it.

        The queue is the one given, or chosen by a function of the topic's queues and the message
        (`by_hash` makes one), else that of the message's sharding key, else the next one,
        round-robin. `timeout_s` bounds the whole call, retries included. Raises InvalidMessage,
        RouteNotFound, RemotingError (RemotingTimeout at the deadline) or BrokerError.
        """
        if self._session is None or type(timeout_s) is not float or not timeout_s > 0:
            require_started(self._session, "producer")
            checks.check_timeout(timeout_s)
        deadline = self._now() + timeout_s
        pipeline = self.pipeline
        if pipeline.hooks is not None:
            return await pipeline.send_with_hooks(message, queue, deadline)
        if type(message) is not Message:
            checks.check_kind(message)
        if queue is not None:
            return await pipeline.send_to(message, queue, deadline)
        if message.sharding_key is not None:
            return await pipeline.send_in_key_order(message, deadline)
        answer = pipeline.new_answer()
        posted = pipeline.fast_path.post(answer, message, deadline)
        if posted is None:
            return await pipeline.send_slow_path(message, None, deadline)
        target, msg_id, born_ms = posted
        try:
            result = result_of(target, target.addr, msg_id, await answer)
            counts = target.counts
            counts.ok += 1
            counts.spent_s += self._now() - deadline + timeout_s
            return result
        except CometError as error:
            target.counts.failed += 1
            failed = FailedSend(msg_id, born_ms, (error, target.queue))
            return await pipeline.send_after_failure(message, failed, deadline)

    def send_async(
        self,
        message: Message,
        timeout_s: float = 3.0,
        *,
        queue: MessageQueue | SelectQueue | None = None,
    ) -> asyncio.Future[SendResult]:
        """Begin to send one message and return the future of its result; otherwise like send.

        Messages of one sharding key leave in the order of the calls. When 65,535 sends are under
        way it fails with TooManyRequests and nothing is sent: an AsyncProducer raises it, a
        Producer sets it as the future's exception. A Producer raises it when as many calls wait to
        begin.
        """
        require_started(self._session, "producer")
        if len(self._pending) >= self._options.pending_max:
            raise TooManyRequests(f"{len(self._pending)} sends are under way; wait for some first")
        task = asyncio.get_running_loop().create_task(self.send(message, timeout_s, queue=queue))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        return task

    async def send_oneway(
        self, message: Message, *, queue: MessageQueue | SelectQueue | None = None
    ) -> None:
        """Write one message to a broker, which sends no response: it may be lost unnoticed.

        Raises InvalidMessage, RouteNotFound, or RemotingError when there is no connection.
        """
        session = require_started(self._session, "producer")
        pipeline, now_ms = self.pipeline, session.clock.now_ms()

        async def send() -> None:
            prepared = pipeline.prepare(message, session.uniq_keys.next_key(now_ms), now_ms)
            await pipeline.send_oneway(prepared, message, queue)

        await pipeline.with_hooks("oneway", message, send, queue)

    async def send_batch(
        self, messages: Iterable[Message], timeout_s: float = 3.0
    ) -> list[SendResult]:
        """Send messages of one topic in as few requests as possible; one result for each, in order.

        Messages with a sharding key go to the key's queue, in their order; the others share one
        queue. Retried like send. Raises PartlySent (with the results so far) when some of several
        requests failed, else the error itself.
        """
        if self._session is None or type(timeout_s) is not float or not timeout_s > 0:
            require_started(self._session, "producer")
            checks.check_timeout(timeout_s)
        # a copy: the caller's list may change while the batch waits
        found = messages.copy() if type(messages) is list else checks.message_list(messages)
        deadline, retries = self._now() + timeout_s, self._options.retries
        if self.pipeline.hooks is None:
            results = await self.pipeline.batch_sender.send_one_frame(found, deadline, retries)
            if results is not None:
                return results
        found = checks.message_list(found)
        checks.check_batch(found)
        return await self.pipeline.send_list(found, timeout_s, retries, is_spread=False)

    async def send_many(
        self, messages: Iterable[Message], timeout_s: float = 60.0
    ) -> list[SendResult]:
        """Send many messages fast and in order; one result for each, in the order given.

        Messages are grouped by queue: a queue has one request under way, queues go side by side,
        and no queue is ever reordered. While a broker is away its messages wait and are tried again
        until `timeout_s` seconds are over. Raises PartlySent (its `results` say what was stored).
        """
        require_started(self._session, "producer")
        checks.check_timeout(timeout_s)
        found = checks.message_list(messages)
        return await self.pipeline.send_list(found, timeout_s, UNTIL_DEADLINE, is_spread=True)

    def transaction(self) -> AsyncTransaction:
        """A block whose messages are committed at its end and rolled back by an exception.

        Give the producer a `check` as well: brokers call it for transactions that were never ended.
        """
        return AsyncTransaction(self._in_transactions)

    async def send_in_transaction(
        self,
        message: Message,
        local: Callable[[Message], TransactionVerdict | Awaitable[TransactionVerdict]],
        timeout_s: float = 3.0,
    ) -> TransactionResult:
        """Store a half message, run `local` with it, and end as that says.

        True commits, False rolls back, None leaves it open: the broker checks back by the
        producer's `check`. An exception leaves it open as well, and is raised. Other errors are
        those of send.
        """
        check_function("local", local, "a function of the message")
        checks.check_timeout(timeout_s)
        transactions = self._in_transactions()
        sent = await transactions.send_half(message, timeout_s)
        state = TransactionState.UNKNOWN
        try:
            verdict = local(message)
            state = state_of(await verdict if isawaitable(verdict) else verdict)
        finally:
            await transactions.end(message.topic, sent, state, timeout_s)
        return TransactionResult(sent, state)

    async def request(self, message: Message, timeout_s: float = 3.0) -> MessageExt:
        """Send a message and wait for the reply that its consumer sends with `reply`.

        Raises RemotingTimeout when none comes in time; otherwise like send.
        """
        require_started(self._session, "producer")
        checks.check_timeout(timeout_s)
        return await self._request_reply.request(message, timeout_s)

    async def reply(
        self,
        request: MessageExt,
        body: bytes,
        timeout_s: float = 3.0,
        *,
        properties: Mapping[str, str] | None = None,
    ) -> SendResult:
        """Answer a message that was sent with `request`; called in its consumer.

        `properties` are those of the reply. Raises InvalidMessage when it is no request,
        BrokerError when the requesting client is gone.
        """
        require_started(self._session, "producer")
        checks.check_timeout(timeout_s)
        return await self._request_reply.reply(request, body, timeout_s, properties)

    async def recall(self, topic: str, handle: str, timeout_s: float = 3.0) -> str:
        """Take back a message at a time of its own that is not due yet; returns its msg_id.

        `handle` is the `recall_handle` of its send's result. The broker accepts it without looking
        for the message, and leaves the message out when it is due. Not retried. Raises
        InvalidMessage for what is no handle, RouteNotFound, RemotingError, or BrokerError: the
        message was due, or the broker's recallMessageEnable is false, as it is by default.
        """
        session = require_started(self._session, "producer")
        checks.check_topic(topic)
        checks.check_timeout(timeout_s)
        return await recall(session, self._options, topic, handle, timeout_s)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that messages may be sent to, in their order."""
        session = require_started(self._session, "producer")
        checks.check_topic(topic)
        return await session.routes.publish_queues(topic, self._options.default_topic_queues)

    def stats(self) -> ProducerStats:
        """Rates, latency and requests under way by broker, and who is avoided; empty before start.

        Rates are of the last minute.
        """
        if self._session is None:
            return ProducerStats({}, 0.0, 0)
        return self.pipeline.stats(len(self._pending))

    def metric_samples(self) -> list[Sample]:
        """What `ClientMetrics` shows of the producer: counts since the start, and how it is now."""
        if self._session is None:
            return []
        return producer_samples(self._session.client_id, self.pipeline)

    def _in_transactions(self) -> ProducerTransactions:
        require_started(self._session, "producer")
        return self._transactions
