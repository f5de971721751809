"""What administrators see: offsets of topics and groups, and what a consumer reports.

Java: TopicStatsTable, ConsumeStats, OffsetWrapper, QueueTimeSpan, ConsumerRunningInfo,
ProcessQueueInfo, ConsumeStatus, ConsumeMessageDirectlyResult.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cometmq.model.queue import MessageQueue
    from cometmq.model.subscription import SubscriptionData


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOffset:
    """The offsets of one queue; `last_update_timestamp` is the last message's store time, ms."""

    min_offset: int
    max_offset: int
    last_update_timestamp: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProgress:
    """How far a group has come in one queue; the lag is `broker_offset - consumer_offset`."""

    broker_offset: int
    consumer_offset: int
    pull_offset: int = 0
    last_timestamp: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeStats:
    """How far a group has come on one broker, and how fast (messages a second)."""

    offset_table: dict[MessageQueue, QueueProgress] = field(default_factory=dict)
    consume_tps: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTimeSpan:
    """Store times (ms) of a queue's first and last message and of the last consumed one."""

    message_queue: MessageQueue
    min_time_stamp: int
    max_time_stamp: int
    consume_time_stamp: int
    delay_time: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessQueueInfo:
    """The state of one queue in a consumer. Times in ms since the epoch."""

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mib: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    dropped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConsumeRates:
    """Rates of one topic in one consumer (Java: ConsumeStatus): times in ms, rates a second."""

    pull_rt: float = 0.0
    pull_tps: float = 0.0
    consume_rt: float = 0.0
    consume_ok_tps: float = 0.0
    consume_failed_tps: float = 0.0
    consume_failed_msgs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRunningInfo:
    """What one consumer reports about itself."""

    properties: dict[str, str] = field(default_factory=dict)
    subscriptions: tuple[SubscriptionData, ...] = ()
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    status_table: dict[str, TopicConsumeRates] = field(default_factory=dict)
    jstack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeMessageDirectlyResult:
    """The result of a consumer that was asked to handle one message."""

    consume_result: str
    order: bool = False
    auto_commit: bool = True
    remark: str | None = None
    spent_time_ms: int = 0


class ProducerInfo(NamedTuple):
    """One connection of a producer group; `seen_ms` is when its last heartbeat came."""

    client_id: str
    remote_addr: str
    language: str
    version: int
    seen_ms: int


class TrafficFigures(NamedTuple):
    """How many messages went by: in the last minute a second, and in the last day."""

    per_second: float
    in_day: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTraffic:
    """What came into a topic, and what each group was given of it."""

    written: TrafficFigures
    read: dict[str, TrafficFigures] = field(default_factory=dict)
