"""How fast a consumer is: pulled, handled and failed messages by topic, and how long it took.

Owns the series of one consumer; refuses to know who asks for them. A handler's time is that of one
call, whatever the number of messages, as with RocketMQ.
Java: ConsumerStatsManager
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cometmq.client.middleware.middleware import Middleware
from cometmq.metrics.sampled_series import SampledSeries
from cometmq.model.admin_stats import TopicConsumeRates
from cometmq.model.topic import is_retry_topic

if TYPE_CHECKING:
    from cometmq.runtime.clock_and_file_protocols import Clock

SAMPLE_S = 10.0


class ConsumeTotals(NamedTuple):
    """What a consumer has counted since its start: see `MemberWork`."""

    calls: float
    busy_s: float
    done: float
    failed: float
    pulled: float
    pulls: float
    pull_s: float
    retried: float


class ConsumeCounts(NamedTuple):
    """What a consumer has counted of one topic since its start."""

    calls: int
    busy_s: float
    done: float
    failed: float
    pulled: float


class _Topic:
    """The series of one topic."""

    __slots__ = ("failed", "ok", "pull_ms", "pulled", "run_ms")

    def __init__(self, monotonic_ms: int) -> None:
        self.pull_ms = SampledSeries(monotonic_ms)
        self.pulled = SampledSeries(monotonic_ms)
        self.run_ms = SampledSeries(monotonic_ms)
        self.ok = SampledSeries(monotonic_ms)
        self.failed = SampledSeries(monotonic_ms)

    def sample(self, monotonic_ms: int) -> None:
        for series in (self.pull_ms, self.pulled, self.run_ms, self.ok, self.failed):
            series.sample(monotonic_ms)


class ConsumerStatistics(Middleware):
    """The counts of one consumer. One loop owns it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._topics: dict[str, _Topic] = {}

    def pulled(self, topic: str, count: int, spent_s: float) -> None:
        """Count a pull that found messages."""
        series = self._of(topic)
        series.pulled.add(count)
        series.pull_ms.add(spent_s * 1000)

    def after_run(self, topic: str, calls: int, spent_s: float, done: int, failed: int) -> None:
        """Count what handlers have done."""
        series = self._of(topic)
        if calls:
            series.run_ms.add(spent_s * 1000, calls)
        if done:
            series.ok.add(done)
        if failed:
            series.failed.add(failed)

    def totals(self) -> ConsumeTotals:
        """What was counted since the start, of all topics."""
        own = self._topics.values()
        retries = (one for topic, one in self._topics.items() if is_retry_topic(topic))
        return ConsumeTotals(
            calls=sum(one.run_ms.times for one in own),
            busy_s=sum(one.run_ms.value for one in own) / 1000,
            done=sum(one.ok.value for one in own),
            failed=sum(one.failed.value for one in own),
            pulled=sum(one.pulled.value for one in own),
            pulls=sum(one.pull_ms.times for one in own),
            pull_s=sum(one.pull_ms.value for one in own) / 1000,
            retried=sum(one.ok.value + one.failed.value for one in retries),
        )

    def counts(self) -> dict[str, ConsumeCounts]:
        """What was counted since the start, by topic."""
        return {
            topic: ConsumeCounts(
                calls=one.run_ms.times,
                busy_s=one.run_ms.value / 1000,
                done=one.ok.value,
                failed=one.failed.value,
                pulled=one.pulled.value,
            )
            for topic, one in self._topics.items()
        }

    def sample(self) -> None:
        """Take the samples that are due; call it every `SAMPLE_S`."""
        monotonic_ms = self._clock.monotonic_ms()
        for series in self._topics.values():
            series.sample(monotonic_ms)

    def table(self) -> dict[str, TopicConsumeRates]:
        """The rates of every topic, as the running info has them."""
        return {topic: _status(series) for topic, series in self._topics.items()}

    def _of(self, topic: str) -> _Topic:
        series = self._topics.get(topic)
        if series is None:
            series = self._topics[topic] = _Topic(self._clock.monotonic_ms())
        return series


def _status(series: _Topic) -> TopicConsumeRates:
    run = series.run_ms.minute()
    if not run.total:
        run = series.run_ms.hour()
    return TopicConsumeRates(
        pull_rt=series.pull_ms.minute().mean,
        pull_tps=series.pulled.minute().per_second,
        consume_rt=run.mean,
        consume_ok_tps=series.ok.minute().per_second,
        consume_failed_tps=series.failed.minute().per_second,
        consume_failed_msgs=int(series.failed.hour().total),
    )
