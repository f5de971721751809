"""The topics of this broker: their shapes, how they come to be, and where that is kept.

Owns the table of topics, its version (a name server takes topics only when it differs) and
config/topics.json; a change counts at once and is on disk when `writer` says so, before it is
answered. Refuses to know name servers: what registers topics there subscribes to changes.
Invariants: the system topics always exist; a topic that is being deleted is not made again.
Java: TopicConfigManager, TopicValidator.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from cometmq.broker.cluster.table_writer import TableWriter
from cometmq.errors import Reject
from cometmq.model import topic as names
from cometmq.model.topic import DataVersion, TopicConfig
from cometmq.net.rate_limited_log import RateLimitedLog
from cometmq.rules import permission
from cometmq.store.json_file import JsonTable
from cometmq.store.lost_tables import topic_of_queues
from cometmq.wire.bodies.topic import topic_fields, topic_table_of, version_fields
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cometmq.store.json_file import JsonFile
    from cometmq.store.message_store import MessageStore
    from cometmq.wire.bodies.topic import TopicTable

log = logging.getLogger(__name__)

TOPICS_MAX = 200_000
"""Topics of one broker; beyond it clients and administrators create none. The broker's own, and the
retry and dead-letter topics of its groups, are made in any case."""


class Topics:
    """All topics by name. Reading is a dict lookup; `writer` says when a change is on disk."""

    def __init__(
        self,
        file: JsonFile,
        now_ms: Callable[[], int],
        system: Sequence[TopicConfig] = (),
        *,
        auto_create: bool = True,
    ) -> None:
        self._now_ms = now_ms
        self.writer = TableWriter(file, "topics", self._snapshot)
        """When changes are on disk."""
        self.auto_create = auto_create
        """Whether the first send makes a topic."""
        self.leaving: set[str] = set()
        """Topics that are being deleted; the request that deletes them adds them here."""
        self.table: dict[str, TopicConfig] = {}
        self.version = DataVersion()
        self._entries = JsonTable("topicConfigTable", topic_fields)
        self._file = file
        self.generation = 0
        """Counts changes since the start; what was derived from a topic is stale when it moved."""
        self.system = frozenset(config.topic_name for config in system) | names.SYSTEM_TOPICS
        self._events = RateLimitedLog(log)
        self.on_change: list[Callable[[str], None]] = []
        """Called with the topic's name after each change."""
        self._load(file.load("topicConfigTable", topic_table_of), system)

    @property
    def is_from_backup(self) -> bool:
        """Whether the newest topics.json was lost: topics made last may be missing."""
        return self._file.is_from_backup

    def get(self, topic: str) -> TopicConfig | None:
        """The topic's shape, or None."""
        return self.table.get(topic)

    def is_system(self, topic: str) -> bool:
        """Whether the topic belongs to the broker itself."""
        return topic in self.system or topic.startswith(names.SYSTEM_PREFIX)

    def put(self, config: TopicConfig) -> bool:
        """Create or change a topic; False when it is the same already.

        Raises Reject (SYSTEM_BUSY) for one that is being deleted.
        """
        name = config.topic_name
        before = self.table.get(name)
        if before == config:
            return False
        if name in self.leaving:
            raise Reject(
                ResponseCode.SYSTEM_BUSY, f"the topic {name} is being deleted; try again later"
            )
        self.table[name] = config
        self._changed(name, before)
        return True

    def take_over(self, theirs: TopicTable) -> None:
        """Be what another broker's topics are, version included; ours of the system stay."""
        before, version = dict(self.table), self.version
        own = {name: each for name, each in before.items() if name in self.system}
        after = {**own, **theirs.topics}
        changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        if not changed and theirs.version == version:
            return
        self._set_all(after, theirs.version, changed)
        self.writer.record_change("", partial(self._set_all, before, version, changed))

    def _set_all(
        self, table: dict[str, TopicConfig], version: DataVersion, changed: Iterable[str]
    ) -> None:
        self.table.clear()
        self.table.update(table)
        self.version = version
        for name in changed:
            self._notify(name)

    def delete(self, topic: str) -> bool:
        """Forget a topic's shape; False when there was none."""
        before = self.table.pop(topic, None)
        if before is None:
            return False
        self._changed(topic, before)
        return True

    def require_room(self, count: int = 1) -> None:
        """Raise Reject where so many more topics would be more than `TOPICS_MAX`."""
        if len(self.table) + count > TOPICS_MAX:
            raise Reject(
                ResponseCode.SYSTEM_ERROR,
                f"this broker has {len(self.table)} topics, the limit is {TOPICS_MAX}: delete "
                "those that nobody uses",
            )

    def ensure(
        self, topic: str, queue_nums: int, *, order: bool = False, sys_flag: int = 0
    ) -> TopicConfig:
        """The topic, created readable and writable with `queue_nums` queues where it is missing."""
        config = self.table.get(topic)
        if config is None:
            config = TopicConfig(
                topic_name=topic,
                read_queue_nums=queue_nums,
                write_queue_nums=queue_nums,
                order=order,
                topic_sys_flag=sys_flag,
            )
            self.put(config)
        return config

    def create_for_send(
        self, topic: str, default_topic: str, queue_nums: int, *, unit_mode: bool
    ) -> TopicConfig | None:
        """Create a topic on its first send, after the one that lends its shape; None if it may not.

        It gets the lesser of `queue_nums` and the lender's write queues, and the lender's
        permissions but for the inherit bit. An unknown retry topic gets one queue in any case.
        Raises Reject where that would be no queue at all, or a topic too many.
        """
        lender = self.table.get(default_topic)
        if default_topic == names.DEFAULT_TOPIC and not self.auto_create:
            lender = None
        if lender and permission.is_inherited(lender.perm):
            queues = min(queue_nums, lender.write_queue_nums)
            if queues <= 0:
                raise Reject(
                    ResponseCode.INVALID_PARAMETER,
                    f"the topic {topic} cannot be created with {queues} queues; "
                    f"{queue_nums} were asked for, {default_topic} lends {lender.write_queue_nums}",
                )
            self.require_room()
            config = replace(
                lender,
                topic_name=topic,
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=lender.perm & ~names.PERM_INHERIT,
                topic_sys_flag=names.OF_UNIT if unit_mode else 0,
                attributes={},
            )
            self.put(config)
            return config
        if names.is_retry_topic(topic):
            self.require_room()
            return self.ensure(topic, 1, sys_flag=names.SUBSCRIBED_BY_UNIT if unit_mode else 0)
        return None

    def mark_ordered(self, topics: Iterable[str]) -> None:
        """Note that these topics are ordered, as name servers say; unknown ones are passed over.

        None loses the mark: name servers forget their order configuration.
        """
        for topic in topics:
            config = self.table.get(topic)
            if config is not None and not config.order:
                try:
                    self.put(replace(config, order=True))
                except Reject as refusal:
                    log.warning("the topic %s is not marked as ordered: %s", topic, refusal)

    def stamp(self) -> None:
        """Take a new version: the registration has changed though no topic has."""
        self._changed("", None)

    def _snapshot(self) -> Callable[[], bytes]:
        before: dict[str, object] = {"dataVersion": version_fields(self.version)}
        return partial(self._entries.encode, before, dict(self.table))

    def _load(self, stored: TopicTable | None, system: Sequence[TopicConfig]) -> None:
        if stored is not None:
            self.version = stored.version
            self.table.update(stored.topics)
        short = [config for config in system if self._lacks(config)]
        for config in short:
            self.table[config.topic_name] = config
        if short:
            self.version = self.version.next(self._now_ms())
            self.writer.write_now()

    def _lacks(self, config: TopicConfig) -> bool:
        """Whether a system topic is missing, or has too few queues for all delay levels."""
        present = self.table.get(config.topic_name)
        if present is None:
            return True
        is_schedule = config.topic_name == names.SCHEDULE_TOPIC
        return is_schedule and present.write_queue_nums < config.write_queue_nums

    def _changed(self, topic: str, before: TopicConfig | None) -> None:
        """Have a change written; it is taken back when that fails, at once with a Reject."""
        self.version = self.version.next(self._now_ms())
        what = "made" if before is None else "changed" if topic in self.table else "deleted"
        self._events.info("the topic %s is %s", topic, what)
        self.writer.record_change(topic, partial(self._take_back, topic, before))
        self._notify(topic)

    def _take_back(self, topic: str, before: TopicConfig | None) -> None:
        self.version = self.version.next(self._now_ms())
        self.table.pop(topic, None)
        if before is not None:
            self.table[topic] = before
        self._notify(topic)

    def _notify(self, topic: str) -> None:
        self.generation += 1
        for callback in self.on_change:
            callback(topic)


