"""Who is connected (203, 204, 328, 345), and questions handed on to consumers (223, 307, 309).

Refuses to keep state; a consumer that does not answer within 10 s is reported as such.
Java: AdminBrokerProcessor (getConsumerConnectionList, callConsumer).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from cometmq.errors import ProtocolError, Reject, RemotingError, RemotingTimeout
from cometmq.model.admin_stats import ProducerInfo
from cometmq.model.subscription import ClientConnection
from cometmq.net.endpoint import Endpoint
from cometmq.net.handler import Reply
from cometmq.net.rate_limited_log import RateLimitedLog
from cometmq.wire.bodies.admin import (
    ConsumerConnections,
    connection_entry,
    encode_consumer_connections,
    encode_producer_connections,
)
from cometmq.wire.bodies.broker import (
    encode_producer_table,
    encode_subscription,
    producer_entry,
)
from cometmq.wire.bodies.json_fields import LENIENT_BYTES_MAX
from cometmq.wire.bodies.offset import (
    consumer_status_entry,
    decode_consumer_status,
    encode_consumer_status,
)
from cometmq.wire.codes import RequestCode as Code
from cometmq.wire.codes import ResponseCode, language_name
from cometmq.wire.command import request as new_request
from cometmq.wire.headers import admin as headers
from cometmq.wire.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from cometmq.wire.records import log_record
from cometmq.wire.records.message_id import parse_offset_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cometmq.broker.groups.client_registry import ClientRegistry, Member
    from cometmq.broker.requests.large_tables import LargeTableAnswers
    from cometmq.model.queue import MessageQueue
    from cometmq.net.admission import FoundAdmission
    from cometmq.net.connection import Connection
    from cometmq.store.message_store import MessageStore
    from cometmq.wire.command import Command
    from cometmq.wire.headers.base import Header

FORWARD_S = 10.0
"""How long a consumer may take to answer, seconds."""

STATUS_S = 5.0
"""How long a consumer may take to report its offsets, seconds."""

STATUS_BYTES_MAX = 256 * 1024
"""Longest report of them: about 3,000 queues. One above 32 KiB is read in a thread."""

_ANSWERS_SINCE = 62
"""Clients of this version and later answer such questions."""


class ConnectionRequests:
    """Answers requests about connections."""

    def __init__(
        self,
        clients: ClientRegistry,
        store: MessageStore,
        large_tables: LargeTableAnswers,
        admit_found: FoundAdmission,
    ) -> None:
        """`admit_found` decides whether who names a message may read its topic."""
        self._admit_found = admit_found
        self._large_tables = large_tables
        self._clients = clients
        self._store = store
        self._warnings = RateLimitedLog(logging.getLogger(__name__))

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(Code.GET_CONSUMER_CONNECTION_LIST, self.consumers),
            Endpoint(Code.GET_PRODUCER_CONNECTION_LIST, self.producers),
            Endpoint(Code.GET_ALL_PRODUCER_INFO, self.all_producers),
            Endpoint(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, self.subscription),
            Endpoint(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, self.consumer_status),
            Endpoint(Code.GET_CONSUMER_RUNNING_INFO, self.running_info),
            Endpoint(Code.CONSUME_MESSAGE_DIRECTLY, self.consume_directly),
        )

    async def consumers(self, request: Command, _connection: Connection) -> Reply:
        """Tell a consumer group's connections and subscriptions (203)."""
        name = headers.GetConsumerConnectionListRequestHeader.decode(request.ext).consumer_group
        group = self._clients.consumers.get(name)
        if group is None:
            raise Reject(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group {name} is not online"
            )
        found = ConsumerConnections(
            [],
            group.subscriptions,
            group.consume_type,
            group.message_model,
            group.consume_from_where,
        )
        return await self._with_members(encode_consumer_connections(found), group.members)

    async def _with_members(self, empty: bytes, members: Mapping[Connection, Member]) -> Reply:
        """The answer `empty` with the connections of these members, as they are now."""
        entries = map(connection_entry, _connections(list(members.items())))
        return Reply(
            body=await self._large_tables.fill("connectionSet", empty, entries, count=len(members))
        )

    async def producers(self, request: Command, _connection: Connection) -> Reply:
        """Tell a producer group's connections (204)."""
        name = headers.GetProducerConnectionListRequestHeader.decode(request.ext).producer_group
        members = self._clients.producers.get(name)
        if not members:
            raise Reject(ResponseCode.SYSTEM_ERROR, f"the producer group {name} is not online")
        return await self._with_members(encode_producer_connections(()), members)

    async def all_producers(self, _request: Command, _connection: Connection) -> Reply:
        """Tell the connections of all producer groups (328)."""
        entries = (
            producer_entry(group, map(_producer_info, list(members.items())))
            for group, members in list(self._clients.producers.items())
            if members
        )
        empty = encode_producer_table({})
        return Reply(body=await self._large_tables.fill("data", empty, entries))

    def subscription(self, request: Command, _connection: Connection) -> Reply:
        """Tell what a connected group has subscribed of a topic (345)."""
        header = headers.QuerySubscriptionByConsumerRequestHeader.decode(request.ext)
        group = self._clients.consumers.get(header.group)
        found = group.subscriptions.get(header.topic or "") if group else None
        return Reply(body=encode_subscription(header.group, header.topic, found))

    async def consumer_status(self, request: Command, _connection: Connection) -> Reply:
        """Ask a group's consumers, or one of them, for the offsets they hold (223).

        Who does not answer, or answers something else, is left out.
        """
        header = GetConsumerStatusRequestHeader.decode(request.ext)
        group = self._clients.consumers.get(header.group)
        if group is None:
            raise Reject(
                ResponseCode.SYSTEM_ERROR, f"no consumer of the group {header.group} is online"
            )
        wanted = header.client_addr or ""
        asked = {
            member.client_id: connection
            for connection, member in group.members.items()
            if not wanted or member.client_id == wanted
        }
        question = GetConsumerStatusRequestHeader(topic=header.topic, group=header.group)
        answers = await asyncio.gather(
            *(self._status(connection, question) for connection in asked.values())
        )
        entries = (
            consumer_status_entry(client_id, offsets)
            for client_id, offsets in zip(asked, answers, strict=True)
            if offsets is not None
        )
        empty = encode_consumer_status({}, {})
        return Reply(body=await self._large_tables.fill("consumerTable", empty, entries))

    async def _status(
        self, connection: Connection, question: Header
    ) -> dict[MessageQueue, int] | None:
        """The offsets that one consumer holds; None when it says nothing that can be read."""
        command = new_request(Code.GET_CONSUMER_STATUS_FROM_CLIENT, 0, question)
        try:
            answer = await connection.request(command, STATUS_S)
            body = answer.body
            if answer.code or not body:
                return None
            if len(body) > STATUS_BYTES_MAX:
                raise ProtocolError(f"{len(body)} bytes, where {STATUS_BYTES_MAX} may be")
            if len(body) > LENIENT_BYTES_MAX:
                return (await asyncio.to_thread(decode_consumer_status, body))[0]
            return decode_consumer_status(body)[0]
        except RemotingError:
            return None
        except ProtocolError as error:
            text = "%s reports no offsets that can be read: %s"
            self._warnings.warning(text, connection.addr, error)
            return None

    async def running_info(self, request: Command, _connection: Connection) -> Reply:
        """Ask a consumer what it is doing (307)."""
        header = GetConsumerRunningInfoRequestHeader.decode(request.ext)
        return await self._ask(request, header.consumer_group, header.client_id, header)

    async def consume_directly(self, request: Command, connection: Connection) -> Reply:
        """Have a consumer handle one stored message now (309)."""
        header = ConsumeMessageDirectlyResultRequestHeader.decode(request.ext)
        try:
            _, phy_offset = parse_offset_id(header.msg_id or "")
        except ProtocolError as error:
            raise Reject(ResponseCode.SYSTEM_ERROR, str(error)) from error
        record = await self._store.cold_reader.run(lambda context: context.record_at(phy_offset))
        if record is None:
            raise Reject(ResponseCode.SYSTEM_ERROR, f"no message lies at {phy_offset}")
        self._admit_found(request, connection, log_record.decode(record).topic)
        return await self._ask(
            request, header.consumer_group, header.client_id or "", header, record
        )

    async def _ask(
        self, request: Command, name: str, client_id: str, header: Header, body: bytes = b""
    ) -> Reply:
        group = self._clients.consumers.get(name)
        connection = group.find(client_id) if group else None
        if connection is None:
            raise Reject(
                ResponseCode.SYSTEM_ERROR, f"the consumer {name} {client_id} is not online"
            )
        if connection.version < _ANSWERS_SINCE:
            raise Reject(
                ResponseCode.SYSTEM_ERROR, f"the consumer {client_id} is too old to answer this"
            )
        try:
            answer = await connection.request(new_request(request.code, 0, header, body), FORWARD_S)
        except RemotingTimeout as error:
            raise Reject(ResponseCode.CONSUME_MSG_TIMEOUT, str(error)) from error
        except RemotingError as error:
            raise Reject(ResponseCode.SYSTEM_ERROR, str(error)) from error
        return Reply(answer.code, body=answer.body, remark=answer.remark)


def _connections(members: Iterable[tuple[Connection, Member]]) -> Iterator[ClientConnection]:
    for connection, member in members:
        yield ClientConnection(
            client_id=member.client_id,
            client_addr=connection.addr,
            language=language_name(member.language),
            version=member.version,
        )


def _producer_info(item: tuple[Connection, Member]) -> ProducerInfo:
    connection, member = item
    return ProducerInfo(
        member.client_id,
        f"/{connection.addr}",  # as Java writes addresses
        language_name(member.language),
        member.version,
        member.seen_ms,
    )
