"""Headers about live clients: heartbeat (34), unregister (35), who is there (38, 40), diagnosis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cometmq.wire.headers.base import Header, WireNames


@dataclass(slots=True, kw_only=True)
class HeartbeatResponseHeader(Header):
    """Answer to 34."""

    wire_names: ClassVar[WireNames] = {
        "is_support_heart_beat_v2": "IS_SUPPORT_HEART_BEAT_V2",
        "is_sub_change": "IS_SUB_CHANGE",
    }
    is_support_heart_beat_v2: bool = False
    is_sub_change: bool = True


@dataclass(slots=True, kw_only=True)
class UnregisterClientRequestHeader(Header):
    """A client leaves one producer group or one consumer group (35)."""

    wire_names: ClassVar[WireNames] = {"client_id": "clientID", "broker_name": "bname"}
    client_id: str
    producer_group: str | None = None
    consumer_group: str | None = None
    broker_name: str | None = None


@dataclass(slots=True, kw_only=True)
class GetConsumerListByGroupRequestHeader(Header):
    """The ids of a group's live clients (38)."""

    wire_names: ClassVar[WireNames] = {"broker_name": "bname"}
    consumer_group: str
    broker_name: str | None = None


@dataclass(slots=True, kw_only=True)
class NotifyConsumerIdsChangedRequestHeader(Header):
    """Broker to client: the group's members changed, rebalance now (40)."""

    consumer_group: str


@dataclass(slots=True, kw_only=True)
class GetConsumerRunningInfoRequestHeader(Header):
    """What a consumer is doing (307)."""

    wire_names: ClassVar[WireNames] = {"broker_name": "bname"}
    consumer_group: str
    client_id: str
    jstack_enable: bool | None = None
    broker_name: str | None = None


@dataclass(slots=True, kw_only=True)
class ConsumeMessageDirectlyResultRequestHeader(Header):
    """Let one consumer handle one stored message now (309)."""

    wire_names: ClassVar[WireNames] = {"broker_name": "brokerName"}
    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None


@dataclass(slots=True, kw_only=True)
class GetConsumerStatusRequestHeader(Header):
    """The offsets a group's clients hold (221 to the client, 223 to the broker)."""

    topic: str
    group: str
    client_addr: str | None = None
