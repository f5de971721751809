"""Sends one message, or one batch, with retries: attempt, response, pause, next attempt.

Owns retries and the pauses between them; refuses to know key locks, validation and how frames are
built. Invariants: a whole call, all attempts and pauses together, ends at its deadline; every
attempt carries the same UNIQ_KEY.
Java: DefaultMQProducerImpl.sendDefaultImpl
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from cometmq.client.producer import prepared_message as frames
from cometmq.client.producer.send_statistics import UNROUTED, SendStatistics
from cometmq.client.session.client_session import before_deadline
from cometmq.errors import BrokerError, ClientStopped, CometError, RemotingTimeout
from cometmq.model.results import SendResult, SendStatus
from cometmq.rules.failures.retry_policy import backoff_s
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cometmq.client.producer.latency_tracker import LatencyTracker
    from cometmq.client.producer.prepared_message import (
        EncodedBatch,
        PreparedBatch,
        PreparedMessage,
    )
    from cometmq.client.producer.producer_options import ProducerOptions
    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.queue import MessageQueue
    from cometmq.wire.command import Command

    ChooseQueue = Callable[[str | None], Awaitable[MessageQueue]]
    """Chooses the queue of an attempt, given the name of the broker that failed last."""
    FailedAttempt = tuple[CometError, MessageQueue]
    """The error of an attempt, and the queue it was made to."""

T = TypeVar("T")
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
UNTIL_DEADLINE = 1_000_000_000
"""A number of retries that only the deadline ends, or brokers that do not permit the send."""
_RETRIES_WITHOUT_PERMISSION = 2


class RetryingSender:
    """Sends for one producer group. One loop owns it."""

    def __init__(
        self,
        session: ClientSession,
        options: ProducerOptions,
        latency_tracker: LatencyTracker | None = None,
        statistics: SendStatistics | None = None,
    ) -> None:
        self._statistics = statistics or SendStatistics(session.clock.monotonic_s)
        self.options = options
        self._session = session
        self._latency_tracker = latency_tracker

    async def send(
        self,
        message: PreparedMessage,
        choose: ChooseQueue,
        retries: int,
        deadline: float,
        attempt_s: float | None = None,
        *,
        failed: FailedAttempt | None = None,
    ) -> SendResult:
        """Send one message to the queue that `choose` returns.

        One attempt is bounded by `attempt_s` (None: the producer's `attempt_timeout_s`), all
        together by `deadline` (the loop's time). `failed` is an attempt that was made already.
        Raises the error of the last attempt, which names that of the first.
        """
        result: SendResult = await self._retry(
            message.topic,
            choose,
            lambda queue, left_s: self._attempt(message, queue, left_s),
            retries,
            deadline,
            attempt_s,
            failed,
        )
        return result

    async def send_batch(
        self,
        sent: PreparedBatch,
        choose: ChooseQueue,
        retries: int,
        deadline: float,
        attempt_s: float | None = None,
        *,
        failed: FailedAttempt | None = None,
    ) -> list[SendResult]:
        """Send one batch frame; otherwise like `send`."""
        results: list[SendResult] = await self._retry(
            sent.topic,
            choose,
            lambda queue, left_s: self._attempt_batch(sent, queue, left_s),
            retries,
            deadline,
            attempt_s,
            failed,
        )
        return results

    async def send_encoded(
        self,
        sent: EncodedBatch,
        choose: ChooseQueue,
        retries: int,
        deadline: float,
        attempt_s: float,
    ) -> SendResult:
        """Send one batch frame for a caller who needs no result of each message, like `send`.

        After SYSTEM_ERROR it is not tried again: brokers answer so to a batch, or a message in one,
        that is larger than they take. The caller sends the messages in parts.
        """
        result: SendResult = await self._retry(
            sent.topic,
            choose,
            lambda queue, left_s: self._attempt_encoded(sent, queue, left_s),
            retries,
            deadline,
            attempt_s,
        )
        return result

    async def send_oneway(self, message: PreparedMessage, queue: MessageQueue) -> None:
        """Write one message to the queue's broker, which sends no response."""
        addr = self._session.routes.master_addr(queue.broker_name)
        channel = await self._session.open_channel(addr)
        channel.oneway(
            frames.send_request(
                message,
                self.options.group,
                queue,
                self.options.default_topic_queues,
                oneway=True,
            )
        )

    async def _retry(
        self,
        topic: str,
        choose: ChooseQueue,
        attempt: Callable[[MessageQueue, float], Awaitable[T]],
        retries: int,
        deadline: float,
        attempt_s: float | None,
        failed: FailedAttempt | None = None,
    ) -> T:
        failures, failed_broker = 0, None
        attempt_s = attempt_s or self.options.attempt_timeout_s
        unsafe: T | None = None
        first: CometError | None = None
        while True:
            queue = None
            try:
                if failed is not None:
                    (error, queue), failed = failed, None
                    raise error
                queue = await before_deadline(
                    deadline, choose(failed_broker), f"the route of {topic}"
                )
                left_s = self._left_s(deadline)
                found = await self._timed(attempt, queue, min(left_s, attempt_s or left_s))
                is_last = failures >= retries or self._left_s(deadline) <= 0
                if is_last or self._is_safe(found):
                    return found
                unsafe, failures = found, failures + 1
            except CometError as error:
                failures, first = failures + 1, first or error
                error.note_first(first)
                if queue is None:
                    self._statistics.of(UNROUTED).failed += 1
                if unsafe is not None:  # it was stored once: a failed second copy is no error
                    return unsafe
                retries_left = _retries_after(error, retries) - failures
                if not error.retriable or retries_left < 0:
                    raise
                if self._session.is_stopped:
                    raise ClientStopped from error
                least_s = 0.0
                if error.stale_route:
                    stale, routes = queue.topic if queue else topic, self._session.routes
                    routes.mark_stale(stale)
                    # the last attempt is made with a route fetched after a failure
                    least_s = 0.0 if retries_left else routes.refresh_wait_s(stale)
                await self._pause(error, failures, deadline, least_s)
            failed_broker = queue.broker_name if queue else None

    def _is_safe(self, found: object) -> bool:
        """Whether the result needs no attempt at another broker."""
        first = found[0] if isinstance(found, list) else found
        is_ok = not isinstance(first, SendResult) or first.status is SendStatus.SEND_OK
        return is_ok or not self.options.retry_not_ok

    async def _timed(
        self,
        attempt: Callable[[MessageQueue, float], Awaitable[T]],
        queue: MessageQueue,
        left_s: float,
    ) -> T:
        """Make one attempt, and have its latency or its failure recorded."""
        tracker, begun = self._latency_tracker, asyncio.get_running_loop().time()
        try:
            found = await attempt(queue, left_s)
        except CometError as error:
            self._statistics.of(queue.broker_name).failed += 1
            if tracker is not None:
                tracker.record_failure(queue.broker_name, error)
            raise
        counts = self._statistics.of(queue.broker_name)
        counts.ok += 1
        counts.spent_s += asyncio.get_running_loop().time() - begun
        if tracker is not None:
            tracker.record_success(queue.broker_name, begun)
        return found

    async def _pause(
        self, error: CometError, failures: int, deadline: float, least_s: float
    ) -> None:
        """Pause before the next attempt, `least_s` where the deadline leaves that much time.

        Raises the error when the deadline comes before a pause as usual is over.
        """
        pause_s, left_s = (
            backoff_s(failures, _FIRST_PAUSE_S, _LONGEST_PAUSE_S),
            self._left_s(deadline),
        )
        if left_s <= pause_s:
            raise error
        await asyncio.sleep(max(pause_s, least_s) if least_s < left_s else pause_s)

    def _left_s(self, deadline: float) -> float:
        return deadline - asyncio.get_running_loop().time()

    async def _attempt(
        self, message: PreparedMessage, queue: MessageQueue, left_s: float
    ) -> SendResult:
        addr = self._session.routes.master_addr(queue.broker_name)
        options = self.options
        command = frames.send_request(message, options.group, queue, options.default_topic_queues)
        answer = await self._session.call(addr, command, _positive(left_s))
        return frames.result_of(answer, addr, queue, message.msg_id)

    async def _attempt_batch(
        self, sent: PreparedBatch, queue: MessageQueue, left_s: float
    ) -> list[SendResult]:
        answer, addr = await self._call_batch(sent, queue, left_s)
        return frames.batch_results_of(answer, addr, queue, sent.msg_ids)

    async def _attempt_encoded(
        self, sent: EncodedBatch, queue: MessageQueue, left_s: float
    ) -> SendResult:
        answer, addr = await self._call_batch(sent, queue, left_s)
        try:
            return frames.result_of(answer, addr, queue, sent.first_id)
        except BrokerError as error:
            error.retriable &= error.code != ResponseCode.SYSTEM_ERROR
            raise

    async def _call_batch(
        self, sent: PreparedBatch | EncodedBatch, queue: MessageQueue, left_s: float
    ) -> tuple[Command, str]:
        addr = self._session.routes.master_addr(queue.broker_name)
        command = frames.batch_request(sent, self.options, queue)
        return await self._session.call(addr, command, _positive(left_s)), addr


def _retries_after(error: CometError, retries: int) -> int:
    """How many retries there are: another broker may permit what this one doesn't, time won't."""
    if isinstance(error, BrokerError) and error.code == ResponseCode.NO_PERMISSION:
        return min(retries, _RETRIES_WITHOUT_PERMISSION)
    return retries


def _positive(left_s: float) -> float:
    if left_s <= 0:
        raise RemotingTimeout("the time given for the call is over before it was sent")
    return left_s
