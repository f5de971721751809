"""Which brokers are kept away from, and for how long."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.errors import SettingsError
from cometmq.model.queue import MessageQueue
from cometmq.rules.failures.latency_fault_tolerance import (
    TABLES,
    LatencyFaultTolerance,
    LatencyTable,
)
from cometmq.rules.key_hash import hash_of_number, long_hash, queue_index

QUEUES = [MessageQueue("t", f"b{broker}", queue) for broker in range(4) for queue in range(2)]


@pytest.mark.parametrize(
    ("name", "latency_ms", "avoid_ms"),
    [
        ("classic", 49, 0),
        ("classic", 549, 0),
        ("classic", 550, 30_000),
        ("classic", 1_000, 60_000),
        ("classic", 2_999, 120_000),
        ("classic", 3_000, 180_000),
        ("classic", 15_000, 600_000),
        ("current", 549, 0),
        ("current", 550, 2_000),
        ("current", 1_800, 5_000),
        ("current", 3_000, 6_000),
        ("current", 5_000, 10_000),
        ("current", 99_000, 30_000),
    ],
)
def test_the_tables_are_those_of_rocketmq(name, latency_ms, avoid_ms):
    assert TABLES[name].avoid_ms_after(latency_ms) == avoid_ms


@pytest.mark.parametrize(("name", "isolation_ms"), [("classic", 600_000), ("current", 10_000)])
def test_a_broker_that_failed_is_left_alone_as_long_as_its_table_says(name, isolation_ms):
    faults = LatencyFaultTolerance(TABLES[name])
    faults.record_failure("b0", 0, was_reached=False)
    assert {faults.choose(QUEUES, n, None, isolation_ms - 1).broker_name for n in range(8)} == {
        "b1", "b2", "b3",
    }  # fmt: skip
    assert "b0" in {faults.choose(QUEUES, n, None, isolation_ms).broker_name for n in range(8)}


def test_a_slow_broker_comes_back_after_its_time_and_a_quick_answer_at_once():
    faults = LatencyFaultTolerance(TABLES["current"])
    faults.record_latency("b1", 600, 1_000)
    assert faults.choose(QUEUES, 2, None, 2_999).broker_name == "b2"
    assert faults.choose(QUEUES, 2, None, 3_000).broker_name == "b1"
    faults.record_latency("b1", 600, 1_000)
    faults.record_latency("b1", 10, 1_100)
    assert faults.choose(QUEUES, 2, None, 1_100).broker_name == "b1"


def test_with_detection_a_broker_stays_out_until_it_is_reached():
    faults = LatencyFaultTolerance(TABLES["current"], detects=True)
    faults.record_failure("b0", 0, was_reached=False)
    faults.record_failure("b1", 0, was_reached=True)
    assert faults.unreachable_brokers() == ["b0"]
    names = {faults.choose(QUEUES, n, None, 1e9).broker_name for n in range(8)}
    assert names == {"b1", "b2", "b3"}
    faults.record_reachable("b0")
    assert faults.choose(QUEUES, 0, None, 1).broker_name == "b0"
    assert faults.unreachable_brokers() == []


def test_what_an_avoided_broker_would_get_is_spread_evenly():
    faults = LatencyFaultTolerance(TABLES["current"])
    faults.record_failure("b1", 0, was_reached=False)
    chosen = Counter(faults.choose(QUEUES, turn, None, 1).broker_name for turn in range(240))
    assert chosen == {"b0": 80, "b2": 80, "b3": 80}


def test_a_table_of_ones_own_is_taken_and_a_wrong_one_refused():
    faults = LatencyFaultTolerance(LatencyTable((100,), (5_000,), 60_000))
    faults.record_latency("b0", 100, 0)
    assert "b0" not in {faults.choose(QUEUES, n, None, 4_999).broker_name for n in range(8)}
    for latency_ms, avoid_ms in (((1, 2), (1,)), ((2, 1), (1, 1)), ((1,), (-1,))):
        with pytest.raises(SettingsError, match="no table of latencies"):
            LatencyTable(latency_ms, avoid_ms, 0)


def test_when_no_broker_is_available_the_better_half_has_the_next_queues():
    faults = LatencyFaultTolerance(TABLES["classic"])
    for broker, latency_ms in (("b0", 5_000), ("b1", 2_000), ("b2", 700), ("b3", 20_000)):
        faults.record_latency(broker, latency_ms, 0)
    chosen = [faults.choose(QUEUES, n, None, 1) for n in range(16)]
    assert {queue.broker_name for queue in chosen} == {"b1", "b2"}
    one = LatencyFaultTolerance(TABLES["classic"])
    one.record_failure("b0", 0, was_reached=False)
    assert one.choose(QUEUES[:2], 1, "b0", 1) in QUEUES[:2]


events = st.lists(
    st.tuples(
        st.sampled_from(["answered", "failed", "reached"]),
        st.integers(0, 3),
        st.integers(0, 40_000),
        st.booleans(),
    ),
    max_size=20,
)


@settings(max_examples=100)
@given(events, st.integers(0, 100), st.sampled_from([None, "b0", "b3"]), st.booleans())
def test_there_is_always_a_choice_and_a_fine_broker_goes_before_others(steps, turn, avoid, detects):
    faults, now_ms = LatencyFaultTolerance(TABLES["current"], detects=detects), 0
    away = {f"b{n}": 0 for n in range(4)}
    gone = set()
    for kind, broker, amount, was_reached in steps:
        name, now_ms = f"b{broker}", now_ms + amount
        if kind == "answered":
            faults.record_latency(name, amount, now_ms)
            away[name] = now_ms + TABLES["current"].avoid_ms_after(amount)
            gone.discard(name)
        elif kind == "failed":
            faults.record_failure(name, now_ms, was_reached=was_reached)
            away[name] = now_ms + 10_000
            gone.discard(name)
            if detects and not was_reached:
                gone.add(name)
        else:
            faults.record_reachable(name)
            away[name] = 0
            gone.discard(name)
    fine = {name for name, until in away.items() if until <= now_ms} - gone
    chosen = faults.choose(QUEUES, turn, avoid, now_ms)
    assert chosen in QUEUES
    if fine:
        assert chosen.broker_name in fine
    if fine - {avoid}:
        assert chosen.broker_name != avoid


@pytest.mark.parametrize(
    ("value", "is_long", "wanted"),
    [
        (5, False, 5),
        (-1, False, -1),
        (-1, True, 0),
        (-2_147_483_648, False, -2_147_483_648),
        (4_294_967_296, False, 1),
        (2_147_483_648, False, -2_147_483_648),
    ],
)
def test_numbers_hash_as_javas_integer_and_long(value, is_long, wanted):
    assert hash_of_number(value, is_long) == wanted
    if is_long:
        assert long_hash(value) == wanted
    assert 0 <= queue_index(wanted, 7) < 7
