"""RocketMQ's windows: six intervals of ten seconds, six of ten minutes."""

from hypothesis import given
from hypothesis import strategies as st

from cometmq.metrics.sampled_series import SampledSeries


def test_nothing_is_known_before_the_first_sample():
    series = SampledSeries(0)
    series.add(5)
    assert series.minute() == series.hour() == (0.0, 0.0, 0.0)


def test_a_window_tells_the_sum_the_rate_and_the_mean():
    series = SampledSeries(1_000)
    for spent_ms in (10, 20, 30):
        series.add(spent_ms)
    series.sample(11_000)
    assert series.minute() == (60.0, 6.0, 20.0)
    assert series.hour().total == 0.0


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30))
def test_the_minute_holds_the_last_six_intervals_and_no_more(counts):
    series = SampledSeries(0)
    for at, count in enumerate(counts, 1):
        for _ in range(count):
            series.add(1)
        series.sample(at * 10_000)
        series.sample(at * 10_000 + 5_000)  # not due
    assert series.minute().total == sum(counts[-6:])
    assert series.minute().per_second == sum(counts[-6:]) / (10 * min(len(counts), 6))
