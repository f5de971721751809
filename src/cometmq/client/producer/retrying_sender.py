"""Gets one message, or one batch, to a broker: attempt, answer, next attempt, deadline.

Owns retries and their pauses; refuses to know lanes, validation and how frames are built.
Invariant: a whole call, all attempts and pauses together, ends at its deadline; every attempt
carries the same UNIQ_KEY.
Java: DefaultMQProducerImpl.sendDefaultImpl
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from cometmq.client.producer import prepared_message as frames
from cometmq.client.session.client_session import within
from cometmq.errors import CometError, RemotingTimeout
from cometmq.model.results import SendResult, SendStatus
from cometmq.rules.retry_policy import backoff_s

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cometmq.client.producer.latency_tracker import Faults
    from cometmq.client.producer.prepared_message import Outgoing, OutgoingBatch
    from cometmq.client.session.client_options import ProducerOptions
    from cometmq.client.session.client_session import Core
    from cometmq.model.queue import MessageQueue

    Choose = Callable[[str | None], Awaitable[MessageQueue]]
    Failed = tuple[CometError, MessageQueue]

T = TypeVar("T")
_PAUSE_FIRST_S, _PAUSE_MOST_S = 0.05, 1.0
UNTIL_DEADLINE = 1_000_000_000
"""A number of retries that only the deadline ends."""


class Delivery:
    """Sends for one producer group over one core. One loop owns it."""

    def __init__(self, core: Core, options: ProducerOptions, faults: Faults | None = None) -> None:
        self._core, self.options, self._faults = core, options, faults

    async def one(
        self,
        message: Outgoing,
        choose: Choose,
        retries: int,
        deadline: float,
        attempt_s: float | None = None,
        *,
        failed: Failed | None = None,
    ) -> SendResult:
        """Send one message to the queue that `choose` names, given the broker that failed last.

        One attempt is bounded by `attempt_s`, all together by `deadline` (the loop's time).
        `failed` is an attempt that was made already: its error, and where to. Raises the error of
        the last attempt.
        """
        result: SendResult = await self._try(
            message.topic,
            choose,
            lambda queue, left_s: self._send(message, queue, min(left_s, attempt_s or left_s)),
            retries,
            deadline,
            failed,
        )
        return result

    async def batch(
        self,
        sent: OutgoingBatch,
        choose: Choose,
        retries: int,
        deadline: float,
        attempt_s: float | None = None,
        *,
        failed: Failed | None = None,
    ) -> list[SendResult]:
        """Send one batch frame; otherwise like `one`."""
        results: list[SendResult] = await self._try(
            sent.topic,
            choose,
            lambda queue, left_s: self._send_batch(sent, queue, min(left_s, attempt_s or left_s)),
            retries,
            deadline,
            failed,
        )
        return results

    async def oneway(self, message: Outgoing, queue: MessageQueue) -> None:
        """Write one message to the queue's broker; nobody says whether it arrived."""
        addr = self._core.routes.master(queue.broker_name)
        channel = await self._core.pool.channel(addr)
        channel.oneway(
            frames.send_request(
                message,
                self.options.group,
                queue,
                self.options.default_topic_queues,
                oneway=True,
            )
        )

    async def _try(
        self,
        topic: str,
        choose: Choose,
        attempt: Callable[[MessageQueue, float], Awaitable[T]],
        retries: int,
        deadline: float,
        failed: Failed | None = None,
    ) -> T:
        failures, failed_broker, left_s = 0, None, self._left_s(deadline)
        unsafe: T | None = None
        while True:
            queue = None
            try:
                if failed is not None:
                    (error, queue), failed = failed, None
                    raise error
                queue = await within(deadline, choose(failed_broker), f"the route of {topic}")
                left_s = self._left_s(deadline)
                found = await self._timed(attempt, queue, left_s)
                left_s = self._left_s(deadline)
                if failures >= retries or left_s <= 0 or self._is_safe(found):
                    return found
                unsafe, failures = found, failures + 1
            except CometError as error:
                failures += 1
                if unsafe is not None:  # a message that was stored once is no error
                    return unsafe
                if not error.retriable or failures > retries:
                    raise
                if error.stale_route:
                    self._core.routes.spoil(queue.topic if queue else topic)
                left_s = await self._rest(error, failures, deadline)
            failed_broker = queue.broker_name if queue else None

    def _is_safe(self, found: object) -> bool:
        """Whether the answer needs no attempt at another broker."""
        first = found[0] if isinstance(found, list) else found
        is_ok = not isinstance(first, SendResult) or first.status is SendStatus.SEND_OK
        return is_ok or not self.options.retry_not_ok

    async def _timed(
        self,
        attempt: Callable[[MessageQueue, float], Awaitable[T]],
        queue: MessageQueue,
        left_s: float,
    ) -> T:
        """Make one attempt, and tell the latency-fault strategy how it went."""
        faults, begun = self._faults, asyncio.get_running_loop().time()
        try:
            found = await attempt(queue, left_s)
        except CometError as error:
            if faults is not None:
                faults.failed(queue.broker_name, error)
            raise
        if faults is not None:
            faults.answered(queue.broker_name, begun)
        return found

    async def _rest(self, error: CometError, failures: int, deadline: float) -> float:
        """Pause before the next attempt; raises the error when the deadline comes first."""
        pause_s = backoff_s(failures, _PAUSE_FIRST_S, _PAUSE_MOST_S)
        if self._left_s(deadline) <= pause_s:
            raise error
        await asyncio.sleep(pause_s)
        return self._left_s(deadline)

    def _left_s(self, deadline: float) -> float:
        return deadline - asyncio.get_running_loop().time()

    async def _send(self, message: Outgoing, queue: MessageQueue, left_s: float) -> SendResult:
        addr = self._core.routes.master(queue.broker_name)
        options = self.options
        command = frames.send_request(message, options.group, queue, options.default_topic_queues)
        answer = await self._core.call(addr, command, _positive(left_s))
        return frames.result_of(answer, addr, queue, message.msg_id)

    async def _send_batch(
        self, sent: OutgoingBatch, queue: MessageQueue, left_s: float
    ) -> list[SendResult]:
        addr = self._core.routes.master(queue.broker_name)
        command = frames.batch_request(sent, self.options, queue)
        answer = await self._core.call(addr, command, _positive(left_s))
        return frames.batch_results_of(answer, addr, queue, sent.msg_ids)


def _positive(left_s: float) -> float:
    if left_s <= 0:
        raise RemotingTimeout("the time given for the call is over before it was sent")
    return left_s
