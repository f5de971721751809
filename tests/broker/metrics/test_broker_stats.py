"""Counters, their windows, and the rates made of them."""

import asyncio
from collections.abc import Callable

import pytest

from cometmq.broker.metrics.broker_stats import BrokerStats
from cometmq.metrics.traffic_counters import SAMPLE_S, WindowCounts

START_MS = 1_700_000_000_000


class SampledStats:
    """Statistics whose time goes on by samples."""

    def __init__(self, **more: Callable[..., bool]) -> None:
        self.now_ms, self.hour = START_MS, 12
        self.stats = BrokerStats(lambda: self.now_ms, lambda: self.hour, **more)
        self.stats.sample()

    def advance(
        self, seconds: int, each: Callable[[BrokerStats], None] = lambda _stats: None
    ) -> None:
        for _ in range(seconds // SAMPLE_S):
            each(self.stats)
            self.now_ms += SAMPLE_S * 1000
            self.stats.sample()


def test_rates_are_those_of_the_last_minute() -> None:
    sampled = SampledStats()
    assert sampled.stats.topic_rate("T") == 0.0
    sampled.advance(60, lambda stats: stats.count_put("T", 1000, 1))
    sampled.advance(
        60, lambda stats: (stats.count_put("T", 20, 100), stats.count_get("G", "T", 0, 5, 100))[1]
    )
    assert sampled.stats.topic_rate("T") == 20 / SAMPLE_S
    assert sampled.stats.group_rate("G", "T") == 5 / SAMPLE_S
    assert sampled.stats.puts.rate(60) == 20 / SAMPLE_S
    assert sampled.stats.group_rate("H", "T") == 0.0


def test_a_counter_tells_its_last_minute_hour_and_day() -> None:
    sampled = SampledStats()
    sampled.advance(3600, lambda stats: stats.count_put("T", 10, 500))
    found = sampled.stats.figures("TOPIC_PUT_NUMS", "T")
    assert found is not None
    assert found.minute == WindowCounts(60, 1.0, 10.0)
    assert found.hour == WindowCounts(3600, 1.0, 10.0)
    sizes = sampled.stats.figures("TOPIC_PUT_SIZE", "T")
    assert sizes is not None
    assert sizes.minute == WindowCounts(3000, 50.0, 500.0)
    sampled.advance(3600)
    found = sampled.stats.figures("TOPIC_PUT_NUMS", "T")
    assert found is not None
    assert found.minute == WindowCounts(0, 0.0, 0.0), "nothing came within the last minute"
    assert found.day.sum == 3600, "but within the day"


def test_a_topic_that_began_a_moment_ago_does_not_count_as_slow() -> None:
    sampled = SampledStats()
    sampled.advance(300)
    sampled.advance(SAMPLE_S, lambda stats: stats.count_put("T", 50, 1))
    assert sampled.stats.topic_rate("T") == 50 / SAMPLE_S


def test_a_group_is_counted_by_topic_and_by_queue_with_the_time_it_took() -> None:
    sampled = SampledStats()
    sampled.advance(20, lambda stats: stats.count_get("G", "T", 3, 4, 400, 7))
    stats = sampled.stats
    of_group, of_queue = (
        stats.figures("GROUP_GET_NUMS", "T@G"),
        stats.figures("QUEUE_GET_NUMS", "T@3@G"),
    )
    assert of_group == of_queue
    assert of_group is not None
    assert of_group.minute.sum == 8
    spent = stats.figures("GROUP_GET_LATENCY", "3@T@G")
    assert spent is not None
    assert spent.minute == WindowCounts(14, 0.7, 7.0)
    for name, key in (("GROUP_GET_NUMS", "T@H"), ("QUEUE_GET_NUMS", "T@0@G"), ("NOPE", "T")):
        assert stats.figures(name, key) is None


def test_the_totals_of_a_day_begin_at_midnight_and_leave_out_the_brokers_own_topics() -> None:
    sampled = SampledStats(is_system=lambda topic: topic == "S")
    sampled.advance(
        SAMPLE_S, lambda stats: (stats.count_put("T", 10, 1), stats.count_put("S", 7, 1))[1]
    )
    stats = sampled.stats
    assert stats.puts_at_midnight == [0, 0]
    sampled.hour = 0
    sampled.advance(SAMPLE_S)
    assert stats.puts_at_midnight == [0, 10]
    sampled.advance(SAMPLE_S, lambda stats: stats.count_put("T", 5, 1))
    assert stats.user_puts.count == 15
    assert stats.puts.count == 22
    sampled.hour = 23
    sampled.advance(SAMPLE_S)
    sampled.hour = 0
    sampled.advance(SAMPLE_S)
    assert stats.puts_at_midnight == [10, 15]
    total = stats.figures("BROKER_PUT_NUMS", "DefaultCluster")
    users = stats.figures("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "DefaultCluster")
    assert total is not None
    assert users is not None
    assert (total.minute.sum, users.minute.sum) == (22, 15)


def test_what_is_deleted_is_forgotten_but_stays_in_the_totals() -> None:
    sampled = SampledStats()

    def work(stats: BrokerStats) -> None:
        stats.count_put("T", 1, 10)
        stats.count_put("G", 1, 10)
        for topic, group in (("T", "G"), ("T", "H"), ("G", "T")):
            stats.count_get(group, topic, 0, 2, 20)
            stats.count_sent_back(group, topic)

    sampled.advance(SAMPLE_S, work)
    stats = sampled.stats
    stats.forget_topic("T")
    for name, key in (
        ("TOPIC_PUT_NUMS", "T"),
        ("GROUP_GET_NUMS", "T@G"),
        ("QUEUE_GET_NUMS", "T@0@H"),
        ("GROUP_GET_LATENCY", "0@T@G"),
        ("SNDBCK_PUT_NUMS", "T@G"),
    ):
        assert stats.figures(name, key) is None, name
    assert stats.figures("GROUP_GET_NUMS", "G@T") is not None, "a group may be called like it"
    assert stats.figures("TOPIC_PUT_NUMS", "G") is not None
    stats.refresh()
    assert (stats.puts.count, stats.gets.count, stats.user_gets.bytes) == (2, 6, 60)
    stats.forget_group("T")
    assert stats.figures("GROUP_GET_NUMS", "G@T") is None
    stats.count_get("G", "T", 0, 1, 10)
    stats.refresh()
    assert stats.gets.count == 7
    sampled.advance(SAMPLE_S)
    assert stats.figures("GROUP_GET_NUMS", "T@G") is not None, "it is counted anew"


def test_a_sample_taken_in_slices_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cometmq.metrics.traffic_counters._SLICE", 2)
    sampled = SampledStats()
    for number in range(7):
        sampled.stats.count_put(f"T{number}", 10, 1)
    sampled.now_ms += SAMPLE_S * 1000
    asyncio.run(sampled.stats.sample_in_slices())
    assert {sampled.stats.topic_rate(f"T{number}") for number in range(7)} == {1.0}


def test_names_beyond_the_bound_share_one_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = BrokerStats(lambda: 0)
    monkeypatch.setattr(stats._puts, "children_max", 2)
    counters = [stats.counter_of_puts(name) for name in "abcd"]
    assert counters[2] is counters[3]
    assert counters[0] is not counters[1]


def test_delay_levels_are_counted_as_queues_put_to_and_read_by_the_broker() -> None:
    sampled = SampledStats()

    def work(stats: BrokerStats) -> None:
        stats.count_delayed("SCHEDULE_TOPIC_XXXX", 2, 300)
        stats.count_due(("SCHEDULE_TOPIC_XXXX", 2), "T", 250)

    sampled.advance(60, work)
    stats = sampled.stats
    for name, key, counted in (
        ("QUEUE_PUT_NUMS", "SCHEDULE_TOPIC_XXXX@2", 6),
        ("QUEUE_PUT_SIZE", "SCHEDULE_TOPIC_XXXX@2", 1800),
        ("GROUP_GET_NUMS", "SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER", 6),
        ("QUEUE_GET_SIZE", "SCHEDULE_TOPIC_XXXX@2@SCHEDULE_CONSUMER", 1500),
        ("TOPIC_PUT_NUMS", "T", 6),
    ):
        found = stats.figures(name, key)
        assert found is not None, name
        assert found.minute.sum == counted, name
    assert stats.gets.count == 0, "nobody has pulled"


def test_clients_and_connections_are_counted() -> None:
    sampled = SampledStats()

    def work(stats: BrokerStats) -> None:
        stats.count_connection("CONNECT")
        stats.count_registration(is_producer=False, spent_ms=3)

    sampled.advance(60, work)
    connects = sampled.stats.figures("CHANNEL_ACTIVITY", "CONNECT")
    assert connects is not None
    assert connects.minute.sum == 6
    spent = sampled.stats.figures("CONSUMER_REGISTER_TIME", "DefaultCluster")
    assert spent is not None
    assert (spent.minute.sum, spent.minute.per_call) == (18, 3.0)
    assert sampled.stats.figures("CHANNEL_ACTIVITY", "CLOSE") is None
