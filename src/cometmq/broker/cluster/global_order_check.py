"""Which other broker has a topic: one in global order lies on a single broker of the cluster.

Owns the questions to name servers and brokers (105, 351). Refuses to know what follows from the
answers. One that says nothing within `ANSWER_S` is not asked again for the same request.
Java: none; there an operator must take care.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from cometmq.errors import CometError
from cometmq.model.topic import is_in_global_order
from cometmq.wire.bodies.route import decode_route
from cometmq.wire.bodies.topic import decode_topic_config
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.headers.admin import GetTopicConfigRequestHeader
from cometmq.wire.headers.namesrv import GetRouteInfoRequestHeader

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

    from cometmq.net.channel_pool import ChannelPool
    from cometmq.wire.command import Command

log = logging.getLogger(__name__)
_T = TypeVar("_T")

ANSWER_S = 1.0
"""How long a name server or a broker may take to answer, seconds."""


class ForeignTopic(NamedTuple):
    """A topic that another broker has."""

    topic: str
    broker_name: str
    is_in_global_order: bool


class GlobalOrderCheck:
    """Asks who else has a topic. Belongs to the broker's loop."""

    def __init__(
        self, pool: ChannelPool, name_servers: Callable[[], Sequence[str]], broker_name: str
    ) -> None:
        self._pool = pool
        self._name_servers = name_servers
        self.broker_name = broker_name
        """Our own name: the broker of that name is not asked."""

    async def find(self, topics: Iterable[str], alone: Container[str] = ()) -> ForeignTopic | None:
        """Return one of the topics that another broker has in global order, or None.

        One of `alone` is returned whatever its order is there.
        """
        silent: set[str] = set()
        for topic in topics:
            question = request(
                RequestCode.GET_TOPIC_CONFIG, 0, GetTopicConfigRequestHeader(topic=topic)
            )
            for addr, name in await self._brokers_of(topic, silent):
                found = await self._ask(addr, question, decode_topic_config, silent)
                if found is not None and (is_in_global_order(found) or topic in alone):
                    return ForeignTopic(topic, name, is_in_global_order(found))
        return None

    async def _brokers_of(self, topic: str, silent: set[str]) -> list[tuple[str, str]]:
        """Address and name of the other brokers that have the topic, by the first name server."""
        for addr in self._name_servers():
            question = request(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, 0, GetRouteInfoRequestHeader(topic=topic)
            )
            route = await self._ask(addr, question, decode_route, silent)
            if route is not None:
                found = [(each.master, each.broker_name) for each in route.broker_datas]
                own = self.broker_name
                return [(master, name) for master, name in found if master and name != own]
        return []

    async def _ask(
        self, addr: str, question: Command, decode: Callable[[bytes], _T], silent: set[str]
    ) -> _T | None:
        """The decoded answer; None for a refusal or a silent address. One that fails is silent."""
        if addr in silent:
            return None
        try:
            async with asyncio.timeout(ANSWER_S):
                channel = await self._pool.channel(addr)
                answer = await channel.call(question, ANSWER_S)
            return decode(answer.body) if answer.code == 0 else None
        except (CometError, TimeoutError) as error:
            silent.add(addr)
            log.warning("%s does not say which topics are in global order: %s", addr, error)
            return None
