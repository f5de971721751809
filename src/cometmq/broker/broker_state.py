"""All that a broker remembers, read from disk at its start.

Owns the composition of what keeps state. Refuses to know requests: handlers are given the parts
that they work with. Java: the managers of BrokerController.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cometmq.broker.cluster.snapshot_requests import SnapshotRequests
from cometmq.broker.cluster.topics import Topics, end_deletions, system_topics
from cometmq.broker.delivery.check_back import CheckBack
from cometmq.broker.delivery.dead_letters import DeadLetterQueues
from cometmq.broker.delivery.delayed_messages import DelayedMessages, stored_places_of
from cometmq.broker.delivery.timer_messages import TimerMessages, timer_offset
from cometmq.broker.delivery.timer_schedule import TimerSchedule
from cometmq.broker.delivery.transactions import Transactions
from cometmq.broker.groups.client_registry import ClientRegistry
from cometmq.broker.groups.consumer_groups import ConsumerGroups
from cometmq.broker.groups.consumer_offsets import ConsumerOffsets
from cometmq.broker.groups.queue_locks import QueueLocks
from cometmq.broker.metrics.broker_stats import BrokerStats
from cometmq.broker.metrics.gauges import register_store, register_tables
from cometmq.broker.pulls.consumer_filters import ConsumerFilters, stored_filters_of
from cometmq.broker.pulls.held_requests import HeldRequests
from cometmq.broker.pulls.pull_long_polling import HeldPulls
from cometmq.broker.requests.large_tables import LargeTableAnswers
from cometmq.metrics.registry import MetricsRegistry
from cometmq.net.admission import ask_admission, found_admission
from cometmq.rules.filters import bloom_filter
from cometmq.runtime.time_slices import TimeSlices
from cometmq.store.json_file import JsonFile
from cometmq.store.timers.timer_index import TimerIndex
from cometmq.wire.bodies.group import group_table_of
from cometmq.wire.bodies.offset import stored_offsets_of
from cometmq.wire.bodies.topic import topic_table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Any

    from cometmq.access.server_access import ServerAccess
    from cometmq.model.topic import TopicConfig
    from cometmq.net.admission import Admission
    from cometmq.rules.delay_levels import DelayLevels
    from cometmq.runtime.clock_and_file_protocols import Clock, Files
    from cometmq.settings.broker import BrokerSettings
    from cometmq.settings.store import StoreSettings
    from cometmq.store.message_store import MessageStore


_TABLES: tuple[tuple[str, str, Callable[[Mapping[str, Any]], object]], ...] = (
    ("topics.json", "topicConfigTable", topic_table_of),
    ("subscriptionGroup.json", "subscriptionGroupTable", group_table_of),
    ("consumerOffset.json", "offsetTable", stored_offsets_of),
    ("delayOffset.json", "offsetTable", stored_places_of),
    ("consumerFilter.json", "filterDataByTopic", stored_filters_of),
)
"""Every table that is loaded once the store is open: its file, its name there, and its reader."""


class BrokerEnvironment:
    """What a broker is started with: settings, a directory, a clock and files."""

    def __init__(
        self,
        settings: BrokerSettings,
        store_settings: StoreSettings,
        root: Path,
        clock: Clock,
        files: Files,
        access: ServerAccess,
        admission: Admission | None = None,
    ) -> None:
        self.settings = settings
        """As at the start; whoever works with a live setting hears of later ones."""
        self.store_settings = store_settings
        self.clock = clock
        self.files = files
        self.access = access
        self.admission = admission
        self.root = root

    def config_file(self, name: str) -> JsonFile:
        """One table under config/."""
        return JsonFile(self.root / "config" / name, self.files)


def refuse_bad_tables(environment: BrokerEnvironment) -> None:
    """Raise StoreCorrupt where a table cannot be read, before a start deletes for want of room.

    Changes nothing. Each is read again by who owns it.
    """
    for name, table, read in _TABLES:
        environment.config_file(name).load(table, read)


class BrokerState:
    """All that the broker remembers, each piece with one owner. Read from disk when it is made."""

    def __init__(
        self, environment: BrokerEnvironment, store: MessageStore, levels: DelayLevels
    ) -> None:
        settings = environment.settings
        clock, file = environment.clock, environment.config_file
        now_ms = clock.now_ms
        self.topics = Topics(
            file("topics.json"),
            now_ms,
            _system_topics(settings, levels),
            auto_create=settings.auto_create_topic_enable,
        )
        self.groups = ConsumerGroups(
            file("subscriptionGroup.json"),
            now_ms,
            auto_create=settings.auto_create_subscription_group,
        )
        end_deletions(store, self.topics)
        self.large_tables = LargeTableAnswers(TimeSlices())
        self.offsets = ConsumerOffsets(
            file("consumerOffset.json"), now_ms, self.large_tables.time_slices
        )
        self.offsets.keep_only(self.topics.table.keys() | store.deletion.topics())
        self.offsets.keep_within(store.max_offset)
        self.delayed_messages = DelayedMessages(store, levels, file("delayOffset.json"), now_ms)
        self.timers = _timers(environment, store)
        self.timer_schedule = TimerSchedule(store, self.timers, environment.store_settings)
        self.timer_messages = TimerMessages(store, self.timers, now_ms)
        silence_ms = settings.channel_expired_timeout_ms
        self.clients = ClientRegistry(now_ms, clock.monotonic_ms, silence_ms)
        self.locks = QueueLocks(clock.monotonic_ms, settings.queue_lock_expire_ms)
        self.filters = _filters(environment)
        self.held_requests = HeldRequests(
            settings.held_pulls_max, settings.held_pulls_per_queue_max
        )
        self.held_pulls = HeldPulls(self.held_requests, settings)
        self.snapshots = SnapshotRequests(environment.files, environment.root, store, self.offsets)
        self.stats = BrokerStats(
            clock.monotonic_ms,
            clock.local_hour,
            self.topics.is_system,
            settings.broker_cluster_name,
        )
        self.metrics = MetricsRegistry()
        self.stats.register(self.metrics)
        register_store(self.metrics, store, environment.files)
        register_tables(self.metrics, self.topics, self.groups, self.held_requests)
        self.delayed_messages.on_delivered = self.stats.count_due
        self.timer_messages.on_delivered = self.stats.count_due
        self.dead_letters = DeadLetterQueues(
            store, self.topics, self.stats, deduplicate=settings.dead_letter_deduplicate
        )
        admit = found_admission(environment.admission)
        self.transactions = Transactions(
            store, self.delayed_messages, self.timer_schedule, self.stats, settings, admit
        )
        self.check_back = self._check_back(environment, store)

    def _check_back(self, environment: BrokerEnvironment, store: MessageStore) -> CheckBack:
        return CheckBack(
            store,
            self.topics,
            self.offsets,
            self.clients,
            self.transactions,
            environment.settings,
            environment.store_settings,
            ask_admission(environment.admission),
        )


def _timers(environment: BrokerEnvironment, store: MessageStore) -> TimerIndex:
    return TimerIndex(
        environment.files,
        environment.root,
        environment.store_settings,
        store.current_store_ms(),
        partial(timer_offset, store),
    )


def _filters(environment: BrokerEnvironment) -> ConsumerFilters:
    settings = environment.settings
    return ConsumerFilters(
        environment.config_file("consumerFilter.json"),
        environment.clock.now_ms,
        keep_ms=settings.filter_data_clean_time_span_ms,
        bloom_shape=bloom_filter.shape(
            settings.max_error_rate_of_bloom_filter, settings.expect_consumer_num_use_filter
        ),
    )


def _system_topics(settings: BrokerSettings, levels: DelayLevels) -> list[TopicConfig]:
    return system_topics(
        cluster=settings.broker_cluster_name,
        broker_name=settings.broker_name,
        levels=levels.max_level,
        auto_create=settings.auto_create_topic_enable,
        default_queue_nums=settings.default_topic_queue_nums,
        cluster_topic=settings.cluster_topic_enable,
        broker_topic=settings.broker_topic_enable,
        trace_topic=settings.msg_trace_topic_name if settings.trace_topic_enable else None,
    )
