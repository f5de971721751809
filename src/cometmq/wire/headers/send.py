"""Headers of SEND_MESSAGE (10), _V2 (310), SEND_BATCH_MESSAGE (320), replies (324, 325, 326).

V1 and V2 hold the same fields under the same names here; only on the wire V2 uses one letter each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cometmq.wire.headers.base import Header, Long, WireNames


@dataclass(slots=True, kw_only=True)
class SendMessageRequestHeader(Header):
    """A message to store (10, 324). `queue_id` below 0 lets the broker choose."""

    wire_names: ClassVar[WireNames] = {"broker_name": "bname"}
    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: Long
    flag: int
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool | None = None
    max_reconsume_times: int | None = None
    batch: bool | None = None
    broker_name: str | None = None


@dataclass(slots=True, kw_only=True)
class SendMessageRequestHeaderV2(SendMessageRequestHeader):
    """The same with one-letter names (310, 320, 325)."""

    wire_names: ClassVar[WireNames] = {
        "producer_group": "a",
        "topic": "b",
        "default_topic": "c",
        "default_topic_queue_nums": "d",
        "queue_id": "e",
        "sys_flag": "f",
        "born_timestamp": "g",
        "flag": "h",
        "properties": "i",
        "reconsume_times": "j",
        "unit_mode": "k",
        "max_reconsume_times": "l",
        "batch": "m",
        "broker_name": "n",
    }


@dataclass(slots=True, kw_only=True)
class SendMessageResponseHeader(Header):
    """Where the message lies. Clients need all three of the mandatory fields."""

    wire_names: ClassVar[WireNames] = {"msg_region": "MSG_REGION", "trace_on": "TRACE_ON"}
    msg_id: str
    queue_id: int
    queue_offset: Long
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    msg_region: str | None = None
    trace_on: bool | None = None


@dataclass(slots=True, kw_only=True)
class RecallMessageRequestHeader(Header):
    """A message at a time of its own to take back (370). `broker_name` is for proxies."""

    wire_names: ClassVar[WireNames] = {"broker_name": "bname"}
    producer_group: str | None = None
    topic: str
    recall_handle: str
    broker_name: str | None = None


@dataclass(slots=True, kw_only=True)
class RecallMessageResponseHeader(Header):
    """The UNIQ_KEY of the message that is taken back."""

    msg_id: str


@dataclass(slots=True, kw_only=True)
class ReplyMessageRequestHeader(Header):
    """A reply pushed to the client that asked (326)."""

    wire_names: ClassVar[WireNames] = {"broker_name": "bname"}
    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: Long
    flag: int
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool | None = None
    born_host: str
    store_host: str
    store_timestamp: Long
    broker_name: str | None = None
