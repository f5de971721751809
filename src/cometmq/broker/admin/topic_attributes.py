"""The attributes of a topic: which there are, what they may be, how a request changes them.

A change is written `+name=value,-name`. Refuses to know topics. The attribute `comet.order` is
ours: RocketMQ keeps it with the others, in its files as well, and ignores it.
Java: TopicAttributes, AttributeUtil.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import Reject
from cometmq.model.topic import GLOBAL, ORDER_ATTRIBUTE
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

MESSAGE_TYPE = "message.type"
_MIXED = "MIXED"
_MESSAGE_TYPES = ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", _MIXED)
"""What a topic may say of its messages. Only RocketMQ's proxy checks messages against it."""
_LITE = "LITE"
_FIXED = {"queue.type": ("SimpleCQ",), "cleanup.policy": ("DELETE",)}
"""Attributes that are given when the topic is made, with the values that this broker supports."""


def changed(
    before: Mapping[str, str] | None, text: str, *, may_mix: bool = False
) -> dict[str, str]:
    """The attributes after a change; `before` is None for a new topic. Raises Reject."""
    after, seen = dict(before or {}), set[str]()
    for item in filter(None, (part.strip() for part in text.split(","))):
        sign, (name, equals, value) = item[0], item[1:].partition("=")
        if name in seen:
            raise _wrong(f"the attribute {name} is given twice")
        seen.add(name)
        if sign == "+" and equals:
            if before is not None and name in _FIXED:
                raise _wrong(f"the attribute {name} is given when a topic is made, not later")
            after[name] = _checked(name, value, may_mix=may_mix)
        elif sign == "-" and before is not None and name in after and name not in _FIXED:
            del after[name]
        else:
            raise _wrong(
                f"the attribute {item!r} is neither +name=value nor -name of one that is set"
            )
    return after


def _checked(name: str, value: str, *, may_mix: bool) -> str:
    allowed: tuple[str, ...] = _FIXED.get(name, ())
    if name == MESSAGE_TYPE:
        if value == _MIXED and not may_mix:
            raise Reject(
                ResponseCode.INVALID_PARAMETER,
                "MIXED message type is not supported; enableMixedMessageType switches it on",
            )
        if value == _LITE:
            raise Reject(
                ResponseCode.INVALID_PARAMETER,
                "message.type LITE asks for lite topics, which this broker does not support",
            )
        allowed = _MESSAGE_TYPES
    elif name == ORDER_ATTRIBUTE:
        allowed = (GLOBAL,)
    if not allowed:
        raise _wrong(f"the attribute {name} is not supported by this broker")
    if value not in allowed:
        raise _wrong(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")
    return value


def _wrong(remark: str) -> Reject:
    return Reject(ResponseCode.SYSTEM_ERROR, remark)
