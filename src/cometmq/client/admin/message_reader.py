"""Reads single messages from brokers: by id and key through their index, by place with pulls.

Owns the requests 12, 33 and 309 and pulls as RocketMQ's tools group, which commits nothing.
Java: MQAdminImpl.queryMessage, viewMessage; PrintMessageSubCommand
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from cometmq.client.consumer.message_decoder import decode_message, decode_messages
from cometmq.client.consumer.pull_request import PullClient, PullRequest, TopicFilter
from cometmq.errors import BrokerError, ProtocolError
from cometmq.model.group import TOOLS_GROUP
from cometmq.model.results import PullStatus
from cometmq.wire.bodies.admin import decode_directly_result
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request
from cometmq.wire.compression import BYTES_MAX
from cometmq.wire.headers.client import ConsumeMessageDirectlyResultRequestHeader
from cometmq.wire.headers.query import QueryMessageRequestHeader, ViewMessageRequestHeader
from cometmq.wire.records import log_record as stored
from cometmq.wire.records.message_id import parse_offset_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.admin_stats import ConsumeMessageDirectlyResult
    from cometmq.model.message import MessageExt
    from cometmq.model.queue import MessageQueue
    from cometmq.model.results import PullResult
    from cometmq.model.route import BrokerData

_ALL = TopicFilter()
_PULL_MAX = 32
_HANDLING_S = 15.0
"""How long a member may take for one message; its broker waits 10 s."""


class MessageReader:
    """Reads messages for operators. Belongs to its session's loop."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._pulls = PullClient(session, TOOLS_GROUP, BYTES_MAX)

    async def lookup(
        self,
        topic: str,
        key: str,
        addrs: Mapping[str, str],
        *,
        begin_ms: int,
        end_ms: int,
        max_count: int,
        is_id: bool,
    ) -> list[MessageExt]:
        """The messages with this key, or this client's id, at all of these brokers, oldest first.

        Brokers look up by a hash, so what only has the same one is left out here.
        """
        header = QueryMessageRequestHeader(
            topic=topic,
            key=key,
            max_num=max_count,
            begin_timestamp=begin_ms,
            end_timestamp=end_ms,
            is_unique_key=is_id,
        )
        command = request(RequestCode.QUERY_MESSAGE, 0, header)
        found: list[MessageExt] = []
        for broker, addr in addrs.items():
            answer = await self._session.call(addr, command)
            if answer.code == ResponseCode.QUERY_NOT_FOUND:
                continue
            if answer.code != ResponseCode.SUCCESS:
                raise BrokerError(answer.code, answer.remark, addr)
            found += decode_messages(answer.body, broker).messages
        wanted = [one for one in found if key in ((one.msg_id,) if is_id else one.keys)]
        return sorted(wanted, key=lambda one: one.store_ms)[:max_count]

    async def by_place(self, msg_id: str, brokers: Iterable[BrokerData]) -> MessageExt | None:
        """The message with this offset id; None where it is none of these brokers', or gone."""
        try:
            host, phy_offset = parse_offset_id(msg_id)
        except ProtocolError:
            return None
        family = socket.AF_INET if len(host) == 8 else socket.AF_INET6
        ip, port = socket.inet_ntop(family, host[:-4]), int.from_bytes(host[-4:])
        for data in brokers:
            for addr in data.broker_addrs.values():
                name, _, its_port = addr.rpartition(":")
                if its_port == str(port) and (name.strip("[]") == ip or not _is_ip(name)):
                    header = ViewMessageRequestHeader(offset=phy_offset)
                    command = request(RequestCode.VIEW_MESSAGE_BY_ID, 0, header)
                    answer = await self._session.call(addr, command)
                    if answer.code == ResponseCode.SUCCESS:
                        return decode_message(stored.decode(answer.body), data.broker_name)
        return None

    async def pull(
        self, queue: MessageQueue, offset: int, max_count: int, block_s: float = 0.0
    ) -> PullResult:
        """Pull once, whatever is there; with `block_s` the broker waits so long for a message."""
        return await self._pulls.pull(
            PullRequest(queue, offset, max_count, _ALL, suspend_s=block_s, carries_filter=True)
        )

    async def read(self, queue: MessageQueue, begin: int, end: int) -> list[MessageExt]:
        """The messages of a queue from one offset up to another; those deleted are left out."""
        found: list[MessageExt] = []
        while begin < end:
            result = await self.pull(queue, begin, min(_PULL_MAX, end - begin))
            found += [one for one in result.messages if one.queue_offset < end]
            if result.next_offset <= begin or result.status is PullStatus.NO_NEW_MSG:
                break
            begin = result.next_offset
        return found

    async def read_each(self, ranges: Mapping[MessageQueue, tuple[int, int]]) -> list[MessageExt]:
        """The messages of these ranges of offsets, in order of their store times."""
        slots = asyncio.Semaphore(8)

        async def one(queue: MessageQueue, begin: int, end: int) -> list[MessageExt]:
            async with slots:
                return await self.read(queue, begin, end)

        found = await asyncio.gather(*(one(queue, *ends) for queue, ends in ranges.items()))
        messages = [message for each in found for message in each]
        return sorted(messages, key=lambda each: (each.store_ms, each.queue_offset))

    async def hand_over(
        self, message: MessageExt, group: str, client_id: str, addr: str
    ) -> ConsumeMessageDirectlyResult:
        """Have a member handle a stored message now, by way of the broker that has it."""
        header = ConsumeMessageDirectlyResultRequestHeader(
            consumer_group=group,
            client_id=client_id,
            msg_id=message.offset_msg_id,
            broker_name=message.broker_name,
            topic=message.topic,
        )
        command = request(RequestCode.CONSUME_MESSAGE_DIRECTLY, 0, header)
        answer = await self._session.call_checked(addr, command, _HANDLING_S)
        return decode_directly_result(answer.body)


def _is_ip(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host.strip("[]"))
        except OSError:
            continue
        return True
    return False
