"""Retries after an exact time: by a timer of the broker, by a level where it has none."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from client import slow_groups
from client.slow_groups import Scene, Shape
from cometmq import MessageExt, RetryLater
from cometmq.errors import SettingsError


def pauses(monkeypatch: pytest.MonkeyPatch, *, has_timers: bool) -> list[float]:
    """Seconds from the first attempt at each message to the second."""
    first: dict[str, float] = {}
    found: list[float] = []

    def failing(message: MessageExt) -> Exception | None:
        now, key = asyncio.get_running_loop().time(), message.properties["UNIQ_KEY"]
        if message.reconsume_times == 0:
            first[key] = now
            return RetryLater(after_s=7.5)
        assert message.reconsume_times == 1
        found.append(now - first[key])
        return None

    store = replace(slow_groups.STORE, timer_wheel_enable=has_timers)
    monkeypatch.setattr(slow_groups, "STORE", store)
    scene = Scene(Shape(queues=1, members=1, messages=5, handler_s=0.1, failing=failing))
    scene.close()
    return found


def test_a_retry_comes_after_the_time_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found = pauses(monkeypatch, has_timers=True)
    assert len(found) == 5
    assert all(7.5 <= pause <= 9.7 for pause in found)


def test_without_timers_it_comes_by_the_next_longer_level(monkeypatch: pytest.MonkeyPatch) -> None:
    found = pauses(monkeypatch, has_timers=False)
    assert len(found) == 5
    assert all(10 <= pause <= 11 for pause in found)


def test_a_time_and_a_level_exclude_each_other() -> None:
    with pytest.raises(SettingsError, match="exclude each other"):
        RetryLater(after_s=1, delay_level=3)
    with pytest.raises(SettingsError, match="after_s"):
        RetryLater(after_s=-1)
