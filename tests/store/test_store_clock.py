"""Store times beside a wall clock that is set: never back, near it, at the pace of time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cometmq.store.store_clock import BELIEVED_MS, StoreClock
from cometmq.testing.sim_files import SimClock

STEPS = st.sampled_from([0] * 20 + [-3_600_000, -5_000, -900, -1, 1, 900, 5_000, 3_600_000])


@given(st.lists(st.tuples(st.integers(0, 2_000), STEPS), max_size=200))
def test_store_times_go_on_at_nine_tenths_of_the_pace_of_time_or_more(moves):
    wall = SimClock()
    clock = StoreClock(wall)
    for passed_ms, step_ms in moves:
        before_ms = clock.now_ms()
        wall.ms += passed_ms
        wall.step(step_ms)
        clock.follow()
        assert clock.now_ms() >= before_ms + passed_ms - passed_ms // 10
        assert clock.believed_ms() <= min(clock.now_ms(), wall.now_ms())


@given(st.lists(st.tuples(st.integers(1, 2_000), STEPS), max_size=50))
def test_store_times_and_a_clock_that_is_left_alone_agree_in_the_end(moves):
    wall = SimClock()
    clock = StoreClock(wall)
    for passed_ms, step_ms in moves:
        wall.ms += passed_ms
        wall.step(step_ms)
        clock.follow()
    wall.ms += BELIEVED_MS
    clock.follow()
    for _ in range(3):
        ahead_ms = max(0, clock.now_ms() - wall.now_ms())
        wall.ms += max(BELIEVED_MS, 11 * ahead_ms)
        clock.follow()
    assert abs(clock.now_ms() - wall.now_ms()) <= 1


def test_records_of_a_log_that_is_ahead_are_followed_at_once():
    wall = SimClock()
    clock = StoreClock(wall)
    clock.not_before(wall.now_ms() + 5_000)
    clock.not_before(1)
    assert clock.now_ms() == wall.now_ms() + 5_000
