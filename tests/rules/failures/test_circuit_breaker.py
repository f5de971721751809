"""Bad messages and outages kept apart, over virtual time."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import SettingsError
from cometmq.rules.failures.circuit_breaker import BreakerLimits, CircuitBreaker

LIMITS = BreakerLimits(keys=3, results=8, share=0.5, memory_s=10.0, pause_s=1.0, pause_most_s=4.0)


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(0, 3)), max_size=60))
def test_one_bad_key_never_opens_the_circuit_breaker(calls):
    breaker, now = CircuitBreaker(LIMITS), 0.0
    for key, passes in calls:
        now += passes
        breaker.record_failure("bad", now, is_probe=False)
        if key:
            breaker.record_success(key, now, is_probe=False)
        assert breaker.may_call(now)


def test_failures_across_keys_open_the_circuit_breaker_and_it_probes_at_growing_pauses():
    breaker, begun, now = CircuitBreaker(LIMITS), [], 0.0
    for key in "abc":
        opened = breaker.record_failure(key, now, is_probe=False)
    assert opened
    while now < 20:
        if breaker.may_call(now):
            begun.append(now)
            assert not breaker.may_call(now), "a second probe beside the first"
            breaker.record_failure("d", now, is_probe=True)
        now += 0.5
    assert begun == [1.0, 3.0, 7.0, 11.0, 15.0, 19.0]
    assert breaker.may_call(23.0)
    assert breaker.record_success("a", 23.0, is_probe=True)
    assert not breaker.is_open


def test_calls_begun_before_it_opened_neither_close_nor_prolong_it():
    breaker = CircuitBreaker(LIMITS)
    for key in "abc":
        breaker.record_failure(key, 0.0, is_probe=False)
    assert not breaker.record_success("late", 0.1, is_probe=False)
    assert not breaker.record_failure("late", 0.2, is_probe=False)
    assert breaker.is_open
    assert breaker.next_probe_at == 1.0


def test_calls_count_one_by_one_so_a_long_run_that_fails_at_last_is_no_outage():
    breaker = CircuitBreaker(LIMITS)
    for step in range(50):
        breaker.record_success(step, 0.0, is_probe=False, calls=9)
        assert not breaker.record_failure(step, 0.0, is_probe=False)


def test_a_probe_without_a_result_lets_another_one_begin():
    breaker = CircuitBreaker(LIMITS)
    for key in "abc":
        breaker.record_failure(key, 0.0, is_probe=False)
    assert breaker.may_call(1.0)
    breaker.cancel_probe()
    assert breaker.may_call(1.0)


def test_failures_long_ago_and_failures_among_many_successes_do_not_count():
    breaker = CircuitBreaker(LIMITS)
    for now, key in ((0.0, "a"), (1.0, "b"), (20.0, "c")):
        assert not breaker.record_failure(key, now, is_probe=False)
    for key in "defgh":
        breaker.record_success(key, 21.0, is_probe=False)
    for key in "ij":
        assert not breaker.record_failure(key, 21.0, is_probe=False)


def test_failures_are_excused_for_a_bounded_time_even_when_the_outage_comes_and_goes():
    breaker = CircuitBreaker(replace(LIMITS, outage_most_s=100.0))

    def opened(now):
        for key in "abc":
            breaker.record_failure(key, now, is_probe=False)
        assert breaker.is_open

    opened(0.0)
    assert breaker.excuses_failures(99.0)
    assert not breaker.excuses_failures(100.0)
    assert breaker.record_success("a", 101.0, is_probe=True)
    assert not breaker.excuses_failures(101.0)
    opened(105.0)
    assert not breaker.excuses_failures(105.0), "the same outage still"
    assert breaker.record_success("a", 110.0, is_probe=True)
    opened(121.0)
    assert breaker.excuses_failures(220.0), "another one"
    assert not breaker.excuses_failures(221.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"keys": 1},
        {"keys": 30},
        {"share": 0},
        {"pause_s": 0},
        {"pause_s": 60},
        {"outage_most_s": -1},
    ],
)
def test_wrong_limits_are_refused(wrong):
    with pytest.raises(SettingsError):
        BreakerLimits(**wrong)
