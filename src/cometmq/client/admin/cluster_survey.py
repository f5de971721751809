"""Gathers the facts of a cluster as a client meets them: name servers, brokers, routes, groups.

Asks only what every RocketMQ server answers: 106, 105 and 206 of name servers, 28, 26, 201 and 203
of brokers, and 307 of consumers by way of their broker. Changes nothing, judges nothing
(`rules/diagnosis` does). At most `_AT_ONCE` requests are on their way; what exceeds a limit is left
out and named.
Java: mqadmin's clusterList, brokerStatus, consumerConnection and consumerStatus ask for the same.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from cometmq.client.admin.server_probe import ServerProbe
from cometmq.errors import ProtocolError, RemotingError
from cometmq.model.admin_stats import QueueProgress
from cometmq.model.cluster_facts import (
    BrokerFacts,
    ClusterFacts,
    GroupFacts,
    MemberFacts,
    NameServerFacts,
    Reachability,
    ServerFacts,
)
from cometmq.model.group import SYSTEM_GROUPS
from cometmq.model.parking import is_parking_topic
from cometmq.model.route import MASTER_ID
from cometmq.model.topic import is_dlq_topic, is_retry_topic, is_system_topic
from cometmq.settings import properties
from cometmq.wire.bodies.admin import (
    decode_consume_stats,
    decode_consumer_connections,
    decode_running_info,
    decode_topic_stats,
)
from cometmq.wire.bodies.group import decode_group_table
from cometmq.wire.bodies.name_lists import decode_kv_table, decode_topic_list
from cometmq.wire.bodies.route import decode_cluster_info, decode_route
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.admin import (
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from cometmq.wire.headers.client import GetConsumerRunningInfoRequestHeader
from cometmq.wire.headers.namesrv import GetRouteInfoRequestHeader
from cometmq.wire.request_signature import add_signature

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from cometmq.model.admin_stats import ConsumeStats, TopicOffset
    from cometmq.model.queue import MessageQueue
    from cometmq.model.route import TopicRouteData
    from cometmq.wire.bodies.admin import ConsumerConnections
    from cometmq.wire.command import Command
    from cometmq.wire.headers.base import Header
    from cometmq.wire.request_signature import Credentials

TOPICS_MAX = 1_000
"""Topics whose routes are asked for, besides those that the groups subscribe."""

GROUPS_MAX = 500
"""Groups looked at when none is named."""

_AT_ONCE = 16
T = TypeVar("T")
R = TypeVar("R")


class ClusterSurvey:
    """One look at a cluster. Use `take` once, on one loop."""

    def __init__(
        self,
        name_servers: Sequence[str],
        *,
        groups: Sequence[str] = (),
        only_groups: bool = False,
        timeout_s: float = 3.0,
        now_ms: Callable[[], int],
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`groups`: those to look at; empty: all that have members. `now_ms`: the wall clock.

        With `only_groups` their topics are looked at and no others, and how far they are.

        With `credentials` each question is signed.
        """
        self._sign = None if credentials is None else partial(_sign, credentials)
        self._tls = tls
        self._addrs = tuple(dict.fromkeys(name_servers))
        self._only_groups = only_groups
        self._wanted_groups = tuple(dict.fromkeys(groups))
        self._timeout_s = timeout_s
        self._now_ms = now_ms
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._open: dict[str, ServerProbe] = {}
        self._left_out: list[str] = []
        self._unreadable: dict[tuple[str, RequestCode], str] = {}

    async def take(self) -> ClusterFacts:
        """Ask all servers. What does not answer is a fact, not an error."""
        try:
            name_servers = tuple(await self._each(self._addrs, self._name_server))
            brokers = tuple(await self._each(_brokers_of(name_servers), self._broker))
            answering = next((one.server.addr for one in name_servers if one.clusters), None)
            groups = await self._groups([one for one in brokers if one.runtime])
            routes = await self._routes(answering, groups) if answering else {}
            progress = await self._progress(brokers, groups, routes) if self._only_groups else {}
        finally:
            for probe in self._open.values():
                probe.close()
        return ClusterFacts(
            name_servers=name_servers,
            brokers=brokers,
            routes=routes,
            groups=groups,
            progress=progress,
            left_out=tuple(self._left_out),
            unreadable=tuple((addr, what) for (addr, _), what in self._unreadable.items()),
        )

    async def _each(self, items: Iterable[T], ask: Callable[[T], Awaitable[R]]) -> list[R]:
        async def one(item: T) -> R:
            async with self._slots:
                return await ask(item)

        return list(await asyncio.gather(*map(one, items)))

    async def _name_server(self, addr: str) -> NameServerFacts:
        server, clusters = await self._identify(
            addr, RequestCode.GET_BROKER_CLUSTER_INFO, decode_cluster_info
        )
        return NameServerFacts(server=server, clusters=clusters)

    async def _broker(self, place: _BrokerPlace) -> BrokerFacts:
        server, runtime = await self._identify(
            place.addr, RequestCode.GET_BROKER_RUNTIME_INFO, decode_kv_table
        )
        asked_ms, config = self._now_ms(), None
        if runtime is not None:
            config = await self._ask(place.addr, RequestCode.GET_BROKER_CONFIG, _config)
        return BrokerFacts(
            cluster=place.cluster,
            broker_name=place.name,
            broker_id=place.number,
            server=server,
            runtime=runtime or {},
            config=config or {},
            asked_ms=asked_ms,
        )

    async def _identify(
        self, addr: str, code: RequestCode, decode: Callable[[bytes], R]
    ) -> tuple[ServerFacts, R | None]:
        probe = ServerProbe(addr, self._timeout_s, self._sign, self._tls)
        server, answer = await probe.identify(code)
        found: R | None = None
        try:
            found = decode(answer.body) if answer else None
        except ProtocolError as error:
            what = f"its answer to {code.name} cannot be read: {error}"
            server = replace(server, reachability=Reachability.OTHER_PROTOCOL, problem=what)
        if server.reachability is Reachability.ANSWERS and addr not in self._open:
            self._open[addr] = probe
        else:
            probe.close()
        return server, found

    async def _ask(
        self,
        addr: str,
        code: RequestCode,
        decode: Callable[[bytes], R],
        header: Header | None = None,
    ) -> R | None:
        """What a server that was identified answers; None when it refuses or falls silent.

        Also when its answer cannot be read, which is noted, once for each kind of question.
        """
        try:
            answer = await self._open[addr].ask(code, header)
            return decode(answer.body) if answer.code == ResponseCode.SUCCESS else None
        except RemotingError:
            return None
        except ProtocolError as error:
            self._unreadable[addr, code] = f"its answer to {code.name} cannot be read: {error}"
            return None

    async def _groups(self, brokers: list[BrokerFacts]) -> tuple[GroupFacts, ...]:
        addrs = [one.server.addr for one in brokers if one.broker_id == MASTER_ID]
        names = self._wanted_groups or await self._group_names(addrs)
        places = [(name, addr) for name in names for addr in dict.fromkeys(addrs)]
        members: dict[str, dict[str, str]] = {name: {} for name in names}
        kinds: dict[str, ConsumerConnections] = {}
        for (name, addr), found in zip(
            places, await self._each(places, self._connections), strict=True
        ):
            if found is not None:
                kinds[name] = found
                for one in found.connections:
                    members[name].setdefault(one.client_id, addr)
        asked = [(name, who, addr) for name, each in members.items() for who, addr in each.items()]
        answered: dict[str, list[MemberFacts]] = {}
        for (name, _, _), member in zip(asked, await self._each(asked, self._member), strict=True):
            answered.setdefault(name, []).append(member)
        return tuple(
            _group(name, kinds.get(name), answered.get(name, ()))
            for name in names
            if name in answered or self._wanted_groups
        )

    async def _group_names(self, addrs: list[str]) -> tuple[str, ...]:
        code, names = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, set[str]()
        for addr in addrs:
            if table := await self._ask(addr, code, decode_group_table):
                names.update(table.groups)
        found = sorted(names.difference(SYSTEM_GROUPS))
        if len(found) > GROUPS_MAX:
            self._left_out.append(f"{len(found) - GROUPS_MAX} of {len(found)} groups are left out")
        return tuple(found[:GROUPS_MAX])

    async def _connections(self, place: tuple[str, str]) -> ConsumerConnections | None:
        name, addr = place
        header = GetConsumerConnectionListRequestHeader(consumer_group=name)
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        return await self._ask(addr, code, decode_consumer_connections, header)

    async def _member(self, place: tuple[str, str, str]) -> MemberFacts:
        name, client_id, addr = place
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=name, client_id=client_id, jstack_enable=False
        )
        try:
            answer = await self._open[addr].ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
            if answer.code == ResponseCode.SUCCESS:
                return MemberFacts(client_id=client_id, info=decode_running_info(answer.body))
            problem = f"code {answer.code}: {answer.remark}"
        except (RemotingError, ProtocolError) as error:
            problem = str(error)
        return MemberFacts(client_id=client_id, problem=problem)

    async def _progress(
        self,
        brokers: Iterable[BrokerFacts],
        groups: Iterable[GroupFacts],
        routes: dict[str, TopicRouteData],
    ) -> dict[MessageQueue, QueueProgress]:
        """How far the groups are in their topics, but for retry topics."""
        masters = [one for one in brokers if one.runtime and one.broker_id == MASTER_ID]
        topics = [
            (one.server.addr, GetTopicStatsInfoRequestHeader(topic=topic))
            for topic, route in routes.items()
            if not is_retry_topic(topic)
            for one in masters
            if any(data.broker_name == one.broker_name for data in route.queue_datas)
        ]
        found: dict[MessageQueue, QueueProgress] = {}
        for table in await self._each(topics, self._topic_stats):
            for queue, bound in (table or {}).items():
                found[queue] = QueueProgress(
                    broker_offset=bound.max_offset, consumer_offset=bound.min_offset
                )
        asked = [
            (one.server.addr, GetConsumeStatsRequestHeader(consumer_group=group.group))
            for group in groups
            for one in masters
        ]
        for stats in await self._each(asked, self._consume_stats):
            for queue, progress in (stats.offset_table if stats else {}).items():
                if queue in found:
                    found[queue] = progress
        return found

    async def _topic_stats(
        self, place: tuple[str, GetTopicStatsInfoRequestHeader]
    ) -> dict[MessageQueue, TopicOffset] | None:
        addr, header = place
        return await self._ask(addr, RequestCode.GET_TOPIC_STATS_INFO, decode_topic_stats, header)

    async def _consume_stats(
        self, place: tuple[str, GetConsumeStatsRequestHeader]
    ) -> ConsumeStats | None:
        addr, header = place
        return await self._ask(addr, RequestCode.GET_CONSUME_STATS, decode_consume_stats, header)

    async def _routes(self, addr: str, groups: Iterable[GroupFacts]) -> dict[str, TopicRouteData]:
        subscribed = {
            each.topic
            for group in groups
            for one in group.members
            if one.info is not None
            for each in one.info.subscriptions
        }
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        listed = None if self._only_groups else await self._ask(addr, code, decode_topic_list)
        known = sorted(filter(_is_users, listed or ()))
        if len(known) > TOPICS_MAX:
            self._left_out.append(f"{len(known) - TOPICS_MAX} of {len(known)} topics are left out")
        topics = sorted(subscribed.union(known[:TOPICS_MAX]))

        async def route(topic: str) -> TopicRouteData | None:
            header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
            return await self._ask(addr, RequestCode.GET_ROUTEINFO_BY_TOPIC, decode_route, header)

        found = await self._each(topics, route)
        return {topic: one for topic, one in zip(topics, found, strict=True) if one is not None}


