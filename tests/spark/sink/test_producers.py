"""Producers that wait for the next task of a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from client.short_delay_cluster import until
from cometmq.spark.sink import producers

if TYPE_CHECKING:
    import pytest

    from spark.live import Live


def test_the_next_task_takes_the_same_producer_and_another_one_does_not(live: Live) -> None:
    first = producers.take("g", (live.namesrv,))
    second = producers.take("g", (live.namesrv,))
    assert second is not first, "a producer is used by one task at a time"
    producers.give_back(first)
    other = producers.take("other", (live.namesrv,))
    assert producers.take("g", (live.namesrv,)) is first
    for one in (first, second, other):
        one.stop()


def test_few_idle_producers_are_kept_and_none_for_long(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "IDLE_S", 0.3)
    taken = [producers.take("g", (live.namesrv,)) for _ in range(3)]
    for one in taken:
        producers.give_back(one)
    assert [one.bridge.is_started for one in taken] == [False, True, True]
    until(lambda: not any(one.bridge.is_started for one in taken), 10)
