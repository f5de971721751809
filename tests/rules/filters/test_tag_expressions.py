"""Tag expressions: which tags a subscription names."""

import pytest

from cometmq.rules.filters import tag_expressions


@pytest.mark.parametrize("text", [None, "", "  ", "*", " * "])
def test_these_expressions_mean_every_message(text: str | None) -> None:
    assert tag_expressions.split_expression(text) == ()


@pytest.mark.parametrize(
    ("text", "found"),
    [("A", ("A",)), ("A||B", ("A", "B")), (" A || B ||", ("A", "B")), ("A|B", ("A|B",))],
)
def test_tags_are_separated_by_two_bars(text: str, found: tuple[str, ...]) -> None:
    assert tag_expressions.split_expression(text) == found


@pytest.mark.parametrize(
    ("kind", "is_tag"), [(None, True), ("", True), ("tag", True), ("TAG", True), ("SQL92", False)]
)
def test_subscriptions_by_tags_are_distinguished_from_others(
    kind: str | None, is_tag: bool
) -> None:
    assert tag_expressions.is_tag_type(kind) is is_tag
