"""What follows a failure: retries, pauses, and the reason of a dead letter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.rules.failures import retry_policy


def test_attempts_are_counted_with_the_first_one():
    assert retry_policy.reconsume_times_max(3, orderly=True) == 2
    assert retry_policy.reconsume_times_max(None, orderly=False) == 16
    assert retry_policy.reconsume_times_max(None, orderly=True) > 2_000_000_000
    assert [retry_policy.attempts_exhausted(times, 2) for times in range(4)] == [
        False,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(("asked", "got"), [(0, 10), (100, 100), (99_999, 30_000), (-5, 10)])
def test_a_queue_pauses_within_limits(asked, got):
    assert retry_policy.clamp_suspend_ms(asked) == got


def test_pauses_double_up_to_their_limit():
    assert [retry_policy.backoff_s(n, 0.1, 1.0) for n in (1, 2, 3, 4, 5, 1000)] == [
        0.1, 0.2, 0.4, 0.8, 1.0, 1.0,
    ]  # fmt: skip


def test_a_retry_waits_longer_each_time_unless_the_handler_asks_for_another_level():
    assert [retry_policy.retry_delay_level(0, times) for times in (0, 1, 5)] == [3, 4, 8]
    assert retry_policy.retry_delay_level(7, 5) == 7


@given(st.text(), st.text())
def test_a_reason_is_short_and_holds_no_separator(kind, text):
    reason = retry_policy.dead_letter_reason(kind, text)
    assert len(reason) <= 512
    assert reason.isprintable()


def test_a_reason_names_the_error_and_its_text():
    assert retry_policy.dead_letter_reason("ValueError", "no arrival") == "ValueError: no arrival"
    assert retry_policy.dead_letter_reason("ValueError", "") == "ValueError"
