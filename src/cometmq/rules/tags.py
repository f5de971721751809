"""Tag expressions: ``*``, or tags joined by ``||``, and what they let through.

Owns the grammar of TAG subscriptions and the test of a consume queue entry's tag code. Does not
know how a tag becomes a code: codes are arguments. A code may belong to several tags, so the
consumer compares the text again.
Java: FilterAPI, ExpressionMessageFilter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

ALL = "*"
TAG_EXPRESSIONS = ("", "TAG")
"""The expression types (upper case) that mean tags."""

Match = Callable[[int], bool]


def split_expression(expression: str | None) -> tuple[str, ...]:
    """The tags named, in the order written; empty means every message."""
    if expression is None or expression.strip() in ("", ALL):
        return ()
    return tuple(tag for part in expression.split("||") if (tag := part.strip()))


def is_tag_type(expression_type: str | None) -> bool:
    """Whether a subscription of this type is one of tags (None and "" mean TAG)."""
    return (expression_type or "").upper() in TAG_EXPRESSIONS


def matcher(codes: Iterable[int]) -> Match | None:
    """The test for a consume queue entry's code; None when every message passes."""
    wanted = frozenset(codes)
    return wanted.__contains__ if wanted else None
