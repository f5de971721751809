"""Hot. The tags code of a consume queue entry: the tag's hash, or a delayed message's due time.

The store asks for it with every message, at recovery as well.
Java: MessageExtBrokerInner.tagsString2tagsCode, DefaultMessageStore (dispatch of delayed messages).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from cometmq.model.topic import SCHEDULE_TOPIC
from cometmq.wire.java_hash import java_hash
from cometmq.wire.records import properties

if TYPE_CHECKING:
    from cometmq.rules.delay_levels import DelayLevels

CACHE_MAX = 4_096


def delay_level(raw: bytes) -> int:
    """The delay level in a message's properties; 0 where there is none or it is no number."""
    if b"DELAY\x01" not in raw:
        return 0
    value = properties.find(raw, b"DELAY") or b""
    return int(value) if len(value) < 10 and value.removeprefix(b"-").isdigit() else 0


@lru_cache(maxsize=CACHE_MAX)
def tags_code_of(tag: bytes) -> int:
    """The hash of a tag, as a queue entry holds it."""
    return java_hash(tag.decode("utf-8", "replace"))


class TagCodes:
    """Called with topic, raw properties and store time (ms)."""

    __slots__ = ("_levels",)

    def __init__(self, levels: DelayLevels) -> None:
        self._levels = levels

    def __call__(self, topic: str, raw: bytes, store_ms: int) -> int:
        """The code of one message."""
        if topic == SCHEDULE_TOPIC and (level := delay_level(raw)) > 0:
            return self._levels.due_ms(level, store_ms)
        if b"TAGS\x01" not in raw:
            return 0
        tag = properties.find(raw, b"TAGS")
        if tag is None:
            return 0
        return tags_code_of(tag)
