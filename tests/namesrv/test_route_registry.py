"""The route registry by itself, with time as an argument."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cometmq.errors import Reject
from cometmq.model.topic import DataVersion, TopicConfig
from cometmq.namesrv.registered_brokers import (
    BrokerId,
    BrokerRegistration,
    RegisterBrokerResult,
)
from cometmq.namesrv.route_registry import EXPIRY_MS, FORGOTTEN_AT_ONCE, RouteRegistry

A = BrokerId("C", "a", 0, "1.1.1.1:1")
SLAVE = BrokerId("C", "a", 1, "2.2.2.2:1")
B = BrokerId("C", "b", 0, "3.3.3.3:1")
OTHER = BrokerId("D", "d", 0, "4.4.4.4:1")


def registration(who: BrokerId, *topics: str, counter: int = 1, **more: Any) -> BrokerRegistration:
    perm = more.pop("perm", 6)
    state = more.pop("state", 0)
    table = {name: TopicConfig(topic_name=name, perm=perm, write_queue_nums=4) for name in topics}
    version = DataVersion(counter=counter, state_version=state)
    return BrokerRegistration(who=who, topics=table, version=version, **more)


def register(
    routes: RouteRegistry, registered: BrokerRegistration, monotonic_ms: int, **more: Any
) -> RegisterBrokerResult:
    steps = routes.registering(registered, monotonic_ms, **more)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: RegisterBrokerResult = end.value
            return found


def route_of(routes: RouteRegistry, topic: str, **more: Any) -> dict[str, dict[int, str]]:
    found = routes.route(topic, **more)
    return {} if found is None else {b.broker_name: b.broker_addrs for b in found.broker_datas}


def perm_of(routes: RouteRegistry, topic: str, name: str) -> int:
    found = routes.route(topic)
    assert found is not None
    return next(queue.perm for queue in found.queue_datas if queue.broker_name == name)


def topics_of(routes: RouteRegistry, cluster: str) -> list[str]:
    return sorted(filter(None, routes.each_topic_of(cluster)))


def test_a_topic_lives_on_every_broker_that_registered_it() -> None:
    routes = RouteRegistry()
    register(routes, registration(A, "t", "u"), 0)
    register(routes, registration(B, "t", "v"), 0)
    assert route_of(routes, "t") == {"a": {0: A.addr}, "b": {0: B.addr}}
    assert route_of(routes, "u") == {"a": {0: A.addr}}
    assert routes.route("nowhere") is None
    assert sorted(routes.topics()) == ["t", "u", "v"]
    assert topics_of(routes, "C") == ["t", "u", "v"]
    assert topics_of(routes, "D") == []


def test_an_unknown_broker_may_not_begin_with_a_single_topic() -> None:
    routes = RouteRegistry()
    with pytest.raises(Reject, match="all its topics before a single one"):
        register(routes, registration(A, "t"), 0)
    assert routes.route("t") is None
    assert routes.cluster_info().broker_addr_table == {}
    register(routes, registration(A, "t", "u"), 0)
    register(routes, registration(A, "v", counter=2), 0)
    assert route_of(routes, "v") == {"a": {0: A.addr}}


def test_topics_are_taken_again_only_when_the_data_version_moved() -> None:
    routes = RouteRegistry()
    register(routes, registration(A, "t", "u"), 0)
    register(routes, registration(A, "t", "u", perm=4), 0)
    assert perm_of(routes, "t", "a") == 6
    register(routes, registration(A, "t", "u", perm=4, counter=2), 0)
    assert perm_of(routes, "t", "a") == 4


def test_the_topics_of_a_broker_that_is_gone_are_freed_one_after_the_other() -> None:
    class Name(str):
        __slots__ = ()

        def __del__(self) -> None:
            freed[-1] += 1

    freed = [0]
    routes = RouteRegistry()
    size = FORGOTTEN_AT_ONCE + 500
    register(routes, registration(A, *[Name(number) for number in range(size)]), 0)
    freed[:] = [0]
    routes.unregister(A)
    assert freed[0] <= FORGOTTEN_AT_ONCE
    for _ in routes.forget_gone():
        freed += [0]
    assert sum(freed) == size
    assert max(freed[1:]) <= 1


def test_a_topic_no_longer_listed_stays_unless_it_is_to_vanish() -> None:
    routes = RouteRegistry()
    register(routes, registration(A, "t", "u", "v"), 0)
    register(routes, registration(A, "t", "u", counter=2), 0)
    assert route_of(routes, "v") == {"a": {0: A.addr}}
    register(routes, registration(A, "t", "u", counter=3), 0, drop_missing=True)
    assert routes.route("v") is None


def test_a_slave_learns_its_master_and_brings_no_topics() -> None:
    routes = RouteRegistry()
    assert register(routes, registration(SLAVE, "t", "u"), 0) == RegisterBrokerResult()
    assert routes.route("t") is None
    register(routes, registration(A, "t", "u", ha_server_addr="1.1.1.1:2"), 0)
    assert register(routes, registration(SLAVE, "x", "y"), 0) == RegisterBrokerResult(
        A.addr, "1.1.1.1:2"
    )
    assert routes.route("x") is None
    assert route_of(routes, "t") == {"a": {0: A.addr, 1: SLAVE.addr}}


def test_a_promoted_slave_gives_up_its_old_id() -> None:
    routes = RouteRegistry()
    register(routes, registration(A, "t", "u"), 0)
    register(routes, registration(SLAVE, "t", "u"), 0)
    routes.unregister(A)
    register(routes, registration(SLAVE._replace(broker_id=0), "t", "u", counter=2), 0)
    assert route_of(routes, "t") == {"a": {0: SLAVE.addr}}


def test_a_broker_that_registers_under_another_name_leaves_its_former_one() -> None:
    routes = RouteRegistry()
    register(routes, registration(A, "t", "u"), 0)
    register(routes, registration(A._replace(broker_name="renamed"), "t", "u"), 0)
    assert route_of(routes, "t") == {"renamed": {0: A.addr}}
    assert list(routes.cluster_info().broker_addr_table) == ["renamed"]
    routes.unregister(A._replace(broker_name="renamed"))
    assert routes.cluster_info().broker_addr_table == {}
    assert routes.topics() == []


def test_an_older_election_does_not_replace_a_newer_one() -> None:
    routes = RouteRegistry()
    register(routes, registration(A, "t", "u", state=5), 0)
    usurper = A._replace(addr="9.9.9.9:9")
    register(routes, registration(usurper, "t", "u", state=4), 0)
    assert route_of(routes, "t") == {"a": {0: A.addr}}
    register(routes, registration(usurper, "t", "u", state=6), 0)
    assert route_of(routes, "t") == {"a": {0: usurper.addr}}


def test_the_lowest_slave_acts_for_a_lost_master_where_that_is_allowed() -> None:
    routes = RouteRegistry()
    acting = {"has_acting_master": True}
    register(routes, registration(A, "t", "u", **acting), 0)
    register(routes, registration(SLAVE, "t", "u", counter=2, **acting), 0)
    routes.unregister(A)
    assert perm_of(routes, "t", "a") == 4
    assert route_of(routes, "t") == {"a": {1: SLAVE.addr}}
    assert route_of(routes, "t", may_act=True) == {"a": {0: SLAVE.addr}}


def test_the_last_address_takes_the_broker_and_its_topics_along() -> None:
    routes = RouteRegistry()
    register(routes, registration(A, "t", "u"), 0)
    register(routes, registration(B, "t", "v"), 0)
    routes.unregister(A)
    routes.unregister(A)
    assert route_of(routes, "t") == {"b": {0: B.addr}}
    assert routes.route("u") is None
    assert routes.cluster_info().cluster_addr_table == {"C": ["b"]}
    assert routes.version_of("C", A.addr) is None


def test_brokers_expire_after_their_own_time() -> None:
    routes = RouteRegistry()
    register(routes, registration(A, "t", "u"), 1_000)
    register(routes, registration(B, "t", "u", timeout_ms=5_000), 1_000)
    assert routes.expired(6_000) == []
    assert [live.who for live in routes.expired(6_001)] == [B]
    routes.touch("C", B.addr, 6_000)
    assert routes.expired(11_000) == []
    assert [live.who for live in routes.expired(1_001 + EXPIRY_MS)] == [A, B]


def test_what_a_connection_registered_is_found_by_it() -> None:
    routes, first, second = RouteRegistry(), object(), object()
    register(routes, registration(A, "t", "u"), 0, owner=first)
    register(routes, registration(B, "t", "u"), 0, owner=second)
    assert routes.owned_by(first) == [A]
    register(routes, registration(A, "t", "u"), 0, owner=second)
    assert routes.owned_by(first) == []
    assert set(routes.owned_by(second)) == {A, B}


def test_write_permission_is_wiped_and_given_back_over_all_topics_of_a_broker() -> None:
    routes = RouteRegistry()
    register(routes, registration(A, "t", "u", perm=7), 0)
    register(routes, registration(B, "t", "u"), 0)
    assert len(list(routes.wiping_write_perm("a"))) == 2
    assert (perm_of(routes, "t", "a"), perm_of(routes, "t", "b")) == (5, 6)
    assert len(list(routes.adding_write_perm("a"))) == 2
    assert perm_of(routes, "u", "a") == 6
    assert list(routes.wiping_write_perm("nobody")) == []


def test_a_deleted_topic_is_gone_in_one_cluster_or_in_all() -> None:
    routes = RouteRegistry()
    register(routes, registration(A, "t", "u"), 0)
    register(routes, registration(OTHER, "t", "u"), 0)
    routes.delete_topic("t", "C")
    assert route_of(routes, "t") == {"d": {0: OTHER.addr}}
    routes.delete_topic("t")
    routes.delete_topic("t")
    assert routes.route("t") is None
    assert topics_of(routes, "C") == ["u"]


def test_system_topics_are_the_names_of_clusters_and_brokers() -> None:
    routes = RouteRegistry()
    assert routes.system_topics() == ([], None)
    register(routes, registration(A, "t", "u"), 0)
    register(routes, registration(OTHER, "t", "u"), 0)
    assert routes.system_topics() == (["C", "a", "D", "d"], A.addr)


def test_filter_servers_come_with_the_route_and_go_with_their_broker() -> None:
    routes = RouteRegistry()
    register(routes, registration(A, "t", "u", filter_servers=["f:1"]), 0)
    found = routes.route("t")
    assert found is not None
    assert found.filter_server_table == {A.addr: ["f:1"]}
    register(routes, registration(A, "t", "u"), 0)
    found = routes.route("t")
    assert found is not None
    assert found.filter_server_table == {}


_names = st.sampled_from(["a", "b"])
_ids = st.integers(0, 2)
_addrs = st.sampled_from(["h1:1", "h2:1", "h3:1"])
_topics = st.sets(st.sampled_from(["t", "u", "v", "w"]), min_size=2)


class AnyHistory(RuleBasedStateMachine):
    """Whatever brokers do, the tables agree with each other."""

    @initialize()
    def begin(self) -> None:
        self.routes = RouteRegistry()
        self.now_ms = 0

    @rule(name=_names, broker_id=_ids, addr=_addrs, topics=_topics, counter=st.integers(0, 3))
    def register(
        self, name: str, broker_id: int, addr: str, topics: set[str], counter: int
    ) -> None:
        who = BrokerId("C", name, broker_id, addr)
        register(self.routes, registration(who, *sorted(topics), counter=counter), self.now_ms)

    @rule(name=_names, broker_id=_ids, addr=_addrs)
    def unregister(self, name: str, broker_id: int, addr: str) -> None:
        self.routes.unregister(BrokerId("C", name, broker_id, addr))

    @rule(topic=st.sampled_from(["t", "u"]))
    def delete(self, topic: str) -> None:
        self.routes.delete_topic(topic)

    @rule(ms=st.integers(0, EXPIRY_MS))
    def expire(self, ms: int) -> None:
        self.now_ms += ms
        for live in self.routes.expired(self.now_ms):
            self.routes.unregister(live.who)

    @invariant()
    def routes_name_only_brokers_with_an_address(self) -> None:
        known = self.routes.cluster_info().broker_addr_table
        assert all(data.broker_addrs for data in known.values())
        listed = [addr for data in known.values() for addr in data.broker_addrs.values()]
        assert len(set(listed)) == len(listed), "an address belongs to one broker"
        for addr in listed:
            assert self.routes.version_of("C", addr) is not None, "it expires some day"
        for topic in self.routes.topics():
            found = self.routes.route(topic)
            assert found is not None
            assert found.queue_datas
            names = [queue.broker_name for queue in found.queue_datas]
            assert names == [data.broker_name for data in found.broker_datas]
            assert set(names) <= set(known)


AnyHistory.TestCase.settings = settings(max_examples=60, stateful_step_count=25)
TestAnyHistory = AnyHistory.TestCase
