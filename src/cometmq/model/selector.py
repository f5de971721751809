"""The messages that a subscriber wants of a topic: by tags, or by a condition in SQL92.

The broker parses the condition.
Java: MessageSelector
"""

from __future__ import annotations

from typing import NamedTuple, Self

from cometmq.errors import ClientError
from cometmq.model.subscription import ALL, SQL92, TAG


class MessageSelector(NamedTuple):
    """A filter for `subscribe`; make it with `by_tag` or `by_sql`."""

    expression: str = ALL
    expression_type: str = TAG

    @classmethod
    def by_tag(cls, expression: str) -> Self:
        """Take messages by tag: "*" for all, or tags joined by "||"."""
        _check("expression", expression)
        return cls(expression, TAG)

    @classmethod
    def by_sql(cls, condition: str) -> Self:
        """Take messages whose properties meet a condition, as in "price > 10 AND colour = 'red'".

        The broker needs enablePropertyFilter=true.
        """
        _check("condition", condition)
        return cls(condition, SQL92)


def _check(name: str, text: object) -> None:
    if not isinstance(text, str):
        raise ClientError(f"the {name} of a MessageSelector is {text!r:.80}; it must be a string")
