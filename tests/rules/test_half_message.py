"""Half messages: when producers are asked, and the window of those that have ended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.rules.half_message import (
    SPAN_MAX,
    CheckDecision,
    EndedHalfMessages,
    decide_check,
    encode_op_body,
    is_end_too_late,
    parse_op_body,
)

FACTS = {
    "age_ms": 7_000,
    "asked": 0,
    "immunity": None,
    "timeout_ms": 6_000,
    "checks_max": 15,
    "reserved_ms": 72 * 3_600_000,
}


@pytest.mark.parametrize(
    ("facts", "fate"),
    [
        ({}, CheckDecision.ASK),
        ({"age_ms": 6_000}, CheckDecision.TOO_YOUNG),
        ({"age_ms": 0}, CheckDecision.TOO_YOUNG),
        ({"age_ms": -1}, CheckDecision.ASK),
        ({"asked": 14}, CheckDecision.ASK),
        ({"asked": 15}, CheckDecision.DISCARD),
        ({"asked": 15, "age_ms": 0}, CheckDecision.DISCARD),
        ({"age_ms": 72 * 3_600_000 + 1}, CheckDecision.DISCARD),
        ({"immunity": b"7"}, CheckDecision.IMMUNE),
        ({"immunity": b"7", "age_ms": 7_001}, CheckDecision.ASK),
        ({"immunity": b"1", "age_ms": 1_001}, CheckDecision.ASK),
        ({"immunity": b"soon", "age_ms": 6_000}, CheckDecision.IMMUNE),
        ({"immunity": b"-1"}, CheckDecision.ASK),
    ],
)
def test_a_half_message_without_an_end_waits_is_asked_about_or_discarded(facts, fate):
    assert decide_check(**{**FACTS, **facts}) is fate


@pytest.mark.parametrize(
    ("age_ms", "immunity", "expected"),
    [
        (10**9, None, False),
        (10**9, b"", False),
        (6_000, b"1", False),
        (6_001, b"1", True),
        (10_000, b"10", False),
        (10_001, b"10", True),
        (6_001, b"soon", True),
    ],
)
def test_an_end_is_late_only_where_a_time_was_asked_for(age_ms, immunity, expected):
    assert is_end_too_late(age_ms, immunity, 6_000) is expected


@given(st.lists(st.integers(0, 2**63 - 1), max_size=20))
def test_op_messages_name_what_was_written_into_them(offsets):
    kept = [offset for offset in offsets if offset < 10**18]
    assert parse_op_body(encode_op_body(offsets)) == kept


@pytest.mark.parametrize(
    ("body", "offsets"), [(b"12", [12]), (b"1,2,", [1, 2]), (b"", []), (b"x,-1, 3,,4", [4])]
)
def test_op_messages_of_others_are_read_as_far_as_they_make_sense(body, offsets):
    assert parse_op_body(body) == offsets


@given(st.integers(0, 50), st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=60))
def test_the_window_of_ended_half_messages_agrees_with_a_set(first, steps):
    window, known = EndedHalfMessages(first), set()
    for is_move, number in steps:
        if is_move:
            first += number
            window.move_to(first)
            known = {offset for offset in known if offset >= first}
        else:
            window.add(number)
            known |= {number} if number >= first else set()
        assert {offset for offset in range(first + 100) if offset in window} == known


def test_the_window_of_ended_half_messages_has_a_bound():
    window = EndedHalfMessages(10)
    window.add(10 + SPAN_MAX)
    assert 10 + SPAN_MAX not in window
    window.add(9 + SPAN_MAX)
    assert 9 + SPAN_MAX in window
