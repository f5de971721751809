"""Tag expressions: ``*``, or tags joined by ``||``, and what they let through.

Owns the grammar of TAG subscriptions; does not know how a tag becomes the code that a consume
queue entry has, nor that a code may belong to several tags.
Java: FilterAPI.
"""

from __future__ import annotations

import re
from collections.abc import Callable

ALL = "*"
TAG_EXPRESSIONS = ("", "TAG")
"""The expression types (upper case) that mean tags."""

_NO_TAG = re.compile(r"[\s<>=()'|*]")
TagMatcher = Callable[[int], bool]
"""The test of a consume queue entry's tag code."""


def split_expression(expression: str | None) -> tuple[str, ...]:
    """The tags named, in the order written; empty means every message."""
    if expression is None or expression.strip() in ("", ALL):
        return ()
    return tuple(tag for part in expression.split("||") if (tag := part.strip()))


def expression_problem(expression: str) -> str | None:
    """What keeps a subscriber's text from being a tag expression, in a few words; or None.

    Whoever writes SQL, a pattern or a single bar means something else than a tag of that name.
    """
    tags = split_expression(expression)
    if not tags and expression.strip() not in ("", ALL):
        return "it names no tag"
    return next((f"{tag!r} is no tag" for tag in tags if _NO_TAG.search(tag)), None)


def is_tag_type(expression_type: str | None) -> bool:
    """Whether a subscription of this type is one of tags (None and "" mean TAG)."""
    return (expression_type or "").upper() in TAG_EXPRESSIONS
