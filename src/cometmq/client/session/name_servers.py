"""Sends requests to one name server, and to the next one when that fails.

Owns the choice of the server and the decoding of routes; refuses to cache anything. Invariant: the
server that answered last is used until it fails.
Java: NettyRemotingClient.getAndCreateNameserverChannel, MQClientAPIImpl
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cometmq.errors import (
    BrokerError,
    CertificateRefused,
    ClientStopped,
    CometError,
    ConnectFailed,
    RemotingError,
)
from cometmq.model.topic import DEFAULT_TOPIC
from cometmq.rules.namespace import with_namespace
from cometmq.wire.bodies.name_lists import decode_topic_list
from cometmq.wire.bodies.route import decode_cluster_info, decode_route
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request
from cometmq.wire.headers.namesrv import GetRouteInfoRequestHeader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.model.route import ClusterInfo, TopicRouteData
    from cometmq.net.channel_pool import ChannelPool
    from cometmq.wire.command import Command
    from cometmq.wire.headers.base import Header

log = logging.getLogger(__name__)


class NameServers:
    """The name servers of one client; `first` is the index of the one to use first."""

    def __init__(
        self,
        addrs: Sequence[str],
        pool: ChannelPool,
        timeout_s: float,
        first: int = 0,
        namespace: str | None = None,
    ) -> None:
        self._addrs = addrs
        self._pool = pool
        self._timeout_s = timeout_s
        self._namespace = namespace
        self._current = first % len(addrs)

    async def route(self, topic: str) -> TopicRouteData | None:
        """The route of a topic, or None when the name server knows none.

        Raises RemotingError when no name server answers, BrokerError for other refusals.
        """
        header = GetRouteInfoRequestHeader(
            topic=with_namespace(self._namespace, topic), accept_standard_json_only=True
        )
        try:
            return decode_route(await self._ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, header))
        except BrokerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise

    async def topics(self) -> list[str]:
        """All topics the name server knows, system topics included."""
        return decode_topic_list(await self._ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))

    async def clusters(self) -> ClusterInfo:
        """All brokers and the clusters they belong to."""
        return decode_cluster_info(await self._ask(RequestCode.GET_BROKER_CLUSTER_INFO))

    async def why_unknown(self, otherwise: str) -> str:
        """Why a name server knows no route: `otherwise`, unless it knows no broker at all."""
        try:
            known = await self.clusters()
        except CometError:
            known = None
        if known is not None and not known.broker_addr_table:
            return (
                f"no broker is registered with the name server {';'.join(self._addrs)}: start one "
                "with it as namesrvAddr, or give the name server of your brokers"
            )
        return otherwise

    async def problem(self) -> str | None:
        """What keeps clients from finding any broker; None where routes can be had.

        Asks for the route of the default topic, as RocketMQ's producers do when they start.
        """
        try:
            if await self.route(DEFAULT_TOPIC) is None:
                return await self.why_unknown("") or None
        except RemotingError as error:
            return str(error)
        except CometError as error:  # it answers, and refuses this one topic
            log.debug("the route of %s is refused: %s", DEFAULT_TOPIC, error)
        return None

    @property
    def addrs(self) -> tuple[str, ...]:
        """The addresses of all name servers."""
        return tuple(self._addrs)

    async def ask_each(
        self, code: RequestCode, header: Header | None = None, body: bytes = b""
    ) -> dict[str, Command]:
        """The response of every name server, by its address.

        Raises RemotingError for the first that does not answer, BrokerError when it refuses.
        """
        found: dict[str, Command] = {}
        for addr in self._addrs:
            channel = await self._pool.channel(addr)
            answer = await channel.call(request(code, 0, header, body), self._timeout_s)
            if answer.code != ResponseCode.SUCCESS:
                raise BrokerError(answer.code, answer.remark, addr)
            found[addr] = answer
        return found

    async def _ask(self, code: RequestCode, header: Header | None = None) -> bytes:
        """The body of the first answer; raises BrokerError when it is a refusal."""
        problems: list[str] = []
        untrusted = 0
        first = self._current  # calls under way at the same time each go round by themselves
        for step in range(len(self._addrs)):
            place = (first + step) % len(self._addrs)
            addr = self._addrs[place]
            try:
                channel = await self._pool.channel(addr)
                answer = await channel.call(request(code, 0, header), self._timeout_s)
            except ClientStopped:
                raise
            except RemotingError as error:
                problems.append(str(error))
                untrusted += isinstance(error, CertificateRefused)
                continue
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                problems.append(
                    f"{addr} is no name server but perhaps a broker; a name server's usual port is "
                    f"9876 ({answer.remark})"
                )
                continue
            self._current = place
            if answer.code != ResponseCode.SUCCESS:
                raise BrokerError(answer.code, answer.remark, addr)
            return answer.body
        kind = CertificateRefused if untrusted == len(problems) else ConnectFailed
        raise kind(f"no name server answers: {'; '.join(problems)}")
