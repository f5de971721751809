"""Counters and the rates made of their samples."""

from cometmq.broker.stats import SAMPLE_S, Stats

DAY_MS = 86_400_000


def test_rates_are_made_of_the_samples_of_the_last_minute() -> None:
    stats = Stats(lambda: 0)
    assert stats.topic_rate("T") == 0.0
    for second in range(0, 120, SAMPLE_S):
        stats.put("T", 20 if second >= 60 else 1000, 100)
        stats.got("G", "T", 5, 100)
        stats.sample()
    assert stats.topic_rate("T") == 20 / SAMPLE_S
    assert stats.group_rate("G", "T") == 5 / SAMPLE_S
    assert stats.puts.rate(60) == 20 / SAMPLE_S
    assert stats.group_rate("H", "T") == 0.0


def test_totals_know_where_the_day_began() -> None:
    now_ms = [5 * DAY_MS]
    stats = Stats(lambda: now_ms[0])
    stats.put("T", 10, 1)
    stats.sample()
    assert stats.puts_at_midnight == [0, 0]
    now_ms[0] += DAY_MS
    stats.sample()
    assert stats.puts_at_midnight == [0, 10]
    stats.put("T", 5, 1)
    stats.refresh()
    assert stats.puts.count == 15
    now_ms[0] += DAY_MS
    stats.sample()
    assert stats.puts_at_midnight == [10, 15]


def test_names_beyond_the_bound_share_one_counter(monkeypatch) -> None:
    monkeypatch.setattr("cometmq.broker.stats.KEYS_MAX", 2)
    stats = Stats(lambda: 0)
    counters = [stats.counter_of_puts(name) for name in "abcd"]
    assert counters[2] is counters[3]
    assert counters[0] is not counters[1]
