"""Pulls one queue after the other's answer, into its window, as long as it has room.

Owns the request, the pauses and the meaning of each answer; refuses to know handlers and who gave
us the queue. Invariant: one pull per queue is under way, and the window never holds more than its
limits and one answer.
Java: DefaultMQPushConsumerImpl.pullMessage, PullAPIWrapper
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from cometmq.client import decode
from cometmq.errors import (
    BrokerError,
    CometError,
    ProtocolError,
    RemotingError,
    RemotingTimeout,
)
from cometmq.model.results import PullResult, PullStatus
from cometmq.model.route import MASTER_ID
from cometmq.model.subscription import TAG
from cometmq.model.topic import is_retry_topic
from cometmq.rules.flow import is_full
from cometmq.rules.retry import backoff_s
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.headers import pull as bits
from cometmq.wire.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader

if TYPE_CHECKING:
    from typing import Protocol

    from cometmq.client.assigned import Assigned
    from cometmq.client.consumer_options import ConsumerOptions
    from cometmq.client.core import Core
    from cometmq.client.offset_store import OffsetStore
    from cometmq.client.subscriptions import Subscriptions
    from cometmq.model.message import MessageExt

    class Feeds(Protocol):
        """Who takes pulled messages."""

        def feed(self, assigned: Assigned, messages: list[MessageExt]) -> None:
            """Take messages that are in the window already."""

    class Restarts(Protocol):
        """Who can begin a queue anew elsewhere in it."""

        def restart(self, assigned: Assigned, offset: int) -> None:
            """Drop the queue's object and begin anew at `offset`."""


log = logging.getLogger(__name__)

_FULL_PAUSE_S = 0.05
_FLOW_CONTROL, _FLOW_CONTROL_PAUSE_S = 215, 0.02
_ERROR_PAUSE_FIRST_S, _ERROR_PAUSE_MOST_S = 0.1, 1.0
_ANSWER_GRACE_S = 15.0
_STATUS = {status.value: status for status in PullStatus}


