"""The records of the message trace: what happened to a message, in texts with separators.

Fields are parted by 0x01, each record ends with 0x02; times are epoch ms, durations ms.
Java: TraceDataEncoder, TraceContext, TraceBean
"""

from __future__ import annotations

from typing import NamedTuple

FIELD, END = "\x01", "\x02"
NORMAL, HALF, COMMIT, DELAY = 0, 1, 2, 3
"""Kinds of a message that was sent (Java: MessageType)."""
SUCCESS, TIME_OUT, EXCEPTION, RETURN_NULL, FAILED = range(5)
"""How a handler ended (Java: ConsumeReturnType)."""


class TracedMessage(NamedTuple):
    """The message that a record is about."""

    topic: str
    msg_id: str
    tags: str = ""
    keys: str = ""


def sent(
    subject: TracedMessage,
    *,
    at_ms: int,
    region: str,
    group: str,
    store_host: str,
    body_bytes: int,
    cost_ms: int,
    kind: int,
    offset_msg_id: str,
    is_ok: bool,
) -> str:
    """A message was sent, or was not."""
    topic, msg_id, tags, keys = subject
    head = ("Pub", at_ms, region, group, topic, msg_id, tags, keys, store_host)
    return _record(*head, body_bytes, cost_ms, kind, offset_msg_id, is_ok)


def ended(
    subject: TracedMessage,
    *,
    at_ms: int,
    region: str,
    group: str,
    store_host: str,
    transaction_id: str,
    state: str,
    from_check: bool,
) -> str:
    """A transaction ended: `state` is COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW."""
    topic, msg_id, tags, keys = subject
    head = ("EndTransaction", at_ms, region, group, topic, msg_id, tags, keys, store_host)
    return _record(*head, COMMIT, transaction_id, state, from_check)


def before(
    subject: TracedMessage, *, at_ms: int, region: str, group: str, request_id: str, retries: int
) -> str:
    """A message is about to be handled."""
    fields = (at_ms, region, group, request_id, subject.msg_id, retries, subject.keys)
    return _record("SubBefore", *fields)


def after(
    subject: TracedMessage,
    *,
    at_ms: int,
    group: str,
    request_id: str,
    cost_ms: int,
    is_ok: bool,
    code: int,
) -> str:
    """A message was handled."""
    fields = (request_id, subject.msg_id, cost_ms, is_ok, subject.keys, code, at_ms, group)
    return _record("SubAfter", *fields)


def _record(*fields: object) -> str:
    texts = [str(field).lower() if isinstance(field, bool) else str(field) for field in fields]
    return FIELD.join(texts) + END
