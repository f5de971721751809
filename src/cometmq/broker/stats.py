"""Counters of what passes through the broker, and the windows and rates that admin tools show.

Owns totals and windows (a minute in steps of 10 s, an hour of 10 min, a day of 1 h) by topic, by
group and by queue. Refuses to know requests. Counting is one addition to a slot; nothing here is
on disk. Invariant: a total never falls, also when the topic that made it is deleted.
Java: BrokerStatsManager, StatsItem, BrokerStats, StoreStatsService.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SCHEDULE_GROUP = "SCHEDULE_CONSUMER"
"""The name under which the broker's own reading of its delay levels is counted."""

_OF_READERS = frozenset(("GROUP_GET_NUMS", "GROUP_GET_SIZE", "QUEUE_GET_NUMS", "QUEUE_GET_SIZE"))

SAMPLE_S = 10
"""Time between samples, seconds."""

KEYS_MAX = 100_000
"""Counters kept of each kind; further names are not counted."""

_RATE_SAMPLES = 61  # ten minutes
_SLICE = 500
"""Counters sampled between two turns of the loop."""
_WINDOWS = ((1, 7), (60, 7), (360, 25))
"""Minute, hour and day: how many samples of 10 s make one of the window's, and how many it has."""
_FIELDS = 3
_KEPT = tuple(length * _FIELDS for _, length in _WINDOWS)


class Window(NamedTuple):
    """What a counter counted within one window; `per_call` is what one call counted."""

    sum: int
    per_second: float
    per_call: float


class Figures(NamedTuple):
    """A counter's last minute, hour and day, each as far as it is known."""

    minute: Window
    hour: Window
    day: Window


class Counter:
    """How many, how many bytes, and in how many calls."""

    __slots__ = ("bytes", "count", "extra", "samples")

    def __init__(self) -> None:
        self.count = self.bytes = self.extra = 0
        # `extra` is what `count` has above one a call: who counts one at a time leaves it alone
        self.samples = (array("q"), array("q"), array("q"))
        """Count, bytes and calls at each sample of the three windows, beginning with zeros."""

    def add(self, count: int, size: int) -> None:
        """Count one call."""
        self.count += count
        self.bytes += size
        self.extra += count - 1

    def sample(self, window: int) -> None:
        """Remember the counts in a window."""
        values = self.samples[window]
        if not values:
            values.extend((0, 0, 0))
        values.extend((self.count, self.bytes, self.count - self.extra))
        if len(values) > _KEPT[window]:
            del values[:_FIELDS]


