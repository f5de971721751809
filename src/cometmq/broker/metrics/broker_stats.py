"""What passes through the broker, counted by topic, group and queue; and rates for admin tools.

Owns the counters and the totals made of them, and registers each. Refuses to know requests. Nothing
here is on disk. Invariant: a total never falls, also when the topic that made it is deleted.
Java: BrokerStatsManager, BrokerStats, StoreStatsService.
"""

from __future__ import annotations

import asyncio
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from cometmq.broker.metrics import metric_definitions as catalog
from cometmq.metrics.instruments import MetricFamily
from cometmq.metrics.traffic_counters import TrafficCounter, TrafficTotal, WindowSampler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cometmq.metrics.registry import MetricsRegistry
    from cometmq.metrics.traffic_counters import TrafficWindows

    TrafficFamily = MetricFamily[TrafficCounter]

SCHEDULE_GROUP = "SCHEDULE_CONSUMER"
"""The name under which the broker's own reading of its delay levels is counted."""

_count, _bytes, _calls = attrgetter("count"), attrgetter("bytes"), attrgetter("calls")
_READER = ("topic", "consumer_group")
_QUEUE = ("topic", "queue_id")
_QUEUE_READER = ("topic", "queue_id", "consumer_group")


class _JavaCounterName(NamedTuple):
    """Where RocketMQ's name of a counter leads: families to look in, and which of its numbers.

    `order` says which place in RocketMQ's key each label has: `0@T@G` has the queue first.
    """

    families: tuple[TrafficFamily, ...]
    in_bytes: bool = False
    order: tuple[int, ...] = (0, 1, 2)

    def find(self, key: str) -> TrafficCounter | None:
        """The counter of a key, in the first family that has it."""
        parts = key.split("@")
        for family in self.families:
            if len(parts) == len(family.labels):
                values = tuple(parts[at] for at in self.order[: len(parts)])
                if (found := family.children.get(values)) is not None:
                    return found
        return None


class _PullCounters(NamedTuple):
    """What counts the pulls of one group from one queue."""

    group: TrafficCounter
    queue: TrafficCounter
    read_ms: TrafficCounter


