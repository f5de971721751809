"""Names that RocketMQ allows."""

import pytest

from cometmq.rules.name_validation import group_name_problem, topic_name_problem


@pytest.mark.parametrize(
    "topic", ["T", "a-b_c|d%e9", "x" * 127, "%RETRY%" + "g" * 248, "%DLQ%" + "g" * 250]
)
def test_allowed_topics_have_no_problem(topic: str) -> None:
    assert topic_name_problem(topic) is None


@pytest.mark.parametrize(
    ("topic", "says"),
    [
        ("", "blank"),
        ("  ", "blank"),
        ("a b", "characters"),
        ("größe", "characters"),
        ("a+b", "characters"),
        ("a\n", "characters"),
        ("x" * 128, "128"),
        ("%RETRY%" + "g" * 249, "256"),
    ],
)
def test_the_error_for_another_topic_says_what_is_wrong(topic: str, says: str) -> None:
    assert says in (topic_name_problem(topic) or "")


def test_groups_have_a_limit_of_their_own() -> None:
    assert group_name_problem("g" * 120) is None
    problem = group_name_problem("g" * 121) or ""
    assert problem.startswith("the group ")
    assert "121" in problem
