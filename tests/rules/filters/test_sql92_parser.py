"""The SQL92 filter, against what RocketMQ 5.5.0's own said of the same (golden/sql92.json)."""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import BadFilter
from cometmq.rules.filters.sql92_parser import LENGTH_MAX, evaluator_of, parse
from rules.sql_cases import CHOSEN, MESSAGES, drawn, verdicts

GOLDEN = json.loads((Path(__file__).parent / "golden" / "sql92.json").read_text())
THEIRS: dict[str, str] = GOLDEN["verdicts"]


def test_the_golden_table_covers_the_cases_of_today() -> None:
    assert GOLDEN["messages"] == MESSAGES
    assert set(CHOSEN) <= set(THEIRS)


def test_every_recorded_verdict_of_rocketmq_is_ours() -> None:
    wrong = {case: (said, verdicts(case)) for case, said in THEIRS.items()}
    assert {case: both for case, both in wrong.items() if both[0] != both[1]} == {}


def test_only_true_lets_a_message_through() -> None:
    for case, said in THEIRS.items():
        if said != "X":
            passed = [parse(case).matches(message.get) for message in MESSAGES]
            assert passed == [letter == "T" for letter in said], case


@pytest.mark.parametrize(
    ("text", "at"),
    [("a > 'x'", 2), ("a = ", 4), ("a # 1", 2), ("a = NULL", 2), ("a BETWEEN 5 AND 1", 2)],
)
def test_a_refusal_names_the_place(text: str, at: int) -> None:
    with pytest.raises(BadFilter) as refused:
        parse(text)
    assert refused.value.at == at
    assert f"character {at + 1}" in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5_000 + "a = 1" + ")" * 5_000,
        "NOT " * 4_000 + "a",
        "a > " + "-" * 16_000 + "1",
        "a" + " IS NULL" * 2_000,
        "a" + " = 1" * 4_000,
        "a = " + "(" * 101 + "1" + ")" * 101,
        "a = '" + "x" * LENGTH_MAX + "'",
    ],
)
def test_what_is_too_long_or_too_deep_is_refused_and_not_tried(text: str) -> None:
    with pytest.raises(BadFilter):
        parse(text)


def test_a_filter_as_deep_as_allowed_is_worked_out() -> None:
    text = "a" + " IS NULL" * 98
    assert parse(text).matches({}.get) is False
    assert parse("(" * 100 + "a = 1" + ")" * 100).matches({"a": "1"}.get) is True


def test_a_long_row_of_conditions_is_not_deep() -> None:
    text = " OR ".join(f"a = {n}" for n in range(1_200))
    assert parse(text).matches({"a": "1199"}.get) is True


@given(st.text(alphabet="ab'15.0eEL<>=()-+/* \n,$ANDORTINULSBEW", max_size=60))
def test_any_text_is_a_filter_or_is_refused(text: str) -> None:
    try:
        found = parse(text)
    except BadFilter:
        return
    assert found.matches({"a": "1", "b": "x"}.get) in (True, False)


@given(st.integers(0, 1 << 30))
def test_not_of_a_filter_is_its_negation_where_both_have_a_verdict(seed: int) -> None:
    (text,) = drawn(seed, 1)
    depths = list(accumulate((letter == "(") - (letter == ")") for letter in text))
    if min(depths) < 0 or depths[-1]:  # brackets around it would not go round all of it
        return
    try:
        plain, negated = evaluator_of(f"({text})"), evaluator_of(f"NOT ({text})")
    except BadFilter:
        return
    for message in MESSAGES:
        try:
            verdict = plain(message.get)
        except ValueError:
            with pytest.raises(ValueError, match=r"number|digits|truth"):
                negated(message.get)
            continue
        assert negated(message.get) is (None if verdict is None else not verdict)


def test_the_size_of_a_filter_counts_both_sides_of_a_comparison() -> None:
    """By it the messages are bounded that one read filters."""
    assert parse("a = b").size == 3
    assert parse("a = b AND c = d").size > 2 * parse("a = b").size
