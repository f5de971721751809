"""Asks brokers for offsets of queues and of groups, and commits those of groups.

Owns the five requests about offsets; knows nothing of who consumes, and of where a group starts.
The route of a queue's topic must be known: it says where the broker is.
Java: MQClientAPIImpl.queryConsumerOffset, updateConsumerOffset, getMaxOffset, searchOffset
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.errors import BrokerError
from cometmq.model.route import MASTER_ID
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request
from cometmq.wire.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)

if TYPE_CHECKING:
    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.queue import MessageQueue
    from cometmq.wire.command import Command
    from cometmq.wire.headers.base import Header


class BrokerOffsets:
    """The offsets at brokers, for one client. One loop owns it.

    Methods that wait for a response raise RemotingError, BrokerError or ProtocolError.
    """

    def __init__(self, session: ClientSession, timeout_s: float | None = None) -> None:
        """`timeout_s` is for each request; None: the session's."""
        self._session = session
        self._timeout_s = timeout_s
        self._first_commits: dict[tuple[str, str, str], asyncio.Lock] = {}
        self._begun: set[tuple[str, str, str]] = set()

    async def committed(
        self, group: str, queue: MessageQueue, *, set_zero_if_not_found: bool | None = False
    ) -> int | None:
        """The committed offset of a group, or None.

        By default brokers have a group without one start a young queue at its first message; with
        False, the value here, they do not.
        """
        header = QueryConsumerOffsetRequestHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            broker_name=queue.broker_name,
            consumer_group=group,
            set_zero_if_not_found=set_zero_if_not_found,
        )
        try:
            # from a slave while there is no master; where a queue begins only a master knows
            addr = self._session.routes.read_addr(queue.broker_name, MASTER_ID)
            return await self._ask_at(addr, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit an offset for a group and wait for the response.

        The first of a group in a topic at a broker is answered before the next ones are sent:
        Apache's broker makes the table of their offsets then, and of two commits that make one at
        the same time it forgets the first (ConsumerOffsetManager.commitOffset).
        """
        place = (group, queue.topic, queue.broker_name)
        if place not in self._begun:
            async with self._first_commits.setdefault(place, asyncio.Lock()):
                if place not in self._begun:
                    await self._commit(group, queue, offset)
                    self._begun.add(place)
                    return
        await self._commit(group, queue, offset)

    def commit_oneway(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit an offset without a response, if there is a connection. Raises RemotingError."""
        addr = self._session.routes.read_addr(queue.broker_name, MASTER_ID)
        if channel := self._session.pool.open_channel(addr):
            channel.oneway(_commit_command(group, queue, offset, oneway=True))

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is still there."""
        header = GetMinOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        return await self._ask(queue, RequestCode.GET_MIN_OFFSET, header)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        header = GetMaxOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        return await self._ask(queue, RequestCode.GET_MAX_OFFSET, header)

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at a time (epoch ms) or later."""
        header = SearchOffsetRequestHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            broker_name=queue.broker_name,
            timestamp=timestamp_ms,
        )
        return await self._ask(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def _commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        addr = self._session.routes.read_addr(queue.broker_name, MASTER_ID)
        command = _commit_command(group, queue, offset, oneway=False)
        await self._session.call_checked(addr, command, self._timeout_s)

    async def _ask(self, queue: MessageQueue, code: RequestCode, header: Header) -> int:
        return await self._ask_at(self._session.routes.master_addr(queue.broker_name), code, header)

    async def _ask_at(self, addr: str, code: RequestCode, header: Header) -> int:
        command = request(code, 0, header)
        answer = await self._session.call_checked(addr, command, self._timeout_s)
        return OffsetResponseHeader.decode(answer.ext).offset


def _commit_command(group: str, queue: MessageQueue, offset: int, *, oneway: bool) -> Command:
    header = UpdateConsumerOffsetRequestHeader(
        topic=queue.topic,
        queue_id=queue.queue_id,
        broker_name=queue.broker_name,
        consumer_group=group,
        commit_offset=offset,
    )
    return request(RequestCode.UPDATE_CONSUMER_OFFSET, 0, header, oneway=oneway)
