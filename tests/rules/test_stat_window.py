"""RocketMQ's windows: six intervals of ten seconds, six of ten minutes."""

from hypothesis import given
from hypothesis import strategies as st

from cometmq.rules.flow_control import FlowLimits
from cometmq.rules.stat_window import Series


def test_nothing_is_known_before_the_first_sample():
    series = Series(0)
    series.add(5)
    assert series.minute() == series.hour() == (0.0, 0.0, 0.0)


def test_a_window_tells_the_sum_the_rate_and_the_mean():
    series = Series(1_000)
    for spent_ms in (10, 20, 30):
        series.add(spent_ms)
    series.sample(11_000)
    assert series.minute() == (60.0, 6.0, 20.0)
    assert series.hour().total == 0.0


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30))
def test_the_minute_holds_the_last_six_intervals_and_no_more(counts):
    series = Series(0)
    for at, count in enumerate(counts, 1):
        for _ in range(count):
            series.add(1)
        series.sample(at * 10_000)
        series.sample(at * 10_000 + 5_000)  # not due
    assert series.minute().total == sum(counts[-6:])
    assert series.minute().per_second == sum(counts[-6:]) / (10 * min(len(counts), 6))


def test_limits_of_a_topic_are_shared_out_among_its_queues():
    limits = FlowLimits(count=1000, topic_count=100, topic_size_mib=9)
    one = limits.of_one(8)
    assert (one.count, one.size_mib, one.span) == (12, 1, 2000)
    assert limits.of_one(1_000).count == 1
    assert limits.is_shared
    assert not FlowLimits().is_shared
