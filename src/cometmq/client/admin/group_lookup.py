"""Asks brokers what they know of consumer groups, and members what they do.

Asks 201, 203 and, by way of their broker, 307 of members; makes and changes groups (200). Judges
nothing. Java: DefaultMQAdminExtImpl.examineConsumerConnectionInfo, getConsumerRunningInfo
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from cometmq.client.session.argument_checks import check_flag, check_whole
from cometmq.errors import BrokerError, ClientError, ProtocolError, RemotingError
from cometmq.model.group_status import GroupMember, GroupMembers
from cometmq.wire.bodies.admin import decode_consumer_connections, decode_running_info
from cometmq.wire.bodies.group import decode_group_table, encode_group_config
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request
from cometmq.wire.headers.admin import GetConsumerConnectionListRequestHeader
from cometmq.wire.headers.client import GetConsumerRunningInfoRequestHeader

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.admin_stats import ConsumerRunningInfo
    from cometmq.model.group import SubscriptionGroupConfig
    from cometmq.model.subscription import ClientConnection
    from cometmq.wire.bodies.admin import ConsumerConnections
    from cometmq.wire.bodies.group import GroupTable

_AT_ONCE = 16
_NUMBERS = {
    "retry_queue_nums": (0, 1_024),
    "retry_max_times": (-1, 100_000),
    "broker_id": (0, 1_024),
    "which_broker_when_consume_slowly": (0, 1_024),
    "consume_timeout_minute": (1, 525_600),
}
"""Settings that are whole numbers, with their ranges; the others are True or False."""


class GroupSettings(TypedDict, total=False):
    """What may be said of a group when it is made or changed: SubscriptionGroupConfig has all."""

    consume_enable: bool
    consume_from_min_enable: bool
    consume_broadcast_enable: bool
    consume_message_orderly: bool
    retry_queue_nums: int
    retry_max_times: int
    broker_id: int
    which_broker_when_consume_slowly: int
    notify_consumer_ids_changed_enable: bool
    consume_timeout_minute: int


class GroupConnections(NamedTuple):
    """Who is connected: each client once, with a broker's address by which it can be asked."""

    connections: dict[str, ClientConnection]
    brokers: dict[str, str]
    kind: ConsumerConnections | None
    """What one of the brokers says of the whole group; None without members."""


def checked_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a group as given; raises ClientError for an unknown name or a wrong value."""
    for name, value in settings.items():
        if name not in GroupSettings.__annotations__:
            known = ", ".join(sorted(GroupSettings.__annotations__))
            raise ClientError(f"a group has no setting {name!r}; there are: {known}")
        if name in _NUMBERS:
            check_whole(name, value, *_NUMBERS[name])
        else:
            check_flag(name, value)
    return dict(settings)


class GroupLookup:
    """Looks at groups at all masters. Belongs to its session's loop."""

    def __init__(self, session: ClientSession, masters: Mapping[str, str]) -> None:
        """`masters`: the addresses by broker name."""
        self._session = session
        self._masters = masters
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def tables(self) -> dict[str, GroupTable]:
        """The groups of each master, by broker name."""
        command = request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, 0)
        found = await asyncio.gather(
            *(self._session.call_checked(addr, command) for addr in self._masters.values())
        )
        return {
            broker: decode_group_table(answer.body)
            for broker, answer in zip(self._masters, found, strict=True)
        }

    async def put(self, configs: Mapping[str, SubscriptionGroupConfig]) -> None:
        """Make or change a group at these brokers."""
        for broker, config in configs.items():
            body = encode_group_config(config)
            command = request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, 0, None, body)
            await self._session.call_checked(self._masters[broker], command)

    async def connections(self, group: str) -> GroupConnections:
        """The connected clients of a group; none for a group that nobody knows."""
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        command = request(RequestCode.GET_CONSUMER_CONNECTION_LIST, 0, header)
        addrs = list(self._masters.values())
        answers = await asyncio.gather(*(self._session.call(addr, command) for addr in addrs))
        found = GroupConnections({}, {}, None)
        for addr, answer in zip(addrs, answers, strict=True):
            if answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
                continue
            if answer.code != ResponseCode.SUCCESS:
                raise BrokerError(answer.code, answer.remark, addr)
            kind = decode_consumer_connections(answer.body)
            found = found._replace(kind=kind)
            for one in kind.connections:
                found.connections.setdefault(one.client_id, one)
                found.brokers.setdefault(one.client_id, addr)
        return found

    async def members(self, group: str, *, running: bool) -> GroupMembers:
        """The connected members; with `running` each is asked what it does."""
        found = await self.connections(group)
        ordered = sorted(found.connections.items())
        members = await asyncio.gather(
            *(
                self._member(group, one, found.brokers[name] if running else None)
                for name, one in ordered
            )
        )
        if found.kind is None:
            return GroupMembers()
        return GroupMembers(
            consume_type=found.kind.consume_type,
            message_model=found.kind.message_model,
            consume_from_where=found.kind.consume_from_where,
            subscriptions=found.kind.subscriptions,
            members=tuple(members),
        )

    async def running_info(
        self, group: str, client_id: str, addr: str, *, stacks: bool = False
    ) -> ConsumerRunningInfo:
        """What a member reports, asked by way of the broker at this address."""
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=client_id, jstack_enable=stacks
        )
        command = request(RequestCode.GET_CONSUMER_RUNNING_INFO, 0, header)
        return decode_running_info((await self._session.call_checked(addr, command)).body)

    async def _member(
        self, group: str, connection: ClientConnection, addr: str | None
    ) -> GroupMember:
        if addr is None:
            return GroupMember(connection=connection)
        try:
            async with self._slots:
                info = await self.running_info(group, connection.client_id, addr)
        except (RemotingError, BrokerError, ProtocolError) as error:
            return GroupMember(connection=connection, problem=str(error))
        return GroupMember(connection=connection, info=info)
