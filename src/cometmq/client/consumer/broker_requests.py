"""Answers requests of brokers to a consumer: rebalance, reset, running info, handle a message.

Owns the codes 40, 220, 221, 307 and 309; knows nothing of how messages are handled. Invariant: a
request about another group, or one that cannot be read, is answered with SYSTEM_ERROR and changes
nothing.
Java: ClientRemotingProcessor
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, cast

from cometmq.client.consumer import message_decoder as decode
from cometmq.client.handling import handler_call as handlers
from cometmq.errors import ProtocolError
from cometmq.model.admin_stats import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ProcessQueueInfo,
)
from cometmq.model.results import ConsumeStatus
from cometmq.wire.bodies.admin import encode_directly_result, encode_running_info
from cometmq.wire.bodies.member_work import WORK_PROPERTY, encode_work
from cometmq.wire.bodies.offset import decode_reset_offset, encode_consumer_status
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import response
from cometmq.wire.headers.admin import ResetOffsetRequestHeader
from cometmq.wire.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)
from cometmq.wire.records import log_record as stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.consumer.consumer_options import ConsumerOptions
    from cometmq.client.consumer.consumer_statistics import ConsumerStatistics
    from cometmq.client.consumer.queue_assignment import QueueAssignment
    from cometmq.client.consumer.rebalance import Rebalance
    from cometmq.client.consumer.subscriptions import Subscriptions
    from cometmq.client.handling.handler_call import AsyncHandler, HandlerOutcome, SyncHandler
    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.group_work import MemberWork
    from cometmq.model.message import MessageExt
    from cometmq.net.channel import Channel
    from cometmq.wire.command import Command


class BrokerRequestHandler:
    """Answers requests of brokers for one consumer. One loop owns it."""

    def __init__(
        self,
        session: ClientSession,
        options: ConsumerOptions,
        subscriptions: Subscriptions,
        rebalance: Rebalance,
        assignment: QueueAssignment,
        stats: ConsumerStatistics,
        strategy_info: Callable[[], dict[str, str]],
        work: Callable[[], MemberWork] | None = None,
        threads: Callable[[], int] | None = None,
    ) -> None:
        self._session = session
        self._options = options
        self._stats = stats
        self._strategy_info = strategy_info
        self._work = work
        self._threads = threads or (lambda: options.consume_threads)
        self._subscriptions = subscriptions
        self._rebalance = rebalance
        self._assignment = assignment
        self._started_ms = session.clock.now_ms()

    def register(self) -> None:
        """Answer from now on."""
        table: dict[int, Callable[[Command, Channel], None]] = {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._members_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._directly,
        }
        for code, answer in table.items():
            self._session.request_handlers[code] = _guarded(answer)

    def _members_changed(self, command: Command, channel: Channel) -> None:
        del channel
        header = NotifyConsumerIdsChangedRequestHeader.decode(command.ext)
        if header.consumer_group == self._options.group:
            self._rebalance.wake()

    def _reset(self, command: Command, channel: Channel) -> None:
        self._require_own(ResetOffsetRequestHeader.decode(command.ext).group)
        for queue, offset in decode_reset_offset(command.body).items():
            if assigned := self._assignment.table.get(queue):
                self._assignment.restart_at(assigned, offset)
        _answer(channel, command)

    def _status(self, command: Command, channel: Channel) -> None:
        header = GetConsumerStatusRequestHeader.decode(command.ext)
        self._require_own(header.group)
        own = {
            queue: assigned.window.commit_offset
            for queue, assigned in self._assignment.table.items()
            if queue.topic == header.topic
        }
        _answer(channel, command, encode_consumer_status(own, {self._session.client_id: own}))

    def _running_info(self, command: Command, channel: Channel) -> None:
        self._require_own(GetConsumerRunningInfoRequestHeader.decode(command.ext).consumer_group)
        info = ConsumerRunningInfo(
            properties={
                "PROP_NAMESERVER_ADDR": ";".join(self._session.options.namesrv),
                "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
                "PROP_CLIENT_VERSION": "V5_3_3",
                "PROP_CONSUMEORDERLY": "true" if self._options.is_locking else "false",
                "PROP_THREADPOOL_CORE_SIZE": str(self._threads()),
                "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
                **self._strategy_info(),
                **({} if self._work is None else {WORK_PROPERTY: encode_work(self._work())}),
            },
            subscriptions=self._subscriptions.data(),
            mq_table={
                queue: self._queue_info(assigned)
                for queue, assigned in self._assignment.table.items()
            },
            status_table=self._stats.table(),
        )
        _answer(channel, command, encode_running_info(info))

    def _require_own(self, group: str) -> None:
        if group != self._options.group:
            raise ProtocolError(f"this client is no member of {group}")

    def _queue_info(self, assigned: AssignedQueue) -> ProcessQueueInfo:
        window, now = assigned.window, asyncio.get_running_loop().time()
        wall_ms = self._session.clock.now_ms()

        def ago(at: float) -> int:
            return wall_ms - int((now - at) * 1000) if at else 0

        return ProcessQueueInfo(
            commit_offset=window.commit_offset,
            cached_msg_min_offset=window.commit_offset if window.count else 0,
            cached_msg_max_offset=window.commit_offset + window.span if window.count else 0,
            cached_msg_count=window.count,
            cached_msg_size_in_mib=window.size_bytes // 1_048_576,
            locked=assigned.holds_lock(now),
            last_lock_timestamp=ago(self._locked_at(assigned)),
            dropped=assigned.is_dropped,
            last_pull_timestamp=ago(assigned.pulled_at),
            last_consume_timestamp=ago(assigned.consumed_at),
        )

    def _locked_at(self, assigned: AssignedQueue) -> float:
        """When the queue's lock was last asked for with success (loop time); 0: never."""
        until = assigned.lock.until
        return until - self._options.lock_valid_s if 0 < until < inf else 0.0

    def _directly(self, command: Command, channel: Channel) -> None:
        header = ConsumeMessageDirectlyResultRequestHeader.decode(command.ext)
        self._require_own(header.consumer_group)
        message = decode.decode_message(
            stored.decode(command.body), header.broker_name or "", self._options.inflated_bytes_max
        )
        self._session.background.spawn(
            self._handle(message, command, channel), name="consume directly"
        )

    async def _handle(self, message: MessageExt, command: Command, channel: Channel) -> None:
        loop = asyncio.get_running_loop()
        decode.restore_topics([message])
        began = loop.time()
        outcome = handlers.unreadable_outcome([message]) or await self._call_handler(message)
        result = ConsumeMessageDirectlyResult(
            consume_result=_direct_result(outcome),
            order=self._options.is_locking,
            remark=outcome.reason or None,
            spent_time_ms=int((loop.time() - began) * 1000),
        )
        _answer(channel, command, encode_directly_result(result))

    async def _call_handler(self, message: MessageExt) -> HandlerOutcome:
        subscription = self._subscriptions.subscription_of(message.topic)
        if subscription.is_async:
            awaited = cast("AsyncHandler", subscription.handler)
            return await handlers.call_async_handler(awaited, [message])
        plain, loop = cast("SyncHandler", subscription.handler), asyncio.get_running_loop()
        return await loop.run_in_executor(None, handlers.call_handler, plain, [message])


def _direct_result(outcome: HandlerOutcome) -> str:
    """RocketMQ's name of an outcome."""
    if outcome.error is not None:
        return "CR_THROW_EXCEPTION"
    if outcome.status in (ConsumeStatus.COMMIT, ConsumeStatus.ROLLBACK):
        return f"CR_{outcome.status.value}"
    return "CR_SUCCESS" if outcome.is_done else "CR_LATER"


def _answer(channel: Channel, command: Command, body: bytes = b"") -> None:
    if not command.is_oneway:
        channel.answer(response(command.opaque, ResponseCode.SUCCESS, body=body))


def _guarded(
    answer: Callable[[Command, Channel], None],
) -> Callable[[Command, Channel], None]:
    """Answer SYSTEM_ERROR to what cannot be read, and keep the connection."""

    def guarded(command: Command, channel: Channel) -> None:
        try:
            answer(command, channel)
        except ProtocolError as error:
            if not command.is_oneway:
                code = ResponseCode.SYSTEM_ERROR
                channel.answer(response(command.opaque, code, remark=str(error)))

    return guarded