class Total(Counter):
    """A sum over counters, with the rates that the broker shows of itself."""

    __slots__ = ("gone_bytes", "gone_count", "rates")

    def __init__(self) -> None:
        super().__init__()
        self.gone_count = self.gone_bytes = 0
        """What counters had that are gone."""
        self.rates: deque[int] = deque([0], maxlen=_RATE_SAMPLES)

    def become(self, counters: list[Counter]) -> None:
        """Be the sum of the counters and of those that are gone."""
        self.count = self.extra = self.gone_count + sum([each.count for each in counters])
        self.bytes = self.gone_bytes + sum([each.bytes for each in counters])

    def part_with(self, counter: Counter) -> None:
        """Keep what a counter had that goes."""
        self.gone_count += counter.count
        self.gone_bytes += counter.bytes

    def rate(self, seconds: int = 60) -> float:
        """Messages a second over about the last `seconds`, up to the newest sample."""
        back = min(len(self.rates) - 1, max(1, seconds // SAMPLE_S))
        if back < 1:
            return 0.0
        return (self.rates[-1] - self.rates[-1 - back]) / (back * SAMPLE_S)


class _Reader(NamedTuple):
    """What counts the pulls of one group from one queue."""

    group: Counter
    queue: Counter
    spent_ms: Counter


class Stats:
    """All counters. Belongs to the broker's loop.

    `is_system` tells the broker's own topics, which the totals of a day leave out; `local_hour` is
    the hour of the day here.
    """

    def __init__(
        self,
        now_ms: Callable[[], int],
        local_hour: Callable[[], int] = lambda: 0,
        is_system: Callable[[str], bool] = lambda _topic: False,
        cluster: str = "DefaultCluster",
    ) -> None:
        self._now_ms, self._local_hour, self._is_system = now_ms, local_hour, is_system
        self.boot_ms = now_ms()
        self._other = Counter()
        self._puts: dict[str, Counter] = {}
        self._gets: dict[str, Counter] = {}
        self._queue_gets: dict[str, Counter] = {}
        self._spent_ms: dict[str, Counter] = {}
        self._sent_back: dict[str, Counter] = {}
        self._buried: dict[str, Counter] = {}
        self._queue_puts: dict[str, Counter] = {}
        self._scheduled: dict[str, Counter] = {}
        self._channels: dict[str, Counter] = {}
        self._readers: dict[tuple[str, int, str], _Reader] = {}
        self.puts, self.gets = Total(), Total()
        """Totals, as of the last `refresh`."""
        self.found_pulls, self.missed_pulls = Total(), Total()
        """Readings of a queue that found messages, and those that found none; always up to date."""
        self.longest_get_ms = 0
        """The longest that reading took so far, of what is counted by `got`."""
        self.user_puts, self.user_gets = Total(), Total()
        """The same without the broker's own topics."""
        self._hour = local_hour()
        self.puts_at_midnight, self.gets_at_midnight = [0, 0], [0, 0]
        """Totals at the midnight before yesterday's and today's, as Java shows them."""
        self._times: tuple[deque[int], ...] = tuple(deque(maxlen=n) for _, n in _WINDOWS)
        self._taken = 0
        self._cluster = cluster
        self._consumers: dict[str, Counter] = {}
        self._producers: dict[str, Counter] = {}
        self._named: dict[str, tuple[dict[str, Counter], bool]] = {
            "QUEUE_PUT_NUMS": (self._queue_puts, False),
            "QUEUE_PUT_SIZE": (self._queue_puts, True),
            "CHANNEL_ACTIVITY": (self._channels, False),
            "CONSUMER_REGISTER_TIME": (self._consumers, True),
            "PRODUCER_REGISTER_TIME": (self._producers, True),
            "TOPIC_PUT_NUMS": (self._puts, False),
            "TOPIC_PUT_SIZE": (self._puts, True),
            "GROUP_GET_NUMS": (self._gets, False),
            "GROUP_GET_SIZE": (self._gets, True),
            "GROUP_GET_LATENCY": (self._spent_ms, False),
            "QUEUE_GET_NUMS": (self._queue_gets, False),
            "QUEUE_GET_SIZE": (self._queue_gets, True),
            "SNDBCK_PUT_NUMS": (self._sent_back, False),
            "DLQ_PUT_NUMS": (self._buried, False),
            "BROKER_PUT_NUMS": ({cluster: self.puts}, False),
            "BROKER_GET_NUMS": ({cluster: self.gets}, False),
            "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": ({cluster: self.user_puts}, False),
            "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": ({cluster: self.user_gets}, False),
        }

    # ---- counting

    def put(self, topic: str, count: int, size: int) -> None:
        """Count messages stored in a topic."""
        self.counter_of_puts(topic).add(count, size)

    def counter_of_puts(self, topic: str) -> Counter:
        """The counter of messages stored in the topic, for who counts by itself."""
        return _of(self._puts, topic, self._other)

    def held_back(self, topic: str, queue_id: int, size: int) -> None:
        """Count a sender's message that waits in a queue of the delay levels."""
        _of(self._queue_puts, f"{topic}@{queue_id}", self._other).add(1, size)

    def delivered(self, waited_in: tuple[str, int], topic: str, size: int) -> None:
        """Count a delayed message that came to its topic: it was read there and stored here.

        The broker's own reading is no pull, so the totals of pulls leave it out.
        """
        self.put(topic, 1, size)
        for key in ("{}@" + SCHEDULE_GROUP, "{}@{}@" + SCHEDULE_GROUP):
            _of(self._scheduled, key.format(*waited_in), self._other).add(1, size)

    def registered(self, *, is_producer: bool, spent_ms: int) -> None:
        """Count a client that a heartbeat named, and how long noting it took."""
        table = self._producers if is_producer else self._consumers
        _of(table, self._cluster, self._other).add(1, spent_ms)

    def channel(self, event: str) -> None:
        """Count what became of a connection: CONNECT or CLOSE."""
        _of(self._channels, event, self._other).add(1, 0)

    def got(
        self, group: str, topic: str, queue_id: int, count: int, size: int, spent_ms: int = 0
    ) -> None:
        """Count a pull that brought messages, and how long it took to read them."""
        reader = self._readers.get((topic, queue_id, group)) or self._reader(topic, queue_id, group)
        reader.group.add(count, size)
        reader.queue.add(count, size)
        reader.spent_ms.add(spent_ms, 0)
        self.found_pulls.count += 1
        if spent_ms > self.longest_get_ms:
            self.longest_get_ms = spent_ms

    def sent_back(self, group: str, topic: str) -> None:
        """Count a message sent back."""
        _of(self._sent_back, f"{topic}@{group}", self._other).add(1, 0)

    def buried(self, group: str, topic: str) -> None:
        """Count a dead letter."""
        _of(self._buried, f"{topic}@{group}", self._other).add(1, 0)

    def forget_topic(self, topic: str) -> None:
        """Drop the counters of a topic that is gone; totals keep what they counted."""
        self._forget(topic, is_group=False)

    def forget_group(self, group: str) -> None:
        """Drop the counters of a group that is gone; totals keep what they counted."""
        self._forget(group, is_group=True)

    # ---- telling

    def topic_rate(self, topic: str) -> float:
        """Messages a second stored in the topic, over the last minute."""
        return self._rate(self._puts.get(topic))

    def group_rate(self, group: str, topic: str) -> float:
        """Messages a second pulled by the group from the topic, over the last minute."""
        return self._rate(self._gets.get(f"{topic}@{group}"))

    def figures(self, name: str, key: str) -> Figures | None:
        """The windows of what Java calls `name` (TOPIC_PUT_NUMS, ...); None when nothing counted.

        The key is made of topic, queue and group as Java makes it: T, T@G, T@0@G, and 0@T@G for
        GROUP_GET_LATENCY; of the broker's own counters it is the name of the cluster.
        """
        counters, in_bytes = self._named.get(name, ({}, False))
        counter = counters.get(key)
        if counter is None and name in _OF_READERS:
            counter = self._scheduled.get(key)
        if counter is None:
            return None
        minute, hour, day = (self._window(counter, each, in_bytes=in_bytes) for each in range(3))
        return Figures(minute, hour, day)

    # ---- sampling

    def sample(self) -> None:
        """Remember the counts; called every `SAMPLE_S` seconds, or `sample_in_slices` is."""
        for _ in self._sampling():
            pass

    async def sample_in_slices(self) -> None:
        """Do as `sample`, some counters a turn of the loop."""
        for _ in self._sampling():
            await asyncio.sleep(0)

    def refresh(self) -> None:
        """Bring the totals up to date."""
        users = self._is_user
        self.puts.become(list(self._puts.values()))
        self.gets.become(list(self._gets.values()))
        self.user_puts.become([each for key, each in self._puts.items() if users(key)])
        self.user_gets.become([each for key, each in self._gets.items() if users(key)])

    def _sampling(self) -> Iterator[None]:
        self.refresh()
        for total in (self.puts, self.gets, self.found_pulls, self.missed_pulls):
            total.rates.append(total.count)
        self._mark_midnight()
        due = [window for window, (every, _) in enumerate(_WINDOWS) if self._taken % every == 0]
        self._taken += 1
        totals: list[Counter] = [self.puts, self.gets, self.user_puts, self.user_gets]
        for table in (self._consumers, self._producers, self._channels, self._scheduled):
            totals += table.values()
        counters = [each for table, *_ in self._tables() for each in table.values()]
        for index, counter in enumerate([*totals, *counters], 1):
            for window in due:
                counter.sample(window)
            if index % _SLICE == 0:
                yield
        now = self._now_ms()
        for window in due:
            times = self._times[window]
            if not times:
                times.append(now - _WINDOWS[window][0] * SAMPLE_S * 1000)
            times.append(now)

    def _mark_midnight(self) -> None:
        before, self._hour = self._hour, self._local_hour()
        if self._hour < before:
            self.puts_at_midnight = [self.puts_at_midnight[1], self.user_puts.count]
            self.gets_at_midnight = [self.gets_at_midnight[1], self.user_gets.count]

    def _window(self, counter: Counter, window: int, *, in_bytes: bool) -> Window:
        values, times = counter.samples[window], self._times[window]
        taken = min(len(values) // _FIELDS, len(times))
        if taken < 2:
            return Window(0, 0.0, 0.0)
        first, last = values[-taken * _FIELDS :], values[-_FIELDS:]
        counted = last[in_bytes] - first[in_bytes]
        calls, spent_ms = last[2] - first[2], times[-1] - times[-taken]
        return Window(
            counted,
            counted * 1000 / spent_ms if spent_ms > 0 else 0.0,
            counted / calls if calls > 0 else 0.0,
        )

    def _rate(self, counter: Counter | None) -> float:
        return self._window(counter, 0, in_bytes=False).per_second if counter else 0.0

    def _reader(self, topic: str, queue_id: int, group: str) -> _Reader:
        reader = _Reader(
            _of(self._gets, f"{topic}@{group}", self._other),
            _of(self._queue_gets, f"{topic}@{queue_id}@{group}", self._other),
            _of(self._spent_ms, f"{queue_id}@{topic}@{group}", self._other),
        )
        if len(self._readers) < KEYS_MAX:
            self._readers[topic, queue_id, group] = reader
        return reader

    def _is_user(self, key: str) -> bool:
        return not self._is_system(key.partition("@")[0])

    def _forget(self, name: str, *, is_group: bool) -> None:
        for table, topic_at, group_at in self._tables():
            at = group_at if is_group else topic_at
            if at < 0:
                continue
            for key in [key for key in table if key.split("@")[at] == name]:
                gone = table.pop(key)
                for total in self._totals_of(table, key):
                    total.part_with(gone)
        at = 2 if is_group else 0
        for reader in [reader for reader in self._readers if reader[at] == name]:
            del self._readers[reader]

    def _totals_of(self, table: dict[str, Counter], key: str) -> list[Total]:
        for counters, total, users in (
            (self._puts, self.puts, self.user_puts),
            (self._gets, self.gets, self.user_gets),
        ):
            if table is counters:
                return [total, users] if self._is_user(key) else [total]
        return []

    def _tables(self) -> list[tuple[dict[str, Counter], int, int]]:
        """Each table of counters, with the places of topic and group in its keys."""
        return [
            (self._puts, 0, -1),
            (self._gets, 0, 1),
            (self._queue_gets, 0, 2),
            (self._spent_ms, 1, 2),
            (self._sent_back, 0, 1),
            (self._buried, 0, 1),
            (self._queue_puts, 0, -1),
        ]


def _of(table: dict[str, Counter], key: str, other: Counter) -> Counter:
    counter = table.get(key)
    if counter is None:
        if len(table) >= KEYS_MAX:
            return other
        counter = table[key] = Counter()
    return counter
