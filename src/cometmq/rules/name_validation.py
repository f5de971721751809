"""Whether RocketMQ allows a name for a topic or a group.

Checks characters and length. Returns a sentence; the caller decides how to refuse the name.
Java: TopicValidator, Validators.
"""

from __future__ import annotations

import re

from cometmq.model.group import GROUP_NAME_MAX
from cometmq.model.topic import (
    DLQ_PREFIX,
    NAME_PATTERN,
    RETRY_PREFIX,
    RETRY_TOPIC_NAME_MAX,
    TOPIC_NAME_MAX,
)

_ALLOWED = re.compile(NAME_PATTERN)


def topic_name_problem(topic: str) -> str | None:
    """One sentence that says what is wrong with a topic's name, or None."""
    prefixed = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
    longest = RETRY_TOPIC_NAME_MAX if prefixed else TOPIC_NAME_MAX
    return _problem("topic", topic, longest)


def group_name_problem(group: str) -> str | None:
    """One sentence that says what is wrong with a group's name, or None."""
    return _problem("group", group, GROUP_NAME_MAX)


def _problem(kind: str, name: str, longest: int) -> str | None:
    if not name.strip():
        return f"the {kind} is blank"
    if not _ALLOWED.fullmatch(name):
        return f"the {kind} {name[:64]!r} has characters other than % | - _ 0-9 A-Z a-z"
    if len(name) > longest:
        return f"the {kind} {name[:32]!r}... has {len(name)} characters, the limit is {longest}"
    return None
