"""Producers that wait for the next task of a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from client.short_delay_cluster import until
from cometmq.spark.connection_security import ConnectionSecurity
from cometmq.spark.sink import producers
from cometmq.wire.request_signature import Credentials

PLAIN = ConnectionSecurity()

if TYPE_CHECKING:
    import pytest

    from spark.live import Live


def test_the_next_task_takes_the_same_producer_and_another_one_does_not(live: Live) -> None:
    first = producers.take("g", (live.namesrv,), PLAIN)
    second = producers.take("g", (live.namesrv,), PLAIN)
    assert second is not first, "a producer is used by one task at a time"
    producers.give_back(first)
    signed = ConnectionSecurity(Credentials("ak", "sk"))
    strange = producers.take("g", (live.namesrv,), signed)
    assert strange is not first
    other = producers.take("other", (live.namesrv,), PLAIN)
    assert producers.take("g", (live.namesrv,), PLAIN) is first
    for one in (first, second, strange, other):
        one.stop()


def test_few_idle_producers_are_kept_and_none_for_long(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "IDLE_S", 0.3)
    taken = [producers.take("g", (live.namesrv,), PLAIN) for _ in range(3)]
    for one in taken:
        producers.give_back(one)
    assert [one.bridge.is_started for one in taken] == [False, True, True]
    until(lambda: not any(one.bridge.is_started for one in taken), 10)
