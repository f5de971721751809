"""The route registry: which broker has which queues of which topic, and who is alive.

Pure memory: time comes in as `monotonic_ms`, connections as opaque owners, settings as arguments.
Refuses to know requests and sockets. Invariant: a broker name is listed exactly as long as one of
its addresses is registered, and a topic has queues only on listed broker names (save after a topic
was deleted, when it has none).
Java: RouteInfoManager.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from cometmq.errors import Reject
from cometmq.model.route import MASTER_ID, BrokerData, ClusterInfo, QueueData, TopicRouteData
from cometmq.model.topic import PERM_READ, PERM_WRITE, DataVersion
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cometmq.model.topic import TopicConfig

BROKERS_MAX = 10_000
"""Addresses registered at once; further ones are refused."""

EXPIRY_MS = 120_000
"""How long a broker lives after its last sign of life, when it did not say how long."""


class BrokerId(NamedTuple):
    """Which registration is meant."""

    cluster: str
    broker_name: str
    broker_id: int
    addr: str


class RegisterBrokerResult(NamedTuple):
    """What a slave learns from its registration; both None for a master."""

    master_addr: str | None = None
    ha_server_addr: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """What a broker registers. `has_acting_master` None: it is too old to know what that is."""

    who: BrokerId
    topics: Mapping[str, TopicConfig]
    version: DataVersion
    timeout_ms: int | None = None
    ha_server_addr: str | None = None
    has_acting_master: bool | None = None
    zone: str | None = None
    filter_servers: list[str] = field(default_factory=list)


class MinBrokerIdChange(NamedTuple):
    """The least id of a broker name is another one now, and who is to hear of it."""

    broker_name: str
    min_id: int
    min_addr: str
    notified: list[str]
    offline_addr: str | None = None
    ha_addr: str | None = None


@dataclass(slots=True)
class BrokerLiveInfo:
    """A registered address and its last sign of life."""

    who: BrokerId
    last_ms: int
    timeout_ms: int
    version: DataVersion
    ha_server_addr: str | None
    owner: object


@dataclass(slots=True)
class _Broker:
    cluster: str
    addrs: dict[int, str] = field(default_factory=dict)
    has_acting_master: bool = False
    zone: str | None = None


class RouteRegistry:
    """All of it. Methods are synchronous and belong to one loop."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, _Broker] = {}
        self._live: dict[tuple[str, str], BrokerLiveInfo] = {}
        self._filter_servers: dict[tuple[str, str], list[str]] = {}
        self.on_min_id: Callable[[MinBrokerIdChange], None] = lambda _change: None
        """Called when brokers that stand in for each other should know who is the first of them."""

    def register(
        self,
        registration: BrokerRegistration,
        monotonic_ms: int,
        *,
        owner: object = None,
        drop_missing: bool = False,
    ) -> RegisterBrokerResult:
        """Take a broker in, or note that it is still there.

        Topics are taken from the master (and from the lowest slave of a set with acting masters)
        when its data version moved. `owner` is what `owned_by` finds it by; `drop_missing` forgets
        topics that it no longer lists. Raises Reject for an unknown broker that brings a single
        topic: a full table must come first.
        """
        who = registration.who
        if self._is_outdated(registration):
            return RegisterBrokerResult()
        broker = self._brokers.get(who.broker_name)
        is_first = broker is None or who.broker_id not in broker.addrs
        before = min(broker.addrs) if broker else 0
        if len(registration.topics) == 1 and (broker is None or who.broker_id not in broker.addrs):
            raise Reject(
                ResponseCode.SYSTEM_ERROR,
                f"{who.broker_name} must register all its topics before a single one",
            )
        if (who.cluster, who.addr) not in self._live and len(self._live) >= BROKERS_MAX:
            raise Reject(ResponseCode.SYSTEM_ERROR, f"{BROKERS_MAX} brokers are registered already")
        if broker is None:
            broker = self._brokers[who.broker_name] = _Broker(who.cluster)
        broker.cluster = who.cluster
        broker.zone = registration.zone
        broker.has_acting_master = bool(registration.has_acting_master)
        _take_address(broker, who)
        stands_in = (
            registration.has_acting_master is not None
            and who.broker_id != MASTER_ID
            and who.broker_id == min(broker.addrs)
        )
        if who.broker_id == MASTER_ID or stands_in:
            if drop_missing:
                self._drop_missing(who.broker_name, registration.topics)
            mask = ~PERM_WRITE if stands_in and registration.has_acting_master else ~0
            self._take_topics(registration, mask, is_first=is_first)
        self._put_live(registration, monotonic_ms, owner)
        if who.broker_id < before:
            others = [addr for number, addr in broker.addrs.items() if number != who.broker_id]
            notified = others or [who.addr]
            self.on_min_id(
                MinBrokerIdChange(
                    who.broker_name,
                    who.broker_id,
                    who.addr,
                    notified,
                    ha_addr=registration.ha_server_addr,
                )
            )
        return self._master_of(who, broker)

    def unregister(self, who: BrokerId) -> None:
        """Let an address go; with its last address a broker's queues go too."""
        self._live.pop((who.cluster, who.addr), None)
        self._filter_servers.pop((who.cluster, who.addr), None)
        broker = self._brokers.get(who.broker_name)
        if broker is None:
            return
        was_first = who.broker_id == min(broker.addrs)
        broker.addrs = {i: addr for i, addr in broker.addrs.items() if addr != who.addr}
        if not broker.addrs:
            del self._brokers[who.broker_name]
            for topic in list(self._topics):
                self._forget(topic, who.broker_name)
        elif broker.has_acting_master and MASTER_ID not in broker.addrs:
            self._change_perm(who.broker_name, lambda perm: perm & ~PERM_WRITE)
        if was_first and broker.addrs and broker.has_acting_master:
            first = min(broker.addrs)
            notified = list(broker.addrs.values())
            self.on_min_id(
                MinBrokerIdChange(who.broker_name, first, broker.addrs[first], notified, who.addr)
            )

    def touch(self, cluster: str, addr: str, monotonic_ms: int) -> None:
        """Note a sign of life."""
        live = self._live.get((cluster, addr))
        if live is not None:
            live.last_ms = monotonic_ms

    def version_of(self, cluster: str, addr: str) -> DataVersion | None:
        """Return the version of the topics that the address registered last."""
        live = self._live.get((cluster, addr))
        return None if live is None else live.version

    def expired(self, monotonic_ms: int) -> list[BrokerLiveInfo]:
        """Return who gave no sign of life for too long."""
        return [
            live for live in self._live.values() if live.last_ms + live.timeout_ms < monotonic_ms
        ]

    def owned_by(self, owner: object) -> list[BrokerId]:
        """Return who registered over this connection."""
        return [live.who for live in self._live.values() if live.owner is owner]

    def route(self, topic: str, *, may_act: bool = False) -> TopicRouteData | None:
        """Return where the topic lives, or None when nobody has it.

        With `may_act` the lowest slave of a set that allows it is shown as the lost master.
        """
        queues = self._topics.get(topic)
        if not queues:
            return None
        brokers: list[BrokerData] = []
        filter_servers: dict[str, list[str]] = {}
        for name, queue in queues.items():
            broker = self._brokers[name]
            addrs = dict(broker.addrs)
            filter_servers.update(self._servers_of(broker))
            lost_master = broker.has_acting_master and MASTER_ID not in addrs
            if may_act and lost_master and not queue.perm & PERM_WRITE:
                addrs[MASTER_ID] = addrs.pop(min(addrs))
            brokers.append(self._broker_data(name, addrs))
        return TopicRouteData(
            broker_datas=tuple(brokers),
            queue_datas=tuple(queues.values()),
            filter_server_table=filter_servers,
        )

    def cluster_info(self) -> ClusterInfo:
        """Return all brokers and clusters."""
        return ClusterInfo(
            broker_addr_table={
                name: self._broker_data(name, dict(broker.addrs))
                for name, broker in self._brokers.items()
            },
            cluster_addr_table=self._clusters(),
        )

    def members(self, cluster: str, broker_name: str) -> BrokerData:
        """Return who shares the broker name; without addresses when nobody does."""
        broker = self._brokers.get(broker_name)
        if broker is None or broker.cluster != cluster:
            return BrokerData(cluster=cluster, broker_name=broker_name, broker_addrs={})
        return self._broker_data(broker_name, dict(broker.addrs))

    def topics(self) -> list[str]:
        """Return all topics that have queues somewhere."""
        return list(self._topics)

    def topics_of(self, cluster: str) -> list[str]:
        """Return the topics with queues on any broker of the cluster."""
        names = {name for name, broker in self._brokers.items() if broker.cluster == cluster}
        return [topic for topic, queues in self._topics.items() if not names.isdisjoint(queues)]

    def topics_with(self, flags: int, *, without: int = 0) -> list[str]:
        """Return the topics whose first queue has all of these sysFlag bits, and none of others."""
        found = []
        for topic, queues in self._topics.items():
            bits = next(iter(queues.values())).topic_sys_flag
            if bits & flags == flags and not bits & without:
                found.append(topic)
        return found

    def add_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Give a topic queues that no registration brought; none when a broker is unknown."""
        given = {queue.broker_name: queue for queue in queues}
        if given and given.keys() <= self._brokers.keys():
            self._topics.setdefault(topic, {}).update(given)

    def system_topics(self) -> tuple[list[str], str | None]:
        """Return the names of clusters and brokers, each a topic, and one broker's address."""
        names: list[str] = []
        for cluster, brokers in self._clusters().items():
            names += [cluster, *brokers]
        addrs = (addr for broker in self._brokers.values() for addr in broker.addrs.values())
        return list(dict.fromkeys(names)), next(addrs, None)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, in one cluster or everywhere, until a broker registers it again."""
        for name in list(self._topics.get(topic, ())):
            if not cluster or self._brokers[name].cluster == cluster:
                self._forget(topic, name)

    def wipe_write_perm(self, broker_name: str) -> int:
        """Take all queues of a broker name out of writing; return how many topics it has."""
        return self._change_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Make all queues of a broker name readable and writable; return how many topics it has."""
        return self._change_perm(broker_name, lambda _perm: PERM_READ | PERM_WRITE)

    def _is_outdated(self, registration: BrokerRegistration) -> bool:
        """Whether another address holds this id with a later election behind it."""
        who = registration.who
        broker = self._brokers.get(who.broker_name)
        holder = broker and broker.addrs.get(who.broker_id)
        if not holder or holder == who.addr:
            return False
        live = self._live.get((who.cluster, holder))
        if live is None or live.version.state_version <= registration.version.state_version:
            return False
        self._live.pop((who.cluster, who.addr), None)
        return True

    def _take_topics(self, registration: BrokerRegistration, mask: int, *, is_first: bool) -> None:
        name = registration.who.broker_name
        known = self.version_of(registration.who.cluster, registration.who.addr)
        has_moved = is_first or known != registration.version
        for topic, config in registration.topics.items():
            queues = self._topics.setdefault(topic, {})
            if has_moved or name not in queues:
                queues[name] = QueueData(
                    broker_name=name,
                    read_queue_nums=config.read_queue_nums,
                    write_queue_nums=config.write_queue_nums,
                    perm=config.perm & mask,
                    topic_sys_flag=config.topic_sys_flag,
                )

    def _put_live(self, registration: BrokerRegistration, monotonic_ms: int, owner: object) -> None:
        key = registration.who.cluster, registration.who.addr
        timeout_ms = registration.timeout_ms or EXPIRY_MS
        self._live[key] = BrokerLiveInfo(
            registration.who,
            monotonic_ms,
            timeout_ms,
            registration.version,
            registration.ha_server_addr,
            owner,
        )
        if registration.filter_servers:
            self._filter_servers[key] = registration.filter_servers
        else:
            self._filter_servers.pop(key, None)

    def _drop_missing(self, name: str, topics: Mapping[str, TopicConfig]) -> None:
        for topic in [topic for topic, queues in self._topics.items() if name in queues]:
            if topic not in topics:
                self._forget(topic, name)

    def _forget(self, topic: str, name: str) -> None:
        queues = self._topics[topic]
        queues.pop(name, None)
        if not queues:
            del self._topics[topic]

    def _change_perm(self, name: str, change: Callable[[int], int]) -> int:
        count = 0
        for queues in self._topics.values():
            queue = queues.get(name)
            if queue is not None:
                queues[name] = replace(queue, perm=change(queue.perm))
                count += 1
        return count

    def _master_of(self, who: BrokerId, broker: _Broker) -> RegisterBrokerResult:
        master = broker.addrs.get(MASTER_ID)
        if who.broker_id == MASTER_ID or master is None:
            return RegisterBrokerResult()
        live = self._live.get((who.cluster, master))
        return RegisterBrokerResult(master, live.ha_server_addr) if live else RegisterBrokerResult()

    def _servers_of(self, broker: _Broker) -> dict[str, list[str]]:
        keys = {addr: (broker.cluster, addr) for addr in broker.addrs.values()}
        table = self._filter_servers
        return {addr: table[key] for addr, key in keys.items() if key in table}

    def _clusters(self) -> dict[str, list[str]]:
        clusters: dict[str, list[str]] = {}
        for name, broker in self._brokers.items():
            clusters.setdefault(broker.cluster, []).append(name)
        return clusters

    def _broker_data(self, name: str, addrs: dict[int, str]) -> BrokerData:
        broker = self._brokers[name]
        return BrokerData(
            cluster=broker.cluster,
            broker_name=name,
            broker_addrs=addrs,
            enable_acting_master=broker.has_acting_master,
            zone_name=broker.zone,
        )


def _take_address(broker: _Broker, who: BrokerId) -> None:
    for broker_id, addr in list(broker.addrs.items()):
        if addr == who.addr and broker_id != who.broker_id:
            del broker.addrs[broker_id]
    broker.addrs[who.broker_id] = who.addr
