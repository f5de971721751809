"""Delay levels: the table's text, and the times it stands for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import SettingsError
from cometmq.rules.delay_levels import DelayLevels
from cometmq.settings.broker import BrokerSettings

UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def test_the_default_table_has_the_eighteen_levels_of_rocketmq() -> None:
    levels = DelayLevels.parse(BrokerSettings().message_delay_level)
    assert levels.max_level == 18
    assert [levels.delay_ms(level) for level in (1, 3, 4, 18)] == [1_000, 10_000, 30_000, 7_200_000]


@given(
    st.lists(st.tuples(st.integers(1, 10_000), st.sampled_from("smhd")), min_size=1, max_size=30)
)
def test_every_level_lasts_what_its_text_says(entries: list[tuple[int, str]]) -> None:
    levels = DelayLevels.parse(" ".join(f"{number}{unit}" for number, unit in entries))
    assert levels.max_level == len(entries)
    for level, (number, unit) in enumerate(entries, start=1):
        assert levels.delay_ms(level) == number * UNITS[unit]
        assert levels.due_ms(level, 5) == 5 + number * UNITS[unit]


def test_a_level_above_the_table_lasts_as_the_last_one() -> None:
    levels = DelayLevels.parse("1s 2s")
    assert levels.clamp(99) == 2
    assert levels.delay_ms(99) == 2_000
    assert levels.clamp(0) == 0


@pytest.mark.parametrize(
    "text", ["", "  ", "1", "s", "1x", "-1s", "0s", "1.5s", "1s 2", "१s", "1S"]
)
def test_a_text_that_is_no_table_is_refused_by_name(text: str) -> None:
    with pytest.raises(SettingsError, match="messageDelayLevel"):
        DelayLevels.parse(text)


@pytest.mark.parametrize(
    ("delay_ms", "level"), [(0, 2), (1_000, 2), (1_001, 1), (60_000, 4), (60_001, 3), (10**9, 3)]
)
def test_a_time_is_met_by_the_shortest_level_that_is_long_enough(delay_ms: int, level: int) -> None:
    assert DelayLevels.parse("10s 1s 2m 60s").nearest(delay_ms) == level
