"""The configuration of a consumer group at its broker, and RocketMQ's own groups.

Java: SubscriptionGroupConfig, GroupRetryPolicy, MixAll.
"""

from __future__ import annotations

from dataclasses import dataclass, field

INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
"""The producer group of messages that a client sends by itself, such as traces."""

TOOLS_GROUP = "TOOLS_CONSUMER"
"""The consumer group of operators' tools; it commits nothing."""

SYSTEM_GROUPS = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_ONSAPI_PULL",
)

GROUP_NAME_MAX = 120
"""Longest group name a client takes, characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRetryPolicy:
    """How long a message waits between attempts over POP.

    CUSTOMIZED: `next_ms` by attempt, the last one for all later. EXPONENTIAL: `initial_ms` times
    `multiplier` for each attempt, at most `max_ms`.
    """

    type: str = "CUSTOMIZED"
    next_ms: tuple[int, ...] | None = None
    initial_ms: int = 5_000
    max_ms: int = 7_200_000
    multiplier: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroupConfig:
    """A consumer group as its broker holds it; `dataclasses.replace` makes a changed one."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: GroupRetryPolicy = GroupRetryPolicy()
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    attributes: dict[str, str] = field(default_factory=dict)
