"""The configuration of a topic at its broker, and the names of RocketMQ's own topics.

Whether a name is allowed is decided in `rules`.
Java: TopicConfig, DataVersion, PermName, TopicValidator, MixAll.
"""

from __future__ import annotations

from dataclasses import dataclass, field

PERM_PRIORITY = 8
PERM_READ = 4
PERM_WRITE = 2
PERM_INHERIT = 1
"""Topics that a send creates take their settings from a topic with this bit."""

OF_UNIT, SUBSCRIBED_BY_UNIT = 1, 2
"""Bits of a topic's sysFlag: it belongs to a unit (RocketMQ's word for one of several sites that
share topics), and a group of a unit reads it."""

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
LIGHT_PREFIX = "%LMQ%"
SYSTEM_PREFIX = "rmq_sys_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"

DEFAULT_TOPIC = "TBW102"
"""The topic whose settings a new topic takes; its route is what a producer asks for then."""
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC = "BenchmarkTest"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OP_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
"""Created by release 5.5 for another implementation of transactions, which we do not have."""
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
REPLY_TOPIC_SUFFIX = "_REPLY_TOPIC"
REVIVE_TOPIC_PREFIX = "rmq_sys_REVIVE_LOG_"
ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""The name server's namespace for order topics."""

SYSTEM_TOPICS = frozenset(
    {
        DEFAULT_TOPIC,
        SELF_TEST_TOPIC,
        BENCHMARK_TOPIC,
        OFFSET_MOVED_TOPIC,
        SCHEDULE_TOPIC,
        TRACE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_OP_HALF_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        CHECKPOINT_TOPIC,
        TIMER_TOPIC,
    }
)
SEND_FORBIDDEN_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_OP_HALF_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        TIMER_TOPIC,
    }
)

ORDER_ATTRIBUTE = "comet.order"
"""The attribute of a topic in global order; ours, but RocketMQ's brokers keep it, too."""
GLOBAL = "global"

PERMS = {"r": PERM_READ, "w": PERM_WRITE, "rw": PERM_READ | PERM_WRITE}
"""Permissions as people write them."""
QUEUES_MAX = 65_536
"""Most queues of one topic on one broker; clients and brokers refuse more."""
TOPIC_NAME_MAX = 127
"""Longest topic name, characters."""
RETRY_TOPIC_NAME_MAX = 255
"""Longest name of a retry or dead-letter topic."""
NAME_PATTERN = r"[%|a-zA-Z0-9_-]+"
"""The characters of topic and group names."""


def retry_topic_of(group: str) -> str:
    """Return the topic that holds a group's messages to be tried again."""
    return RETRY_PREFIX + group


def dlq_topic_of(group: str) -> str:
    """Return the topic with a group's dead letters."""
    return DLQ_PREFIX + group


def is_retry_topic(topic: str) -> bool:
    """Whether the topic holds some group's messages to be tried again."""
    return topic.startswith(RETRY_PREFIX)


def is_light_topic(topic: str) -> bool:
    """Whether the topic is named as light topics are, whose queues hold messages of others."""
    return topic.startswith(LIGHT_PREFIX)


def is_system_topic(topic: str) -> bool:
    """Whether the topic is RocketMQ's own, by its name."""
    return (
        topic in SYSTEM_TOPICS
        or topic.startswith(SYSTEM_PREFIX)
        or topic.endswith(REPLY_TOPIC_SUFFIX)
    )


def is_dlq_topic(topic: str) -> bool:
    """Whether the topic holds some group's dead letters."""
    return topic.startswith(DLQ_PREFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """A topic as its broker holds it; `dataclasses.replace` makes a changed one.

    Clients write to queues 0 to `write_queue_nums` - 1 and read 0 to `read_queue_nums` - 1.
    """

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = PERM_READ | PERM_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)


def is_in_global_order(config: TopicConfig) -> bool:
    """Whether the topic is in global order, so that it may have one queue only."""
    return config.attributes.get(ORDER_ATTRIBUTE) == GLOBAL


@dataclass(frozen=True, slots=True, kw_only=True)
class DataVersion:
    """The version of a table; a name server takes topics only when it differs."""

    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def next(self, now_ms: int) -> DataVersion:
        """Return the version after one more change."""
        return DataVersion(
            state_version=self.state_version, timestamp=now_ms, counter=self.counter + 1
        )
