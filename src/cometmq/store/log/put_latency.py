"""How long puts take, and how many fail: since the start, and of the last minute by length.

Owns the classes that admin tools show, and finer steps between them for percentiles. Refuses to
know clocks and messages. All puts of one loop iteration count as if they began with the first and
ended when all were as durable as promised: one addition for each iteration.
Java: StoreStatsService.
"""

from __future__ import annotations

from cometmq.metrics.instruments import Histogram

MINUTE_S = 60.0
CLASSES_S = (0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0)
"""Where one class ends and the next begins, seconds; the last one is open."""

_STEPS = tuple(sorted({*CLASSES_S, *(0.000_02 * 1.2**n for n in range(72))}))
"""Ends of the steps that are counted, each at most a fifth above the one before."""
_ENDS = tuple(_STEPS.index(each) + 1 for each in CLASSES_S)


class PutLatencies:
    """Counts of one store. Belongs to its loop; all times are the loop's own, in seconds."""

    __slots__ = ("_at_begin", "_last", "_until_s", "failed", "histogram")

    def __init__(self) -> None:
        self.failed = 0
        """Puts that were refused, or whose message could not be kept."""
        self.histogram = Histogram(_STEPS)
        """All puts since the start."""
        self._at_begin = self.histogram.counts[:]
        """What the histogram held when the minute began that is counted."""
        self._last: list[int] | None = None
        self._until_s = 0.0
        """When the minute ends that is counted; 0 before the first put."""

    @property
    def longest_s(self) -> float:
        """The longest put since the start."""
        return self.histogram.longest

    def add(self, count: int, begun_s: float, now_s: float) -> None:
        """Count puts that are as durable as promised now."""
        assert count >= 0
        assert begun_s <= now_s, "a put ended before it began"
        if now_s >= self._until_s:
            self._begin_minute(now_s)
        self.histogram.observe(now_s - begun_s, count)

    def classes(self, now_s: float) -> list[int]:
        """How many puts of the last minute took how long, by `CLASSES_S`.

        It is the last that is over; while the first lasts, what there is of that.
        """
        counts, begin, found = self._minute(now_s), 0, []
        for end in (*_ENDS, len(counts)):
            found.append(sum(counts[begin:end]))
            begin = end
        return found

    def percentile(self, share: float, now_s: float) -> float:
        """How long, in seconds, this share of the same puts took at most; 0 when there were none.

        Up to a fifth off, as the steps are; what took more than ten seconds counts as ten.
        """
        assert 0 <= share <= 1
        counts = self._minute(now_s)
        wanted, passed, begin_s = share * sum(counts), 0, 0.0
        for count, end_s in zip(counts, (*_STEPS, _STEPS[-1]), strict=True):
            if count and passed + count >= wanted:
                return begin_s + (end_s - begin_s) * (wanted - passed) / count
            passed, begin_s = passed + count, end_s
        return 0.0

    def _minute(self, now_s: float) -> list[int]:
        if self._until_s and now_s >= self._until_s:
            self._begin_minute(now_s)
        return self._counted() if self._last is None else self._last

    def _counted(self) -> list[int]:
        """What was counted within the minute that is not over."""
        now, before = self.histogram.counts, self._at_begin
        counted = [count - begun for count, begun in zip(now, before, strict=True)]
        assert min(counted) >= 0, "a histogram counts up only"
        return counted

    def _begin_minute(self, now_s: float) -> None:
        """End the minute that was counted; also those that went by meanwhile without a put."""
        if not self._until_s:
            self._until_s = now_s + MINUTE_S
            return
        over = int((now_s - self._until_s) // MINUTE_S)
        counted = self._counted()
        self._last = [0] * len(counted) if over else counted
        self._at_begin = self.histogram.counts[:]
        self._until_s += MINUTE_S * (over + 1)
        if self._until_s <= now_s:  # the sum was rounded down to now
            self._until_s += MINUTE_S
        assert now_s < self._until_s, "the minute that is counted is over already"
