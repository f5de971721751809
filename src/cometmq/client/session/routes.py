"""The routes one client works with: fetched when needed, kept, and fetched again.

Owns the cache and when to renew it; refuses to know what is sent or pulled. Invariant: a route
that was once usable stays in use until a name server tells a new one, so a name server that is
away, or forgets a broker for a moment, stops nobody.
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

_RENEW_GAP_S = 0.5
"""How old a route must be before an error has it fetched again: errors come in swarms."""


class TopicView:
    """One topic's route, and what is read out of it."""

    __slots__ = ("fetched_at", "is_stale", "plan", "publish", "route", "subscribe")

    def __init__(self, topic: str, route: TopicRouteData, fetched_at: float) -> None:
        self.route = route
        self.publish: list[MessageQueue] = route_queues.publish_queues(topic, route)
        self.subscribe: list[MessageQueue] = route_queues.subscribe_queues(topic, route)
        self.fetched_at = fetched_at
        self.is_stale = False
        self.plan: Any = None
        """What its user derived from it and keeps with it."""


class Routes:
    """Routes by topic and addresses by broker name. One loop owns it."""

    def __init__(self, servers: NameServers) -> None:
        self._servers = servers
        self.views: dict[str, TopicView] = {}
        """What is known of each topic in use; for others to read."""
        self._addrs: dict[str, dict[int, str]] = {}
        self._renewals: dict[str, asyncio.Task[None]] = {}
        self._wanted: set[str] = set()

    async def publish_queues(self, topic: str, default_queues: int) -> list[MessageQueue]:
        """The queues to send to. A topic unknown so far borrows the default topic's route.

        Raises RouteNotFound when neither is there, or when no queue may be written, RemotingError
        when no name server answers.
        """
        view = await self._view(topic)
        if view is None:
            view = await self._borrow(topic, default_queues)
        if not view.publish:
            view.is_stale = True
            raise RouteNotFound(
                f"the topic {topic} has no queue that may be written: it is read-only, or the "
                "masters of its brokers are away"
            )
        return view.publish

    async def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """The queues to read; empty while no name server knows the topic."""
        view = await self._view(topic)
        return view.subscribe if view else []

    def spoil(self, topic: str) -> None:
        """Say that the topic's route led to an error: the next use fetches it again, unless
        it was fetched just now.
        """
        if view := self.views.get(topic):
            view.is_stale = True

    def master(self, broker_name: str) -> str:
        """The address of a broker's master. Raises ConnectFailed when none is known."""
        addr = self.find_master(broker_name)
        if addr is None:
            raise ConnectFailed(f"no address is known for the master of broker {broker_name}")
        return addr

    def find_master(self, broker_name: str) -> str | None:
        """The address of a broker's master, or None."""
        return self._addrs.get(broker_name, {}).get(MASTER_ID)

    def reader(self, broker_name: str, broker_id: int) -> str:
        """The address to pull from. Raises ConnectFailed when none is known."""
        addr = route_queues.read_addr(self._addrs.get(broker_name, {}), broker_id)
        if addr is None:
            raise ConnectFailed(f"no address is known for broker {broker_name}")
        return addr

    def addrs(self, *, masters_only: bool) -> set[str]:
        """The addresses of all brokers seen in a route in use."""
        return {
            addr
            for addrs in self._addrs.values()
            for broker_id, addr in addrs.items()
            if broker_id == MASTER_ID or not masters_only
        }

    def broker_names_at(self, addr: str) -> set[str]:
        """The names of the brokers that live at an address."""
        return {name for name, addrs in self._addrs.items() if addr in addrs.values()}

    async def refresh(self) -> None:
        """Fetch all routes in use again; what cannot be fetched stays as it is."""
        for topic in list(self._wanted):
            try:
                await self._renew(topic)
            except CometError as error:
                log.warning("the route of %s stays as it was: %s", topic, error)
        self._forget_brokers()

    def _forget_brokers(self) -> None:
        """Drop the addresses of brokers that no route names any more: no heartbeat goes there."""
        routes = [view.route for view in self.views.values()]
        named = {data.broker_name for route in routes for data in route.broker_datas}
        self._addrs = {name: addrs for name, addrs in self._addrs.items() if name in named}

    async def _view(self, topic: str) -> TopicView | None:
        self._wanted.add(topic)
        view = self.views.get(topic)
        if view is None:
            await self._renew(topic)
        elif view.is_stale and self._age_s(view) > _RENEW_GAP_S:
            try:
                await self._renew(topic)
            except CometError as error:
                log.debug("using the old route of %s: %s", topic, error)
        return self.views.get(topic)

    def _age_s(self, view: TopicView) -> float:
        return asyncio.get_running_loop().time() - view.fetched_at

    async def _renew(self, topic: str) -> None:
        renewal = self._renewals.get(topic)
        if renewal is None:
            renewal = asyncio.get_running_loop().create_task(self._fetch(topic))
            self._renewals[topic] = renewal
            renewal.add_done_callback(lambda task: self._renewed(topic, task))
        await asyncio.shield(renewal)

    def _renewed(self, topic: str, task: asyncio.Task[None]) -> None:
        self._renewals.pop(topic, None)
        if not task.cancelled():
            task.exception()  # seen: whoever waited got it

    async def _fetch(self, topic: str) -> None:
        route = await self._servers.route(topic)
        now = asyncio.get_running_loop().time()
        if route is not None:
            self._keep(topic, TopicView(topic, route, now))
        elif view := self.views.get(topic):
            view.fetched_at = now

    async def _borrow(self, topic: str, default_queues: int) -> TopicView:
        route = await self._servers.route(DEFAULT_TOPIC)
        if route is None:
            raise RouteNotFound(
                f"the topic {topic} does not exist, and the brokers do not create topics by "
                f"themselves; create it with: cometmq topic create {topic}"
            )
        now = asyncio.get_running_loop().time()
        view = TopicView(topic, route_queues.borrowed(route, default_queues), now)
        view.is_stale = True  # the first send makes the topic: look for its own route soon
        self._keep(topic, view)
        if not view.publish:
            raise RouteNotFound(f"no broker that takes messages is known for the topic {topic}")
        return view

    def _keep(self, topic: str, view: TopicView) -> None:
        self.views[topic] = view
        for data in view.route.broker_datas:
            if data.broker_addrs:
                self._addrs[data.broker_name] = dict(data.broker_addrs)
