"""Tag expressions, and the bits of a permission."""

import pytest

from cometmq.rules import permission, tag_expressions


@pytest.mark.parametrize("text", [None, "", "  ", "*", " * "])
def test_these_expressions_mean_every_message(text: str | None) -> None:
    assert tag_expressions.split_expression(text) == ()


@pytest.mark.parametrize(
    ("text", "found"),
    [("A", ("A",)), ("A||B", ("A", "B")), (" A || B ||", ("A", "B")), ("A|B", ("A|B",))],
)
def test_tags_are_parted_by_two_bars(text: str, found: tuple[str, ...]) -> None:
    assert tag_expressions.split_expression(text) == found


@pytest.mark.parametrize(
    ("kind", "is_tag"), [(None, True), ("", True), ("tag", True), ("TAG", True), ("SQL92", False)]
)
def test_which_subscriptions_are_of_tags(kind: str | None, is_tag: bool) -> None:
    assert tag_expressions.is_tag_type(kind) is is_tag


@pytest.mark.parametrize(
    ("perm", "text"), [(0, "---"), (2, "-W-"), (4, "R--"), (6, "RW-"), (7, "RWX"), (15, "RWX")]
)
def test_permissions_read_as_letters_and_as_questions(perm: int, text: str) -> None:
    assert permission.text(perm) == text
    assert permission.is_readable(perm) is ("R" in text)
    assert permission.is_writable(perm) is ("W" in text)
    assert permission.is_inherited(perm) is ("X" in text)
