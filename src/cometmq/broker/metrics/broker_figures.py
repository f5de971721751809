"""All that a broker shows monitoring, read when it is asked: what was counted, and what is now.

Owns the labels that Apache's exporter gives, made of what the broker knows of a topic or a group.
Refuses to count: sends and pulls pay nothing for what is shown. Nothing here is on disk.
Java: BrokerMetricsManager.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cometmq.broker.admin.topic_attributes import MESSAGE_TYPE
from cometmq.broker.metrics import exported_metrics as shown
from cometmq.broker.metrics import metric_definitions as catalog
from cometmq.metrics.registry import Sample
from cometmq.model.subscription import ConsumeType
from cometmq.model.topic import SYSTEM_GROUP_PREFIX, is_dlq_topic, is_retry_topic
from cometmq.wire.codes import language_name, version_name
from cometmq.wire.records import log_record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from cometmq.broker.cluster.topics import Topics
    from cometmq.broker.delivery.timer_messages import TimerMessages
    from cometmq.broker.groups.client_registry import ClientRegistry, Member
    from cometmq.broker.metrics.group_progress import GroupProgress, GroupProgressReader
    from cometmq.metrics.registry import Metric, MetricsRegistry
    from cometmq.store.cold_read_context import ReadContext
    from cometmq.store.message_store import MessageStore

_DISK = ("local", "disk")
_REMOTING = "remoting"
_MODES = {
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_POP: "pop",
}
_TYPES = {"FIFO": "fifo", "DELAY": "delay", "TRANSACTION": "transaction"}
"""The label of a topic's declared message type; `normal` for all others."""


class BrokerFigures:
    """Reads everything of one broker. Belongs to its loop."""

    def __init__(
        self,
        registry: MetricsRegistry,
        store: MessageStore,
        topics: Topics,
        clients: ClientRegistry,
        timers: TimerMessages,
        progress: GroupProgressReader,
        permission: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        self._registry = registry
        self._store = store
        self._topics = topics
        self._clients = clients
        self._timers = timers
        self._progress = progress
        self._permission = permission
        self._now_ms = now_ms

    async def each(self, series_max: int) -> AsyncIterator[Sample]:
        """Read every series; of those made of offsets, about `series_max` a metric."""
        for sample in self._registry.collect():
            if (made := self._as_shown(sample)) is not None:
                yield made
        for sample in self._now():
            yield sample
        earliest_ms = await self._store.cold_reader.run(self._earliest_ms)
        if earliest_ms > 0:
            yield Sample(shown.RESERVE_TIME, _DISK, self._now_ms() - earliest_ms)
        count = 0
        async for one in self._progress.each():
            for sample in self._behind(one):
                yield sample
            count += 1
            if count > series_max:  # one too many, so that it is known that some are left out
                return

    def _as_shown(self, sample: Sample) -> Sample | None:
        """A counted sample with Apache's labels; None for one that is not shown."""
        name, labels, value = sample.metric.name, sample.labels, sample.value
        if name in shown.NOT_SHOWN:
            return None
        metric = shown.AS_COUNTED.get(name)
        if metric is None:
            return sample
        if metric.labels == _DISK_LABELS:
            return Sample(metric, _DISK, value)
        topic = labels[0]
        if metric is shown.MESSAGES_TO_DLQ:
            return Sample(metric, (labels[1], topic, _flag(self._is_system(*labels))), value)
        if is_retry_topic(topic) or is_dlq_topic(topic):
            return None
        kind = self._type_of(topic) if metric.labels[1] == "message_type" else labels[1]
        return Sample(metric, (topic, kind, _flag(self._is_system(*labels))), value)

    def _now(self) -> Iterator[Sample]:
        """What is so now, without a look at the log."""
        yield Sample(shown.PERMISSION, (), self._permission())
        registry = self._registry
        used = registry.value(catalog.DISK_USED_RATIO)
        total = registry.value(catalog.DISK_TOTAL)
        yield Sample(shown.STORAGE_SIZE, _DISK, round(used * total))
        for topic, count in self._timers.waiting():
            yield Sample(shown.TIMING_MESSAGES, (topic,), count)
        yield from _counted(shown.PRODUCERS, self._producers())
        yield from _counted(shown.CONSUMERS, self._consumers())

    def _producers(self) -> Iterator[tuple[str, ...]]:
        for members in self._clients.producers.values():
            for member in members.values():
                yield *_client(member), _REMOTING

    def _consumers(self) -> Iterator[tuple[str, ...]]:
        for name, group in self._clients.consumers.items():
            mode, system = _MODES[group.consume_type], _flag(_is_system_group(name))
            for member in group.members.values():
                yield name, *_client(member), mode, _REMOTING, system

    def _behind(self, one: GroupProgress) -> Iterator[Sample]:
        """The series of one group and topic."""
        now_ms = self._now_ms()
        labels = (
            one.group,
            one.topic,
            _flag(is_retry_topic(one.topic)),
            _flag(self._is_system(one.topic, one.group)),
        )
        yield Sample(shown.LAG_MESSAGES, labels, one.lag)
        yield Sample(shown.LAG_LATENCY, labels, _age(now_ms, one.undone_ms))
        yield Sample(shown.IN_FLIGHT_MESSAGES, labels, one.in_flight)
        yield Sample(shown.QUEUEING_LATENCY, labels, _age(now_ms, one.unpulled_ms))
        yield Sample(shown.READY_MESSAGES, labels, one.ready)

    def _type_of(self, topic: str) -> str:
        config = self._topics.get(topic)
        declared = config.attributes.get(MESSAGE_TYPE, "") if config is not None else ""
        return _TYPES.get(declared, "normal")

    def _is_system(self, topic: str, group: str = "") -> bool:
        return self._topics.is_system(topic) or _is_system_group(group)

    def _earliest_ms(self, context: ReadContext) -> int:
        record = context.record_at(self._store.min_phy_offset)
        return log_record.decode(record).store_ms if record else -1


_DISK_LABELS = shown.FLUSH_BEHIND.labels


def _counted(metric: Metric, rows: Iterable[tuple[str, ...]]) -> Iterator[Sample]:
    for labels, count in sorted(Counter(rows).items()):
        yield Sample(metric, labels, count)


def _client(member: Member) -> tuple[str, str]:
    return language_name(member.language).lower(), version_name(member.version).lower()


def _is_system_group(group: str) -> bool:
    return group.upper().startswith(SYSTEM_GROUP_PREFIX)


def _age(now_ms: int, then_ms: int) -> int:
    return max(0, now_ms - then_ms) if then_ms else 0


def _flag(is_so: bool) -> str:
    return "true" if is_so else "false"
