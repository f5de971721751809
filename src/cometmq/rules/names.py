"""The names RocketMQ allows for topics and groups, and the topics it keeps for itself.

Owns the alphabet, the lengths, the prefixes of retry and dead letter topics and the list of
topics a client may not send to. Answers with sentences; whoever asks decides how to refuse.
Java: TopicValidator, Validators, MixAll.
"""

from __future__ import annotations

import re

RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"
SYSTEM_PREFIX = "rmq_sys_"
DEFAULT_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"

NO_SEND_TOPICS = frozenset(
    {SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC, CHECK_MAX_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC}
)
"""Topics a client may not send to."""

TOPIC_CHARS_MAX = 127
PREFIXED_TOPIC_CHARS_MAX = 255
GROUP_CHARS_MAX = 120

_ALLOWED = re.compile(r"[%|\-_0-9A-Za-z]+")


def topic_problem(topic: str) -> str | None:
    """One sentence that says what is wrong with a topic's name, or None."""
    prefixed = topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
    longest = PREFIXED_TOPIC_CHARS_MAX if prefixed else TOPIC_CHARS_MAX
    return _problem("topic", topic, longest)


def group_problem(group: str) -> str | None:
    """One sentence that says what is wrong with a group's name, or None."""
    return _problem("group", group, GROUP_CHARS_MAX)


def retry_topic(group: str) -> str:
    """Where messages of the group wait for their next attempt."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Where messages lie that the group gave up."""
    return DEAD_LETTER_PREFIX + group


def _problem(kind: str, name: str, longest: int) -> str | None:
    if not name.strip():
        return f"the {kind} is blank"
    if not _ALLOWED.fullmatch(name):
        return f"the {kind} {name[:64]!r} has characters other than % | - _ 0-9 A-Z a-z"
    if len(name) > longest:
        return f"the {kind} {name[:32]!r}... has {len(name)} characters, the limit is {longest}"
    return None