class BrokerStats:
    """All counters of a broker. Belongs to its loop.

    `is_system` tells the broker's own topics, which the totals of a day leave out; `local_hour` is
    the hour of the day here.
    """

    def __init__(
        self,
        monotonic_ms: Callable[[], int],
        local_hour: Callable[[], int] = lambda: 0,
        is_system: Callable[[str], bool] = lambda _topic: False,
        cluster: str = "DefaultCluster",
    ) -> None:
        self._monotonic_ms = monotonic_ms
        self._local_hour = local_hour
        self._is_system = is_system
        self._puts = _family("topic")
        self._gets = _family(*_READER)
        self._queue_gets = _family(*_QUEUE_READER)
        self._read_ms = _family(*_QUEUE_READER)
        self._sent_back = _family(*_READER)
        self._dead_letters = _family(*_READER)
        self._commits = _family("topic")
        self._rollbacks = _family("topic")
        self._delayed = _family(*_QUEUE)
        self._due = _family(*_QUEUE)
        self._due_of_group = _family(*_READER)
        self._due_of_queue_group = _family(*_QUEUE_READER)
        self._connections = _family("event")
        self._registrations = _family("role")
        self._queue_readers: dict[tuple[str, int, str], _PullCounters] = {}
        self.puts = TrafficTotal()
        self.gets = TrafficTotal()
        """Totals, as of the last `refresh`."""
        self.found_pulls = TrafficTotal()
        self.empty_pulls = TrafficTotal()
        """Readings of a queue that found messages, and those that found none; always up to date."""
        self.longest_get_ms = 0
        """The longest that reading took so far, of what is counted by `count_get`."""
        self.user_puts = TrafficTotal()
        self.user_gets = TrafficTotal()
        """The same without the broker's own topics."""
        self._hour = local_hour()
        self.puts_at_midnight = [0, 0]
        self.gets_at_midnight = [0, 0]
        """Totals at the midnight before yesterday's and today's, as Java shows them."""
        self._sampler = WindowSampler()
        self._cluster = cluster
        self._named = self._by_java_names()

    # ---- counting

    def count_put(self, topic: str, count: int, size: int) -> None:
        """Count messages stored in a topic."""
        self._puts.child(topic).add(count, size)

    def counter_of_puts(self, topic: str) -> TrafficCounter:
        """The counter of messages stored in the topic, for who counts by itself."""
        return self._puts.child(topic)

    def count_end(self, topic: str, *, is_commit: bool) -> None:
        """Count a half message that its producer has ended."""
        (self._commits if is_commit else self._rollbacks).child(topic).add(1, 0)

    def count_delayed(self, topic: str, queue_id: int, size: int) -> None:
        """Count a sender's message that waits in a queue of the delay levels."""
        self._delayed.child(topic, str(queue_id)).add(1, size)

    def count_due(self, waited_in: tuple[str, int], topic: str, size: int) -> None:
        """Count a delayed message that came to its topic: it was read there and stored here.

        The broker's own reading is no pull, so the totals of pulls leave it out.
        """
        self.count_put(topic, 1, size)
        level_topic, queue_id = waited_in[0], str(waited_in[1])
        self._due.child(level_topic, queue_id).add(1, size)
        self._due_of_group.child(level_topic, SCHEDULE_GROUP).add(1, size)
        self._due_of_queue_group.child(level_topic, queue_id, SCHEDULE_GROUP).add(1, size)

    def count_registration(self, *, is_producer: bool, spent_ms: int) -> None:
        """Count a client that a heartbeat named, and how long noting it took."""
        role = "producer" if is_producer else "consumer"
        self._registrations.child(role).add(1, spent_ms)

    def count_connection(self, event: str) -> None:
        """Count what became of a connection: CONNECT or CLOSE."""
        self._connections.child(event).add(1, 0)

    def count_get(
        self, group: str, topic: str, queue_id: int, count: int, size: int, spent_ms: int = 0
    ) -> None:
        """Count a pull that brought messages, and how long it took to read them."""
        reader = self._queue_readers.get((topic, queue_id, group)) or self._queue_reader(
            topic, queue_id, group
        )
        extra = count - 1
        for counter in (reader.group, reader.queue):  # `add` of each would cost 0.3 us more
            counter.count += count
            counter.bytes += size
            counter.extra += extra
        reader.read_ms.add(spent_ms, 0)
        self.found_pulls.count += 1
        if spent_ms > self.longest_get_ms:
            self.longest_get_ms = spent_ms

    def count_sent_back(self, group: str, topic: str) -> None:
        """Count a message sent back."""
        self._sent_back.child(topic, group).add(1, 0)

    def count_dead_letter(self, group: str, topic: str) -> None:
        """Count a dead letter, by the topic that it was sent to."""
        self._dead_letters.child(topic, group).add(1, 0)

    def forget_topic(self, topic: str) -> None:
        """Drop the counters of a topic that is gone; totals keep what they counted."""
        self._forget("topic", topic)

    def forget_group(self, group: str) -> None:
        """Drop the counters of a group that is gone; totals keep what they counted."""
        self._forget("consumer_group", group)

    # ---- reading

    def topic_rate(self, topic: str) -> float:
        """Messages a second stored in the topic, over the last minute."""
        return self._sampler.rate(self._puts.children.get((topic,)))

    def group_rate(self, group: str, topic: str) -> float:
        """Messages a second pulled by the group from the topic, over the last minute."""
        return self._sampler.rate(self._gets.children.get((topic, group)))

    def figures(self, name: str, key: str) -> TrafficWindows | None:
        """The windows of what Java calls `name` (TOPIC_PUT_NUMS, ...); None when nothing counted.

        The key is made of topic, queue and group as Java makes it: T, T@G, T@0@G, and 0@T@G for
        GROUP_GET_LATENCY; of the broker's own counters it is the name of the cluster.
        """
        named = self._named.get(name)
        if isinstance(named, TrafficTotal):
            return self._sampler.figures(named) if key == self._cluster else None
        counter = None if named is None else named.find(self._label_of(name, key))
        if named is None or counter is None:
            return None
        return self._sampler.figures(counter, in_bytes=named.in_bytes)

    def register(self, registry: MetricsRegistry) -> None:
        """Register every counter."""
        puts, gets = self._puts, self._gets
        registry.family(catalog.MESSAGES_IN, puts, _count)
        registry.family(catalog.BYTES_IN, puts, _bytes)
        registry.family(catalog.SENDS, puts, _calls)
        registry.family(catalog.MESSAGES_OUT, gets, _count)
        registry.family(catalog.BYTES_OUT, gets, _bytes)
        registry.family(catalog.PULLS, gets, _calls)
        registry.family(catalog.QUEUE_MESSAGES_OUT, self._queue_gets, _count)
        registry.family(catalog.READ_MS, self._read_ms, _count)
        registry.family(catalog.MESSAGES_SENT_BACK, self._sent_back, _count)
        registry.family(catalog.MESSAGES_TO_DLQ, self._dead_letters, _count)
        registry.family(catalog.COMMITS, self._commits, _count)
        registry.family(catalog.ROLLBACKS, self._rollbacks, _count)
        registry.family(catalog.MESSAGES_DELAYED, self._delayed, _count)
        registry.family(catalog.MESSAGES_DUE, self._due, _count)
        registry.family(catalog.CONNECTION_EVENTS, self._connections, _count)
        registry.family(catalog.REGISTRATIONS, self._registrations, _count)
        registry.family(catalog.REGISTRATION_MS, self._registrations, _bytes)
        registry.callback(catalog.PULLS_FOUND, lambda: self.found_pulls.count)
        registry.callback(catalog.PULLS_EMPTY, lambda: self.empty_pulls.count)
        registry.callback(catalog.READ_LONGEST_MS, lambda: self.longest_get_ms)

    # ---- sampling

    def sample(self) -> None:
        """Remember the counts; called every `SAMPLE_S` seconds, or `sample_in_slices` is."""
        for _ in self._sampling():
            pass

    async def sample_in_slices(self) -> None:
        """Do as `sample`, and let others run now and then."""
        for _ in self._sampling():
            await asyncio.sleep(0)

    def refresh(self) -> None:
        """Bring the totals up to date."""
        puts, gets = self._puts, self._gets
        self.puts.refresh([*puts.children.values(), puts.overflow])
        self.gets.refresh([*gets.children.values(), gets.overflow])
        self.user_puts.refresh(self._of_users(puts))
        self.user_gets.refresh(self._of_users(gets))

    def _sampling(self) -> Iterator[None]:
        self.refresh()
        for total in (self.puts, self.gets, self.found_pulls, self.empty_pulls):
            total.rates.append(total.count)
        self._mark_midnight()
        counters: list[TrafficCounter] = [self.puts, self.gets, self.user_puts, self.user_gets]
        for family in self._families():
            counters += family.children.values()
        return self._sampler.sample(counters, self._monotonic_ms())

    def _mark_midnight(self) -> None:
        before, self._hour = self._hour, self._local_hour()
        if self._hour < before:
            self.puts_at_midnight = [self.puts_at_midnight[1], self.user_puts.count]
            self.gets_at_midnight = [self.gets_at_midnight[1], self.user_gets.count]

    # ---- tables

    def _by_java_names(self) -> dict[str, _JavaCounterName | TrafficTotal]:
        queue_first = (1, 0, 2)
        gets = (self._gets, self._due_of_group)
        queue_gets = (self._queue_gets, self._due_of_queue_group)
        return {
            "QUEUE_PUT_NUMS": _JavaCounterName((self._delayed,)),
            "QUEUE_PUT_SIZE": _JavaCounterName((self._delayed,), in_bytes=True),
            "CHANNEL_ACTIVITY": _JavaCounterName((self._connections,)),
            "CONSUMER_REGISTER_TIME": _JavaCounterName((self._registrations,), in_bytes=True),
            "PRODUCER_REGISTER_TIME": _JavaCounterName((self._registrations,), in_bytes=True),
            "TOPIC_PUT_NUMS": _JavaCounterName((self._puts,)),
            "TOPIC_PUT_SIZE": _JavaCounterName((self._puts,), in_bytes=True),
            "GROUP_GET_NUMS": _JavaCounterName(gets),
            "GROUP_GET_SIZE": _JavaCounterName(gets, in_bytes=True),
            "GROUP_GET_LATENCY": _JavaCounterName((self._read_ms,), order=queue_first),
            "QUEUE_GET_NUMS": _JavaCounterName(queue_gets),
            "QUEUE_GET_SIZE": _JavaCounterName(queue_gets, in_bytes=True),
            "SNDBCK_PUT_NUMS": _JavaCounterName((self._sent_back,)),
            "DLQ_PUT_NUMS": _JavaCounterName((self._dead_letters,)),
            "BROKER_PUT_NUMS": self.puts,
            "BROKER_GET_NUMS": self.gets,
            "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": self.user_puts,
            "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": self.user_gets,
        }

    def _label_of(self, name: str, key: str) -> str:
        """RocketMQ counts registrations under the cluster's name, we under the client's role."""
        if not name.endswith("_REGISTER_TIME"):
            return key
        return name.partition("_")[0].lower() if key == self._cluster else ""

    def _queue_reader(self, topic: str, queue_id: int, group: str) -> _PullCounters:
        queue = str(queue_id)
        reader = _PullCounters(
            self._gets.child(topic, group),
            self._queue_gets.child(topic, queue, group),
            self._read_ms.child(topic, queue, group),
        )
        if len(self._queue_readers) < self._queue_gets.children_max:
            self._queue_readers[topic, queue_id, group] = reader
        return reader

    def _is_user(self, topic: str) -> bool:
        return not self._is_system(topic)

    def _of_users(self, family: TrafficFamily) -> list[TrafficCounter]:
        children = family.children.items()
        return [child for (topic, *_), child in children if self._is_user(topic)]

    def _forget(self, label: str, value: str) -> None:
        totals = {id(self._puts): (self.puts, self.user_puts)}
        totals[id(self._gets)] = (self.gets, self.user_gets)
        for family in self._families_of_names():
            for (topic, *_), gone in family.remove(label, value):
                total, users = totals.get(id(family), (None, None))
                if total is not None and users is not None:
                    total.keep_counts_of(gone)
                    if self._is_user(topic):
                        users.keep_counts_of(gone)
        at = _QUEUE_READER.index(label)
        for reader in [each for each in self._queue_readers if each[at] == value]:
            del self._queue_readers[reader]

    def _families_of_names(self) -> tuple[TrafficFamily, ...]:
        """Families whose children go with a topic or a group."""
        return (
            self._puts,
            self._gets,
            self._queue_gets,
            self._read_ms,
            self._sent_back,
            self._dead_letters,
            self._commits,
            self._rollbacks,
            self._delayed,
        )

    def _families(self) -> tuple[TrafficFamily, ...]:
        return (
            *self._families_of_names(),
            self._due,
            self._due_of_group,
            self._due_of_queue_group,
            self._connections,
            self._registrations,
        )


def _family(*labels: str) -> TrafficFamily:
    return MetricFamily(labels, TrafficCounter)
