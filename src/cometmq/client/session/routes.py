"""The routes of the topics that one client uses: fetched on demand, cached, refreshed.

Owns the cache and when to refresh it; refuses to know what is sent or pulled. Invariant: a usable
route stays in use until a name server returns a new one, so a name server that is down, or forgets
a broker for a moment, stops no client.
Java: MQClientInstance.updateTopicRouteInfoFromNameServer
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from cometmq.errors import CometError, ConnectFailed, RouteNotFound
from cometmq.model.route import MASTER_ID
from cometmq.model.topic import DEFAULT_TOPIC
from cometmq.rules import route_queues

if TYPE_CHECKING:
    from cometmq.client.session.name_servers import NameServers
    from cometmq.model.queue import MessageQueue
    from cometmq.model.route import TopicRouteData

log = logging.getLogger(__name__)

_REFRESH_GAP_S = 0.5
"""A stale route younger than this is not fetched again: one fault causes many errors."""


class CachedRoute:
    """One topic's route, and the queues it has for sends and for pulls."""

    __slots__ = ("fetched_at", "is_stale", "publish", "route", "send_targets", "subscribe")

    def __init__(self, topic: str, route: TopicRouteData, fetched_at: float) -> None:
        self.route = route
        self.publish: list[MessageQueue] = route_queues.publish_queues(topic, route)
        self.subscribe: list[MessageQueue] = route_queues.subscribe_queues(topic, route)
        self.fetched_at = fetched_at
        self.is_stale = False
        self.send_targets: Any = None
        """What the fast path of sends derived from this route; it goes with the route."""


class Routes:
    """Routes by topic and addresses by broker name. One loop owns it."""

    def __init__(self, servers: NameServers) -> None:
        self._servers = servers
        self.cached: dict[str, CachedRoute] = {}
        """The route of each topic in use; others only read it."""
        self._addrs: dict[str, dict[int, str]] = {}
        self._fetches: dict[str, asyncio.Task[None]] = {}

    async def publish_queues(self, topic: str, default_queues: int) -> list[MessageQueue]:
        """The queues to send to. A topic unknown so far borrows the default topic's route.

        Raises RouteNotFound when neither is there, or when no queue may be written, RemotingError
        when no name server answers.
        """
        route = await self._current(topic)
        if route is None:
            route = await self._borrow(topic, default_queues)
        if not route.publish:
            route.is_stale = True
            raise RouteNotFound(
                f"the topic {topic} has no queue that may be written: it is read-only, or the "
                "masters of its brokers are away"
            )
        return route.publish

    async def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """The queues to read; empty while no name server knows the topic."""
        route = await self._current(topic)
        return route.subscribe if route else []

    def mark_stale(self, topic: str) -> None:
        """Have the next use fetch the topic's route again, unless it was fetched just now."""
        if route := self.cached.get(topic):
            route.is_stale = True

    def refresh_wait_s(self, topic: str) -> float:
        """How long until a stale route of the topic may be fetched again, seconds; 0: now."""
        route = self.cached.get(topic)
        return 0.0 if route is None else max(0.0, _REFRESH_GAP_S - self._age_s(route))

    def forget(self, topic: str) -> None:
        """Have the next use fetch the topic's route, however young this one is: it has changed."""
        self.cached.pop(topic, None)

    def master_addr(self, broker_name: str) -> str:
        """The address of a broker's master. Raises ConnectFailed when none is known."""
        addr = self.find_master_addr(broker_name)
        if addr is None:
            raise ConnectFailed(f"no address is known for the master of broker {broker_name}")
        return addr

    def find_master_addr(self, broker_name: str) -> str | None:
        """The address of a broker's master, or None."""
        return self._addrs.get(broker_name, {}).get(MASTER_ID)

    def read_addr(self, broker_name: str, broker_id: int) -> str:
        """The address to pull from. Raises ConnectFailed when none is known."""
        addr = route_queues.read_addr(self._addrs.get(broker_name, {}), broker_id)
        if addr is None:
            raise ConnectFailed(f"no address is known for broker {broker_name}")
        return addr

    def broker_addrs(self, *, masters_only: bool) -> set[str]:
        """The addresses of all brokers seen in a route in use."""
        return {
            addr
            for addrs in self._addrs.values()
            for broker_id, addr in addrs.items()
            if broker_id == MASTER_ID or not masters_only
        }

    def broker_names_at(self, addr: str) -> set[str]:
        """The names of the brokers that routes in use say are at an address."""
        return {name for name, addrs in self._addrs.items() if addr in addrs.values()}

    async def refresh(self) -> None:
        """Fetch all routes in use again; what cannot be fetched stays as it is."""
        for topic in list(self.cached):
            try:
                await self._fetch_shared(topic)
            except CometError as error:
                log.warning("the route of %s stays as it was: %s", topic, error)
        self._forget_brokers()

    def _forget_brokers(self) -> None:
        """Drop the addresses of brokers that no route names any more: no heartbeat goes there."""
        routes = self.cached.values()
        named = {data.broker_name for one in routes for data in one.route.broker_datas}
        self._addrs = {name: addrs for name, addrs in self._addrs.items() if name in named}

    async def _current(self, topic: str) -> CachedRoute | None:
        route = self.cached.get(topic)
        if route is None:
            await self._fetch_shared(topic)
        elif route.is_stale and self._age_s(route) >= _REFRESH_GAP_S:
            try:
                await self._fetch_shared(topic)
            except CometError as error:
                log.debug("using the old route of %s: %s", topic, error)
        return self.cached.get(topic)

    def _age_s(self, route: CachedRoute) -> float:
        return asyncio.get_running_loop().time() - route.fetched_at

    async def _fetch_shared(self, topic: str) -> None:
        """Fetch the route; callers at the same time share one request."""
        fetch = self._fetches.get(topic)
        if fetch is None:
            fetch = asyncio.get_running_loop().create_task(self._fetch(topic))
            self._fetches[topic] = fetch
            fetch.add_done_callback(lambda task: self._on_fetched(topic, task))
        await asyncio.shield(fetch)

    def _on_fetched(self, topic: str, task: asyncio.Task[None]) -> None:
        self._fetches.pop(topic, None)
        if not task.cancelled():
            task.exception()  # marks it as retrieved; the callers that waited have raised it

    async def _fetch(self, topic: str) -> None:
        route = await self._servers.route(topic)
        now = asyncio.get_running_loop().time()
        if route is not None:
            self._store(topic, CachedRoute(topic, route, now))
        elif known := self.cached.get(topic):
            known.fetched_at = now

    async def _borrow(self, topic: str, default_queues: int) -> CachedRoute:
        route = await self._servers.route(DEFAULT_TOPIC)
        if route is None:
            why = await self._servers.why_unknown(
                f"the topic {topic} does not exist, and the brokers do not create topics by "
                f"themselves; create it with: cometmq topic create {topic}"
            )
            raise RouteNotFound(why)
        now = asyncio.get_running_loop().time()
        borrowed = CachedRoute(topic, route_queues.default_topic_route(route, default_queues), now)
        borrowed.is_stale = True  # the first send creates the topic: fetch its own route soon
        self._store(topic, borrowed)
        if not borrowed.publish:
            raise RouteNotFound(f"no broker that takes messages is known for the topic {topic}")
        return borrowed

    def _store(self, topic: str, route: CachedRoute) -> None:
        self.cached[topic] = route
        for data in route.route.broker_datas:
            if data.broker_addrs:
                self._addrs[data.broker_name] = dict(data.broker_addrs)