class _BrokerPlace(NamedTuple):
    """A broker as a name server lists it."""

    cluster: str
    name: str
    number: int
    addr: str


def _brokers_of(name_servers: Iterable[NameServerFacts]) -> list[_BrokerPlace]:
    """Each broker that any name server lists, once."""
    found = {
        _BrokerPlace(data.cluster, name, number, addr)
        for one in name_servers
        if one.clusters is not None
        for name, data in one.clusters.broker_addr_table.items()
        for number, addr in data.broker_addrs.items()
    }
    return sorted(found)


def _group(
    name: str, kind: ConsumerConnections | None, members: Iterable[MemberFacts]
) -> GroupFacts:
    if kind is None:
        return GroupFacts(group=name)
    return GroupFacts(
        group=name,
        consume_type=kind.consume_type,
        message_model=kind.message_model,
        members=tuple(sorted(members, key=lambda one: one.client_id)),
    )


def _config(body: bytes) -> dict[str, str]:
    return {entry.key: entry.value for entry in properties.parse(body.decode("utf-8", "replace"))}


def _is_users(topic: str) -> bool:
    kinds = (is_system_topic, is_retry_topic, is_dlq_topic, is_parking_topic)
    return not any(is_of_kind(topic) for is_of_kind in kinds)


def _sign(credentials: Credentials, command: Command) -> None:
    add_signature(command, credentials)
