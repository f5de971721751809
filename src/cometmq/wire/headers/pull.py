"""Headers of PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361), and the bits of a pull's sysFlag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cometmq.wire.headers.base import Header, Long, WireNames

COMMIT_OFFSET = 1
"""`commit_offset` is an offset to commit."""
SUSPEND = 2
"""The request may wait for messages, up to `suspend_timeout_ms`."""
SUBSCRIPTION = 4
"""`subscription` carries the filter; otherwise the heartbeat's holds."""
CLASS_FILTER = 8
"""Obsolete filter by uploaded class."""
LITE_PULL = 16
"""The consumer assigns queues itself."""


@dataclass(slots=True, kw_only=True)
class PullMessageRequestHeader(Header):
    """Messages of one queue from `queue_offset` on; Java's broker misses none of those set here."""

    wire_names: ClassVar[WireNames] = {
        "suspend_timeout_ms": "suspendTimeoutMillis",
        "proxy_forward_client_id": "proxyFrowardClientId",
        "broker_name": "bname",
        "is_large": "cometLargePull",
        "large_count": "cometPullCount",
    }
    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: Long
    max_msg_nums: int
    sys_flag: int
    commit_offset: Long = 0
    suspend_timeout_ms: Long = 0
    subscription: str | None = None
    sub_version: Long = 0
    expression_type: str | None = None
    max_msg_bytes: int | None = None
    request_source: int | None = None
    proxy_forward_client_id: str | None = None
    broker_name: str | None = None
    is_large: bool | None = None
    """The reader takes more at once than the transfer limits allow; Apache's broker ignores it."""
    large_count: int | None = None
    """How many messages such a reader takes, where that is not `max_msg_nums`."""


@dataclass(slots=True, kw_only=True)
class PullMessageResponseHeader(Header):
    """Where to go on; needed with the codes 0, 19, 20 and 21 alike."""

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
    forbidden_type: int | None = None
