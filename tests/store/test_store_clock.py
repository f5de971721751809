"""Store times beside a wall clock that is set: never back, near it, at the pace of time."""

from __future__ import annotations

from hypothesis import example, given
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


class FineClock(SimClock):
    """Two clocks that go alike and are read in whole milliseconds, each of its own moment."""

    def __init__(self, us: int, apart_us: int) -> None:
        super().__init__()
        self.us, self._apart_us = us, apart_us

    def now_ms(self) -> int:
        return (self.us + self._apart_us) // 1000

    def monotonic_ms(self) -> int:
        return self.us // 1000


@given(
    st.integers(0, 999),
    st.integers(1_000_000_000, 1_000_001_000),
    st.lists(st.integers(999_000, 1_003_000), min_size=1, max_size=20),
    st.integers(0, 999),
)
@example(400, 1_000_000_500, [1_000_200], 500)
def test_between_two_store_times_lies_the_time_that_passed(us, apart_us, pauses_us, after_us):
    wall = FineClock(us, apart_us)
    clock = StoreClock(wall)
    began_us, began_ms = wall.us, clock.now_ms()
    for pause_us in pauses_us:
        wall.us += pause_us
        clock.follow()
    wall.us += after_us
    passed_ms = (wall.us - began_us) / 1000
    assert abs(clock.now_ms() - began_ms - passed_ms) < 1


def test_records_of_a_log_that_is_ahead_are_followed_at_once():
    wall = SimClock()
    clock = StoreClock(wall)
    clock.not_before(wall.now_ms() + 5_000)
    clock.not_before(1)
    assert clock.now_ms() == wall.now_ms() + 5_000