class PullLoop:
    """Pulls for one consumer. One loop owns it."""

    def __init__(
        self,
        core: Core,
        options: ConsumerOptions,
        subscriptions: Subscriptions,
        offsets: OffsetStore,
        consume: Feeds,
        restarts: Restarts,
    ) -> None:
        self._core, self._options, self._subscriptions = core, options, subscriptions
        self._offsets, self._consume, self._restarts = offsets, consume, restarts

    def begin(self, assigned: Assigned) -> None:
        """Pull a queue until it is dropped."""
        work, name = self._run(assigned), f"pull {assigned.queue}"
        assigned.pull_task = asyncio.get_running_loop().create_task(work, name=name)

    async def _run(self, assigned: Assigned) -> None:
        failures, pause_s = 0, self._options.pull_interval_ms / 1000
        while not assigned.is_dropped:
            if self._is_full(assigned):
                await asyncio.sleep(_FULL_PAUSE_S)
                continue
            try:
                result = await self._pull(assigned)
            except CometError as error:
                failures += 1
                await self._after_error(assigned, error, failures)
                continue
            failures = 0
            self._take(assigned, result)
            if pause_s and result.status is PullStatus.FOUND:
                await asyncio.sleep(pause_s)

    def _is_full(self, assigned: Assigned) -> bool:
        window = assigned.window
        return is_full(
            self._options.flow,
            window.count,
            window.size_bytes,
            window.span,
            orderly=self._options.orderly,
        )

    def _take(self, assigned: Assigned, result: PullResult) -> None:
        if assigned.is_dropped:
            return
        if result.status is PullStatus.OFFSET_ILLEGAL:
            log.warning(
                "the offset %d of %s is not in the queue (%d to %d): going on at %d",
                assigned.window.next_offset,
                assigned.queue,
                result.min_offset,
                result.max_offset,
                result.next_offset,
            )
            self._restarts.restart(assigned, result.next_offset)
            return
        assigned.broker_id = result.suggested_broker_id
        accepted = assigned.window.put(result.messages, result.next_offset)
        if accepted:
            self._consume.feed(assigned, accepted)
        elif not assigned.window.count:
            self._offsets.remember(assigned.queue, assigned.window.commit_offset)

    async def _pull(self, assigned: Assigned) -> PullResult:
        addr = self._core.routes.reader(assigned.queue.broker_name, assigned.broker_id)
        command = request(RequestCode.PULL_MESSAGE, 0, self._header(assigned))
        timeout_s = self._options.poll_suspend_s + _ANSWER_GRACE_S
        answer = await self._core.call(addr, command, timeout_s)
        assigned.pulled_at = asyncio.get_running_loop().time()
        status = _STATUS.get(answer.code)
        if status is None:
            raise BrokerError(answer.code, answer.remark, addr)
        header = PullMessageResponseHeader.decode(answer.ext)
        messages: list[MessageExt] = []
        next_offset = header.next_begin_offset
        if status is PullStatus.FOUND:
            messages, next_offset = self._messages(assigned, answer.body, next_offset)
        return PullResult(
            status,
            next_offset,
            header.min_offset,
            header.max_offset,
            messages,
            header.suggest_which_broker_id,
        )

    def _messages(
        self, assigned: Assigned, body: bytes, next_offset: int
    ) -> tuple[list[MessageExt], int]:
        """The messages of an answer and where to go on: never beyond one that cannot be read."""
        topic, broker_name = assigned.queue.topic, assigned.queue.broker_name
        messages, is_whole = decode.messages_of(body, broker_name)
        if not is_whole:
            if not messages:
                raise ProtocolError(f"{assigned.queue} brought a record that cannot be read")
            next_offset = messages[-1].queue_offset + 1
        if tags := self._subscriptions.tags_of(topic):
            messages = decode.tagged(messages, tags)
        if is_retry_topic(topic):
            decode.restore_topic(messages)
        return messages, next_offset

    def _header(self, assigned: Assigned) -> PullMessageRequestHeader:
        queue, options = assigned.queue, self._options
        commit = self._offsets.remembered(queue)
        may_commit = commit > 0 and assigned.broker_id == MASTER_ID and not assigned.has_lost_lock
        return PullMessageRequestHeader(
            consumer_group=options.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=assigned.window.next_offset,
            max_msg_nums=options.pull_batch_size,
            sys_flag=bits.SUSPEND | (bits.COMMIT_OFFSET if may_commit else 0),
            commit_offset=commit if may_commit else 0,
            suspend_timeout_ms=int(options.poll_suspend_s * 1000),
            sub_version=self._subscriptions.version,
            expression_type=TAG,
            max_msg_bytes=options.pull_batch_bytes,
            broker_name=queue.broker_name,
        )

    async def _after_error(self, assigned: Assigned, error: Exception, failures: int) -> None:
        if isinstance(error, BrokerError) and error.code == _FLOW_CONTROL:
            await asyncio.sleep(_FLOW_CONTROL_PAUSE_S)
            return
        # a broker that is away is reported by the rounds of rebalance, once for all its queues
        is_news = failures == 5 and not isinstance(error, RemotingError)
        level = logging.WARNING if is_news else logging.DEBUG
        log.log(level, "pulling %s fails and will be tried again: %s", assigned.queue, error)
        if isinstance(error, RemotingTimeout):
            self._hang_up(assigned)
        if getattr(error, "stale_route", False):
            self._core.routes.spoil(assigned.queue.topic)
        await asyncio.sleep(backoff_s(failures, _ERROR_PAUSE_FIRST_S, _ERROR_PAUSE_MOST_S))

    def _hang_up(self, assigned: Assigned) -> None:
        """Close a connection on which a pull was never answered: the peer may be gone."""
        addr = self._core.routes.reader(assigned.queue.broker_name, assigned.broker_id)
        if channel := self._core.pool.open_channel(addr):
            channel.close()
