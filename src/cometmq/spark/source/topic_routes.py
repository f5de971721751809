"""What name servers know: the queues of topics, the addresses of brokers, which brokers are up.

Owns the connections of a client (one per address) and the routes, which are fetched again after
some seconds. Does not retry and does not ask brokers.
Invariant: an answer is that of one name server, the first that gives one; a topic that none knows
is not in the answer.
Java: MQClientInstance, MQClientAPIImpl.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cometmq.errors import AccessDenied, BrokerError, CometError, RemotingError, RouteNotFound
from cometmq.rules import route_queues
from cometmq.wire.bodies.name_lists import decode_topic_list
from cometmq.wire.bodies.route import decode_cluster_info, decode_route
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.namesrv import GetRouteInfoRequestHeader

if TYPE_CHECKING:
    from cometmq.model.queue import MessageQueue
    from cometmq.model.route import ClusterInfo, TopicRouteData
    from cometmq.net.blocking_channel import BlockingChannel
    from cometmq.spark.source.source_options import SourceOptions
    from cometmq.wire.command import Command
    from cometmq.wire.headers.base import Header

_ROUTE_FOR_S = 5.0
_REQUESTS_MAX = 512


@dataclass(slots=True)
class FetchedRoutes:
    """The topics read, as name servers know them at one moment."""

    queues: dict[str, list[MessageQueue]] = field(default_factory=dict)
    """The readable queues of each topic."""
    addresses: dict[str, str] = field(default_factory=dict)
    """Where brokers of these topics are."""
    missing: list[str] = field(default_factory=list)
    """Topics without route."""


class TopicRoutes:
    """FetchedRoutes and connections of one client."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._name_servers = list(options.namesrv)
        """One that did not answer is the last to be asked again."""
        self._channels: dict[str, BlockingChannel] = {}
        self._routes = FetchedRoutes()
        self._route_at = -_ROUTE_FOR_S

    def now(self) -> FetchedRoutes:
        """The routes of all topics that are read; at most five seconds old."""
        if time.monotonic() - self._route_at >= _ROUTE_FOR_S:
            self._routes = self._fetch()
            self._route_at = time.monotonic()
        return self._routes

    def cluster(self) -> ClusterInfo:
        """All brokers that are registered now."""
        answer = self._ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return decode_cluster_info(answer.body)

    def channel_to(self, addr: str) -> BlockingChannel:
        """The connection to an address, opened if there is none."""
        channel = self._channels.get(addr)
        if channel is None or not channel.is_open:
            options = self._options
            channel = options.security.channel(addr, options.timeout_ms / 1000)
            self._channels[addr] = channel
        return channel

    def reset(self) -> None:
        """Close every connection and forget the routes, after an error."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
        self._route_at = -_ROUTE_FOR_S

    def _fetch(self) -> FetchedRoutes:
        wanted = self._topics()
        routes = FetchedRoutes(missing=wanted)
        failure: CometError | None = None
        answered = False
        for addr in tuple(self._name_servers):
            if routes.missing:
                try:
                    self._add_routes_of(addr, routes)
                    answered = True
                except RemotingError as error:
                    failure = error
                    self._ask_last(addr)
                routes.missing = [topic for topic in wanted if topic not in routes.queues]
        if failure is not None and not answered:
            raise failure
        return routes

    def _topics(self) -> list[str]:
        selection = self._options.selection
        if not selection.pattern:
            return list(selection.named_topics())
        answer = self._ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        chosen = selection.chosen(decode_topic_list(answer.body))
        if not chosen:
            return []
        cluster = self.cluster()  # brokers have a topic of their own name, and so have clusters
        names = cluster.broker_addr_table.keys() | cluster.cluster_addr_table.keys()
        return sorted(set(chosen) - names)

    def _add_routes_of(self, addr: str, routes: FetchedRoutes) -> None:
        """Ask one name server for what is missing yet."""
        channel = self.channel_to(addr)
        for at in range(0, len(routes.missing), _REQUESTS_MAX):
            topics = routes.missing[at : at + _REQUESTS_MAX]
            headers = [GetRouteInfoRequestHeader(topic=topic) for topic in topics]
            opaques = channel.post_all(RequestCode.GET_ROUTEINFO_BY_TOPIC, headers)
            for topic, opaque in zip(topics, opaques, strict=True):
                answer = channel.wait(opaque)
                if answer.code == ResponseCode.SUCCESS:
                    self._add_route(topic, decode_route(answer.body), routes)
                elif answer.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise BrokerError(answer.code, answer.remark, addr)

    def _add_route(self, topic: str, route: TopicRouteData, routes: FetchedRoutes) -> None:
        addresses = {
            data.broker_name: addr
            for data in route.broker_datas
            if (addr := route_queues.read_addr(data.broker_addrs, 0))
        }
        queues = route_queues.subscribe_queues(topic, route)
        if not queues and route.queue_datas:
            raise AccessDenied(f"topic {topic} may not be read: no broker permits it")
        assigned = self._options.selection.queues
        routes.addresses |= addresses
        routes.queues[topic] = [
            queue
            for queue in queues
            if queue.broker_name in addresses and (not assigned or queue in assigned)
        ]

    def _ask_name_server(self, code: RequestCode, header: Header | None = None) -> Command:
        """Ask one name server after the other; raise the error of the last one."""
        failure: CometError = RouteNotFound("no name server is configured")
        for addr in tuple(self._name_servers):
            try:
                answer = self.channel_to(addr).call(code, header)
            except RemotingError as error:
                failure = error
                self._ask_last(addr)
                continue
            if answer.code == ResponseCode.SUCCESS:
                return answer
            failure = BrokerError(answer.code, answer.remark, addr)
        raise failure

    def _ask_last(self, addr: str) -> None:
        """Have the other name servers asked first, lest each question wait for this one."""
        self._name_servers.remove(addr)
        self._name_servers.append(addr)