def end_deletions(store: MessageStore, topics: Topics) -> None:
    """Carry out the deletions that a crash cut short; say which topics only the store knows.

    Where the newest topics.json was lost, these are made again with the queues that they have.
    """
    for topic in store.deletion.unfinished():
        topics.delete(topic)
        store.delete_topic(topic)
    lost = {name for name in store.deletion.topics() if topics.get(name) is None}
    lost = {name for name in lost if not topics.is_system(name)}
    if lost and topics.is_from_backup:
        for name in sorted(lost):
            made = topic_of_queues(name, (id_ for topic, id_ in store.queues() if topic == name))
            topics.put(made)
            log.warning(
                "the topic %s, which topics.json does not name, is made again with the %d queues "
                "of which the store has messages",
                name,
                made.write_queue_nums,
            )
    elif lost:
        log.warning(
            "the store has messages of topics that topics.json does not name; they are kept "
            "until cleanUnusedTopic (316): %s",
            ", ".join(sorted(lost)[:10]),
        )


def system_topics(
    *,
    cluster: str,
    broker_name: str,
    levels: int,
    auto_create: bool = True,
    default_queue_nums: int = 8,
    cluster_topic: bool = True,
    broker_topic: bool = True,
    trace_topic: str | None = None,
) -> list[TopicConfig]:
    """The topics a broker makes at its start. `levels` is the number of delay levels."""
    read_write, inherit = permission.READ_WRITE, permission.READ_WRITE | names.PERM_INHERIT
    shapes = [
        (names.SELF_TEST_TOPIC, 1, read_write),
        (names.BENCHMARK_TOPIC, 1024, read_write),
        (cluster, 16, inherit if cluster_topic else names.PERM_INHERIT),
        (broker_name, 1, inherit if broker_topic else names.PERM_INHERIT),
        (names.OFFSET_MOVED_TOPIC, 1, read_write),
        (names.SCHEDULE_TOPIC, max(levels, 18), read_write),
        (cluster + names.REPLY_TOPIC_SUFFIX, 1, read_write),
        (names.REVIVE_TOPIC_PREFIX + cluster, 8, read_write),
        ("rmq_sys_SYNC_BROKER_MEMBER_" + broker_name, 1, names.PERM_INHERIT),
        (names.HALF_TOPIC, 1, read_write),
        (names.OP_HALF_TOPIC, 1, read_write),
        (names.ROCKSDB_HALF_TOPIC, 1, read_write),
        (names.ROCKSDB_OP_HALF_TOPIC, 1, read_write),
        (names.TIMER_TOPIC, 1, read_write),
    ]
    if auto_create:
        shapes.append((names.DEFAULT_TOPIC, default_queue_nums, inherit))
    if trace_topic:
        shapes.append((trace_topic, 1, read_write))
    return [
        TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
        for name, queues, perm in shapes
    ]
