"""The records of the message trace: what happened to a message, in texts with separators.

Fields are parted by 0x01, each record ends with 0x02; times are epoch ms, durations ms.
Java: TraceDataEncoder, TraceContext, TraceBean
"""

from __future__ import annotations

from typing import NamedTuple

from cometmq.model.trace_event import TraceEvent

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


def decode_trace(body: bytes) -> list[TraceEvent]:
    """Read the records of one message of the trace topic; what is no record is left out.

    Older clients write fewer fields at the end of each record.
    """
    found = []
    for line in body.decode("utf-8", "replace").split(END):
        fields = line.split(FIELD)
        read = _READERS.get(fields[0])
        if read is not None and len(fields) >= _LEAST[fields[0]]:
            found.append(read(fields + [""] * (16 - len(fields))))
    return found


def _sent_of(fields: list[str]) -> TraceEvent:
    found = _of_message("sent", fields)
    return found._replace(cost_ms=_number(fields[10]), is_ok=fields[13] != "false")


def _ended_of(fields: list[str]) -> TraceEvent:
    return _of_message("ended", fields)._replace(state=fields[11])


def _of_message(kind: str, fields: list[str]) -> TraceEvent:
    """What the records of a send and of the end of a transaction have in common."""
    _, at, _, group, topic, msg_id, tags, keys, host, *_ = fields
    return TraceEvent(
        kind,
        at_ms=_number(at),
        group=group,
        msg_id=msg_id,
        topic=topic,
        tags=tags,
        keys=keys,
        store_host=host,
    )


def _before_of(fields: list[str]) -> TraceEvent:
    _, at, _, group, request_id, msg_id, retries, keys, *_ = fields
    return TraceEvent(
        "handling",
        at_ms=_number(at),
        group=group,
        msg_id=msg_id,
        keys=keys,
        request_id=request_id,
        retries=_number(retries),
    )


def _after_of(fields: list[str]) -> TraceEvent:
    _, request_id, msg_id, cost, is_ok, keys, code, at, group, *_ = fields
    return TraceEvent(
        "handled",
        at_ms=_number(at),
        group=group,
        msg_id=msg_id,
        keys=keys,
        request_id=request_id,
        cost_ms=_number(cost),
        is_ok=is_ok == "true",
        state=_ENDS.get(_number(code), "") if code else "",
    )


_READERS = {
    "Pub": _sent_of,
    "EndTransaction": _ended_of,
    "SubBefore": _before_of,
    "SubAfter": _after_of,
}
_LEAST = {"Pub": 12, "EndTransaction": 13, "SubBefore": 8, "SubAfter": 6}
"""Fields that the oldest clients write."""
_ENDS = {0: "SUCCESS", 1: "TIME_OUT", 2: "EXCEPTION", 3: "RETURN_NULL", 4: "FAILED"}


def _number(text: str) -> int:
    return int(text) if len(text) < 20 and text.isascii() and text.isdecimal() else 0


def _record(*fields: object) -> str:
    texts = [str(field).lower() if isinstance(field, bool) else str(field) for field in fields]
    return FIELD.join(texts) + END
