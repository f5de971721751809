"""Allocation: the vectors that Java made, and what holds for every strategy."""

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.model.queue import MessageQueue
from cometmq.rules import allocate

CLIENTS = ["192.0.2.1@1", "192.0.2.2@2", "192.0.2.3@3"]
QUEUES = [MessageQueue("T1", "b0", n) for n in range(8)]


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("AVG", [{0, 1, 2}, {3, 4, 5}, {6, 7}]),
        ("AVG_BY_CIRCLE", [{0, 3, 6}, {1, 4, 7}, {2, 5}]),
        ("CONSISTENT_HASH", [{3}, set(), {0, 1, 2, 4, 5, 6, 7}]),
    ],
)
def test_the_shares_are_those_of_java(name, shares):
    strategy = allocate.STRATEGIES[name]
    for client, share in zip(CLIENTS, shares, strict=True):
        got = allocate.share_of(strategy, client, QUEUES[::-1], CLIENTS[::-1])
        assert {queue.queue_id for queue in got} == share


names = st.text(st.characters(min_codepoint=33, max_codepoint=0x1FFFF, exclude_categories=["Cs"]))
groups = st.lists(names.filter(bool), min_size=1, max_size=12, unique=True)
topics = st.builds(
    lambda counts: [
        MessageQueue("T", f"broker-{at}", n)
        for at, count in enumerate(counts)
        for n in range(count)
    ],
    st.lists(st.integers(0, 9), max_size=4),
)
strategies = st.sampled_from(sorted(allocate.STRATEGIES.values(), key=repr))


@given(strategies, groups, topics, st.randoms())
def test_every_queue_has_exactly_one_owner_whatever_order_things_came_in(
    strategy, clients, queues, random
):
    owned = []
    for client in clients:
        seen_queues, seen_clients = queues[:], clients[:]
        random.shuffle(seen_queues)
        random.shuffle(seen_clients)
        owned += allocate.share_of(strategy, client, seen_queues, seen_clients)
    assert sorted(owned) == sorted(queues)


@given(st.sampled_from(["AVG", "AVG_BY_CIRCLE"]), groups, topics)
def test_equal_shares_differ_by_one_queue_at_most(name, clients, queues):
    strategy = allocate.STRATEGIES[name]
    sizes = [len(allocate.share_of(strategy, client, queues, clients)) for client in clients]
    assert max(sizes) - min(sizes) <= 1


def test_a_client_outside_the_group_gets_no_queue():
    assert allocate.share_of(allocate.average, "stranger", QUEUES, CLIENTS) == []
    assert allocate.share_of(allocate.average, "stranger", QUEUES, []) == []


def test_a_configured_share_ignores_the_others():
    own = QUEUES[2:4]
    strategy = allocate.configured(own)
    assert allocate.share_of(strategy, CLIENTS[0], QUEUES, CLIENTS) == own


def test_a_machine_room_serves_its_own_brokers_only():
    here = [MessageQueue("T", "r1@b", n) for n in range(5)]
    there = [MessageQueue("T", "r2@b", n) for n in range(5)]
    strategy = allocate.machine_room({"r1"})
    shares = [
        allocate.share_of(strategy, client, [*here, *there, *QUEUES], CLIENTS) for client in CLIENTS
    ]
    assert [len(share) for share in shares] == [2, 2, 1]
    assert sorted(chain(*shares)) == here


def test_nearby_machine_rooms_leave_no_queue_without_an_owner():
    queues = [MessageQueue("T", f"{room}@b", n) for room in ("r1", "r2", "r3") for n in range(4)]
    clients = ["r1-a", "r1-b", "r2-a"]
    strategy = allocate.machine_room_nearby(
        allocate.average, lambda broker: broker.split("@")[0], lambda client: client.split("-")[0]
    )
    shares = {client: allocate.share_of(strategy, client, queues, clients) for client in clients}
    assert sorted(chain(*shares.values())) == queues
    assert {queue.broker_name for queue in shares["r1-a"]} <= {"r1@b", "r3@b"}
    assert {queue.broker_name for queue in shares["r2-a"]} <= {"r2@b", "r3@b"}
