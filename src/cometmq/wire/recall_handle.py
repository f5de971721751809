"""The handle by which a producer takes a message at a time of its own back.

URL-safe base64, padded, of five words with a space between: v1, topic, broker, a time in ms that
lies in the message's slot, UNIQ_KEY. Java: RecallMessageHandle.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

from cometmq.errors import ProtocolError

_VERSION = "v1"
_WORDS = 5


class RecallHandle(NamedTuple):
    """What a handle says."""

    topic: str
    broker_name: str
    slot_ms: int
    uniq_key: str


def encode(handle: RecallHandle) -> str:
    """The text of a handle."""
    topic, broker_name, slot_ms, uniq_key = handle
    words = " ".join((_VERSION, topic, broker_name, str(slot_ms), uniq_key))
    return urlsafe_b64encode(words.encode()).decode()


def decode(text: str) -> RecallHandle:
    """What a text says; raises ProtocolError where it is no handle."""
    try:
        words = urlsafe_b64decode(text).decode().split(" ")
        version, topic, broker_name, time, uniq_key = words[:_WORDS]
        if version == _VERSION and time.isascii() and time.isdigit():
            return RecallHandle(topic, broker_name, int(time), uniq_key)
    except (TypeError, ValueError):
        pass
    raise ProtocolError(f"{text!r:.100} is no handle of a message that can be recalled")
