"""Tag expressions: ``*``, or tags joined by ``||``.

The grammar of TAG subscriptions; not how a tag becomes the code in a consume queue.
Java: FilterAPI.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from cometmq.model.subscription import ALL

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
    """Why a text is not a tag expression, in a few words; or None.

    Somebody who writes SQL, a pattern or a single bar does not mean a tag of that name.
    """
    tags = split_expression(expression)
    if not tags and expression.strip() not in ("", ALL):
        return "it names no tag"
    return next((f"{tag!r} is no tag" for tag in tags if _NO_TAG.search(tag)), None)


def is_unnameable(tag: str) -> bool:
    """Whether no tag expression takes messages with this tag without taking all others."""
    return tag == ALL or split_expression(tag) != (tag,)


def is_tag_type(expression_type: str | None) -> bool:
    """Whether a subscription of this type is one of tags (None and "" mean TAG)."""
    return (expression_type or "").upper() in TAG_EXPRESSIONS
