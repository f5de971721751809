"""The route registry: which broker has which queues of which topic, and who is alive.

Pure memory: time comes in as `monotonic_ms`, connections as opaque owners, settings as arguments.
Refuses to know requests and sockets. Invariant: a broker name is listed exactly as long as one of
its addresses is registered, and a topic has queues only on listed broker names (save after a topic
was deleted, when it has none).
Java: RouteInfoManager.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

from cometmq.errors import Reject
from cometmq.model.route import MASTER_ID, BrokerData, ClusterInfo, QueueData, TopicRouteData
from cometmq.model.topic import PERM_READ, PERM_WRITE, DataVersion
from cometmq.namesrv.registered_brokers import (
    BrokerId,
    BrokerLiveInfo,
    BrokerRegistration,
    MinBrokerIdChange,
    RegisterBrokerResult,
)
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from cometmq.model.topic import TopicConfig

NAME_CHARS_MAX = 1_024
"""Longest name or address of a broker, and longest name of a cluster or of a topic (217)."""

BROKERS_MAX = 1_000
"""Addresses registered at once; further ones are refused."""

TOPICS_MAX = 500_000
"""Topics of all brokers, each counted once a broker; a registration that brings more is refused."""

FORGOTTEN_AT_ONCE = 1_000
"""Topics of a broker that goes which are forgotten at once; of more, `forget_gone` does it."""

EXPIRY_MS = 120_000
"""How long a broker lives after its last sign of life, when it did not say how long."""


@dataclass(slots=True)
class _Broker:
    cluster: str
    addrs: dict[int, str] = field(default_factory=dict)
    has_acting_master: bool = False
    zone: str | None = None


class RouteRegistry:
    """All of it. Methods are synchronous and belong to one loop."""

    def __init__(self, topics_max: int = TOPICS_MAX) -> None:
        self._topics_max = topics_max
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._topics_of: dict[str, dict[str, None]] = {}
        """The topics of each broker name: `_topics` the other way round."""
        self._count = 0
        """Pairs of a topic and a broker name."""
        self.generation = 0
        """Moves when a topic or a broker comes or goes."""
        self.removals = 0
        """Moves when topics go that registrations may bring again."""
        self._brokers: dict[str, _Broker] = {}
        self._live: dict[tuple[str, str], BrokerLiveInfo] = {}
        self._filter_servers: dict[tuple[str, str], list[str]] = {}
        self._gone: deque[tuple[str, dict[str, None]]] = deque()
        """Brokers that are gone, with their topics; routes do not show them any more."""
        self.on_min_id: Callable[[MinBrokerIdChange], None] = lambda _change: None
        """Called when brokers that stand in for each other should know who is the first of them."""

    def registering(
        self,
        registration: BrokerRegistration,
        monotonic_ms: int,
        *,
        owner: object = None,
        drop_missing: bool = False,
        fingerprint: object = None,
    ) -> Generator[None, None, RegisterBrokerResult]:
        """Take a broker in, or note that it is still there; many topics in steps.

        Topics are taken from the master (and from the lowest slave of a set with acting masters)
        when its data version moved. `owner` is what `owned_by` finds it by; `drop_missing` forgets
        topics that it no longer lists; by `fingerprint` `refresh` knows the registration again. A
        broker that goes between two steps is gone. Raises Reject for an unknown broker that brings
        a single topic (a full table must come first), and at a bound.
        """
        yield from self._checking_count(registration)
        who = registration.who
        if self._is_outdated(registration):
            return RegisterBrokerResult()
        broker = self._brokers.get(who.broker_name)
        is_first = broker is None or who.broker_id not in broker.addrs
        before = min(broker.addrs) if broker else 0
        self._check_bounds(registration, is_first=is_first)
        former = self._live.get((who.cluster, who.addr))
        if former is not None and former.who.broker_name != who.broker_name:
            self.unregister(former.who)  # the broker at this address has another name now
        if broker is None:
            broker = self._brokers[who.broker_name] = _Broker(who.cluster)
            self.generation += 1
        broker.cluster = who.cluster
        broker.zone = registration.zone
        broker.has_acting_master = bool(registration.has_acting_master)
        _take_address(broker, who)
        stands_in = (
            registration.has_acting_master is not None
            and who.broker_id != MASTER_ID
            and who.broker_id == min(broker.addrs)
        )
        known = self.version_of(who.cluster, who.addr)
        self._put_live(registration, monotonic_ms, owner)
        if who.broker_id == MASTER_ID or stands_in:
            if drop_missing:
                self._drop_missing(who.broker_name, registration.topics)
            mask = ~PERM_WRITE if stands_in and registration.has_acting_master else ~0
            has_moved = is_first or known != registration.version
            yield from self._take_topics(registration, mask, has_moved=has_moved)
        live = self._live.get((who.cluster, who.addr))
        if live is not None and broker.addrs.get(who.broker_id) == who.addr:
            live.fingerprint = fingerprint and (fingerprint, self.removals)
        self._tell_first(registration, broker, before)
        return self._master_of(who, broker)

    def refresh(
        self, who: BrokerId, fingerprint: object, monotonic_ms: int, owner: object
    ) -> RegisterBrokerResult | None:
        """Note that a broker is still there which registers just what it has registered before.

        None: it is not so, or a topic went meanwhile; the whole registration must be read.
        """
        live = self._live.get((who.cluster, who.addr))
        broker = self._brokers.get(who.broker_name)
        if live is None or broker is None or broker.addrs.get(who.broker_id) != who.addr:
            return None
        if live.who != who or live.fingerprint != (fingerprint, self.removals):
            return None
        live.last_ms, live.owner = monotonic_ms, owner
        return self._master_of(who, broker)

    def _check_bounds(self, registration: BrokerRegistration, *, is_first: bool) -> None:
        who, topics = registration.who, registration.topics
        for name in (who.cluster, who.broker_name, who.addr, registration.ha_server_addr or ""):
            _check_name(name)
        if len(topics) == 1 and is_first:
            raise Reject(
                ResponseCode.SYSTEM_ERROR,
                f"{who.broker_name} must register all its topics before a single one",
            )
        if (who.cluster, who.addr) not in self._live and len(self._live) >= BROKERS_MAX:
            raise Reject(ResponseCode.SYSTEM_ERROR, f"{BROKERS_MAX} brokers are registered already")

    def _checking_count(self, registration: BrokerRegistration) -> Iterator[None]:
        """Raise Reject for a registration with which there are too many topics."""
        name, topics = registration.who.broker_name, registration.topics
        if self._count + len(topics) <= self._topics_max:
            return
        count = self._count
        for topic in topics:
            count += topic not in self._topics_of.get(name, ())
            yield
        if count > self._topics_max:
            raise Reject(
                ResponseCode.SYSTEM_ERROR,
                f"with the {len(topics)} topics of {name} this name server would have "
                f"more than {self._topics_max} (registeredTopicsMax)",
            )

    def _tell_first(self, registration: BrokerRegistration, broker: _Broker, before: int) -> None:
        """Tell the others when a broker is the first of its name now."""
        who = registration.who
        if who.broker_id < before:
            others = [addr for number, addr in broker.addrs.items() if number != who.broker_id]
            change = MinBrokerIdChange(
                who.broker_name,
                who.broker_id,
                who.addr,
                others or [who.addr],
                ha_addr=registration.ha_server_addr,
            )
            self.on_min_id(change)

    def unregister(self, who: BrokerId) -> None:
        """Let an address go; with its last address a broker's queues go too."""
        live = self._live.get((who.cluster, who.addr))
        if live is not None and live.who.broker_name != who.broker_name:
            return  # the address is another broker's now
        self._live.pop((who.cluster, who.addr), None)
        self._filter_servers.pop((who.cluster, who.addr), None)
        broker = self._brokers.get(who.broker_name)
        if broker is None:
            return
        was_first = who.broker_id == min(broker.addrs)
        broker.addrs = {i: addr for i, addr in broker.addrs.items() if addr != who.addr}
        if not broker.addrs:
            del self._brokers[who.broker_name]
            self._gone.append((who.broker_name, self._topics_of.pop(who.broker_name, {})))
            self.generation += 1
            for _ in islice(self.forget_gone(), FORGOTTEN_AT_ONCE):
                pass
        elif broker.has_acting_master and MASTER_ID not in broker.addrs:
            for _ in self.wiping_write_perm(who.broker_name):
                pass
        if was_first and broker.addrs and broker.has_acting_master:
            first = min(broker.addrs)
            notified = list(broker.addrs.values())
            self.on_min_id(
                MinBrokerIdChange(who.broker_name, first, broker.addrs[first], notified, who.addr)
            )

    @property
    def has_gone(self) -> bool:
        """Whether topics of brokers that are gone are still to be forgotten: `forget_gone`."""
        return bool(self._gone)

    def forget_gone(self) -> Iterator[None]:
        """Forget topics of brokers that are gone, one with each step."""
        while self._gone:
            name, topics = self._gone[0]
            if not topics:
                self._gone.popleft()
                continue
            topic, _ = topics.popitem()  # so that no step frees very many
            if topic not in self._topics_of.get(name, ()):  # else it has registered anew
                self._drop_pair(topic, name)
            yield

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
            broker = self._brokers.get(name)
            if broker is None:
                continue  # it is gone, and this topic of it soon
            addrs = dict(broker.addrs)
            filter_servers.update(self._servers_of(broker))
            lost_master = broker.has_acting_master and MASTER_ID not in addrs
            if may_act and lost_master and not queue.perm & PERM_WRITE:
                addrs[MASTER_ID] = addrs.pop(min(addrs))
            brokers.append(self._broker_data(name, addrs))
        if not brokers:
            return None
        return TopicRouteData(
            broker_datas=tuple(brokers),
            queue_datas=tuple(queue for name, queue in queues.items() if name in self._brokers),
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

    @property
    def topic_count(self) -> int:
        """How many topics there are."""
        return len(self._topics)

    def topics(self) -> list[str]:
        """Return all topics that have queues somewhere."""
        if not self._gone:
            return list(self._topics)
        known = self._brokers.keys()
        return [topic for topic, queues in self._topics.items() if not known.isdisjoint(queues)]

    def each_topic_of(self, cluster: str) -> Iterator[str]:
        """Each topic with queues on any broker of the cluster; empty names for the others."""
        names = {name for name, broker in self._brokers.items() if broker.cluster == cluster}
        for topic, queues in list(self._topics.items()):
            yield topic if not names.isdisjoint(queues) else ""

    def each_topic_with(self, flags: int, *, without: int = 0) -> Iterator[str]:
        """Each topic whose first queue has all of these sysFlag bits, and none of others.

        Empty names for the other topics.
        """
        for topic, queues in list(self._topics.items()):
            first = next(iter(queues.values()), None)
            bits = first.topic_sys_flag if first is not None else ~flags
            yield topic if bits & flags == flags and not bits & without else ""

    def add_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Give a topic queues that no registration brought; none when a broker is unknown.

        Raises Reject at a bound.
        """
        _check_name(topic)
        given = {queue.broker_name: queue for queue in queues}
        if given and given.keys() <= self._brokers.keys():
            if self._count + len(given) > self._topics_max:
                raise Reject(
                    ResponseCode.SYSTEM_ERROR, f"{self._count} topics are registered already"
                )
            for name, queue in given.items():
                self._put_pair(topic, name, queue)

    def system_topics(self) -> tuple[list[str], str | None]:
        """Return the names of clusters and brokers, each a topic, and one broker's address."""
        names: list[str] = []
        for cluster, brokers in self._clusters().items():
            names += [cluster, *brokers]
        addrs = (addr for broker in self._brokers.values() for addr in broker.addrs.values())
        return list(dict.fromkeys(names)), next(addrs, None)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, in one cluster or everywhere, until a broker registers it again."""
        self.removals += 1
        for name in list(self._topics.get(topic, ())):
            broker = self._brokers.get(name)
            if broker is not None and (not cluster or broker.cluster == cluster):
                self._forget(topic, name)

    def wiping_write_perm(self, broker_name: str) -> Iterator[None]:
        """Take all queues of a broker name out of writing, a topic with each step."""
        return self._changing_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def adding_write_perm(self, broker_name: str) -> Iterator[None]:
        """Make all queues of a broker name readable and writable, a topic with each step."""
        return self._changing_perm(broker_name, lambda _perm: PERM_READ | PERM_WRITE)

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
        if (former := self._live.get((who.cluster, who.addr))) is not None:
            self.unregister(former.who)
        return True

    def _take_topics(
        self, registration: BrokerRegistration, mask: int, *, has_moved: bool
    ) -> Iterator[None]:
        name, who = registration.who.broker_name, registration.who
        broker = self._brokers[name]
        for topic, config in registration.topics.items():
            if self._brokers.get(name) is not broker or broker.addrs.get(who.broker_id) != who.addr:
                return  # it went away between two steps
            if has_moved or topic not in self._topics_of.get(name, ()):
                queue = QueueData(
                    broker_name=name,
                    read_queue_nums=config.read_queue_nums,
                    write_queue_nums=config.write_queue_nums,
                    perm=config.perm & mask,
                    topic_sys_flag=config.topic_sys_flag,
                )
                self._put_pair(topic, name, queue)
            yield

    def _put_pair(self, topic: str, name: str, queue: QueueData) -> None:
        queues = self._topics.get(topic)
        if queues is None:
            queues = self._topics[topic] = {}
            self.generation += 1
        self._count += name not in queues
        queues[name] = queue
        self._topics_of.setdefault(name, {})[topic] = None

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
        for topic in list(self._topics_of.get(name, ())):
            if topic not in topics:
                self._forget(topic, name)

    def _forget(self, topic: str, name: str) -> None:
        of_broker = self._topics_of.get(name, {})
        of_broker.pop(topic, None)
        if not of_broker:
            self._topics_of.pop(name, None)
        self._drop_pair(topic, name)

    def _drop_pair(self, topic: str, name: str) -> None:
        queues = self._topics.get(topic)
        if queues is None:
            return
        self._count -= queues.pop(name, None) is not None
        if not queues:
            del self._topics[topic]
            self.generation += 1

    def _changing_perm(self, name: str, change: Callable[[int], int]) -> Iterator[None]:
        for topic in list(self._topics_of.get(name, ())):
            queue = self._topics.get(topic, {}).get(name)
            if queue is None:
                continue  # it went between two steps
            if (perm := change(queue.perm)) != queue.perm:
                self._topics[topic][name] = replace(queue, perm=perm)
            yield

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


def _check_name(name: str) -> None:
    """Raise Reject for a name that is longer than any: it would be kept."""
    if len(name) > NAME_CHARS_MAX:
        raise Reject(
            ResponseCode.SYSTEM_ERROR,
            f"the name {name[:32]!r}... has {len(name)} characters, the limit is {NAME_CHARS_MAX}",
        )


def _take_address(broker: _Broker, who: BrokerId) -> None:
    for broker_id, addr in list(broker.addrs.items()):
        if addr == who.addr and broker_id != who.broker_id:
            del broker.addrs[broker_id]
    broker.addrs[who.broker_id] = who.addr
