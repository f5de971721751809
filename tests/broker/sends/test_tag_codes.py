"""The tags code of a queue entry: a tag's hash, or the time at which a delayed message is due."""

from __future__ import annotations

import pytest

from cometmq.broker.sends.tag_codes import TagCodes, delay_level
from cometmq.model.topic import SCHEDULE_TOPIC
from cometmq.rules.delay_levels import DelayLevels
from cometmq.wire.java_hash import java_hash
from cometmq.wire.records import properties

CODES = TagCodes(DelayLevels.parse("1s 5s 1h"))


def raw(**pairs: str) -> bytes:
    return properties.encode(pairs)


@pytest.mark.parametrize("tag", ["A", "TagA", "\u00e9t\u00e9", "x" * 500])
def test_the_code_of_a_tag_is_javas_hash_of_it(tag: str) -> None:
    assert CODES("T", raw(KEYS="k", TAGS=tag), 7) == java_hash(tag)


@pytest.mark.parametrize("without", [b"", raw(KEYS="k"), raw(XTAGS="A")])
def test_a_message_without_a_tag_has_code_0(without: bytes) -> None:
    assert CODES("T", without, 7) == 0


@pytest.mark.parametrize(("level", "delay_ms"), [("1", 1_000), ("3", 3_600_000), ("9", 3_600_000)])
def test_a_delayed_message_has_the_time_when_it_is_due(level: str, delay_ms: int) -> None:
    waiting = raw(DELAY=level, TAGS="A")
    assert CODES(SCHEDULE_TOPIC, waiting, 10_000) == 10_000 + delay_ms
    assert CODES("T", waiting, 10_000) == java_hash("A"), "it does not wait any more"


@pytest.mark.parametrize(
    ("value", "level"), [("3", 3), ("-1", -1), ("", 0), ("x", 0), ("1" * 10, 0), ("1.5", 0)]
)
def test_a_level_that_is_no_number_is_none(value: str, level: int) -> None:
    assert delay_level(raw(DELAY=value)) == level
