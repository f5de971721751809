"""Slots of timers: never early, less than a precision late, moved on within the wheel."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cometmq.rules import timer_times as times

MS = st.integers(1, 1 << 45)
PRECISION = st.sampled_from([10, 100, 1_000, 10_000])


@given(MS, PRECISION)
def test_a_slot_is_delivered_after_its_messages_are_due_and_soon(due_ms, precision_ms):
    slot_ms = times.slot_of(due_ms, precision_ms)
    assert slot_ms % precision_ms == 0
    assert 0 <= slot_ms + precision_ms - due_ms < precision_ms


@given(MS, st.integers(0, 1 << 32), st.integers(2, 604_740), PRECISION)
def test_a_timer_beyond_the_window_waits_nearer_and_before_its_own_slot(
    now_ms, ahead_ms, window, precision_ms
):
    slot_ms = times.slot_of(now_ms + ahead_ms, precision_ms)
    rolled_ms = times.rolled_slot(slot_ms, now_ms, window, precision_ms)
    floor_ms = now_ms // precision_ms * precision_ms
    if rolled_ms is None:
        assert slot_ms - floor_ms < window * precision_ms
    else:
        assert floor_ms < rolled_ms <= floor_ms + window * precision_ms
        assert rolled_ms <= slot_ms
        assert rolled_ms % precision_ms == 0


def test_a_timer_just_beyond_the_window_gets_half_of_it():
    assert times.rolled_slot(10_000, 0, 10, 1_000) == 5_000
    assert times.rolled_slot(12_000, 0, 10, 1_000) == 5_000
    assert times.rolled_slot(13_000, 0, 10, 1_000) == 10_000
    assert times.rolled_slot(9_000, 0, 10, 1_000) is None


def test_times_are_asked_for_in_three_ways():
    assert times.asked_ms(times.DELAY_SEC, b"3", 1_000) == 4_000
    assert times.asked_ms(times.DELAY_MS, b"-3", 1_000) == 997
    assert times.asked_ms(times.DELIVER_MS, b"+7", 1_000) == 7
    for bad in (b"", b"x", b"1.5", b" 1", b"9" * 19, b"1" * 20):
        assert times.asked_ms(times.DELIVER_MS, bad, 0) is None
