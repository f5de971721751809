"""Headers of the requests a name server answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cometmq.wire.headers.base import Header, Long, WireNames


@dataclass(slots=True, kw_only=True)
class GetRouteInfoRequestHeader(Header):
    """Where a topic lives (105)."""

    topic: str
    accept_standard_json_only: bool | None = None


@dataclass(slots=True, kw_only=True)
class RegisterBrokerRequestHeader(Header):
    """A broker says that it is there (103); the body holds its topics."""

    wire_names: ClassVar[WireNames] = {"heartbeat_timeout_ms": "heartbeatTimeoutMillis"}
    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str | None = None
    broker_id: Long
    heartbeat_timeout_ms: Long | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: int = 0


@dataclass(slots=True, kw_only=True)
class RegisterBrokerResponseHeader(Header):
    """Answer to 103; a slave learns its master here."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@dataclass(slots=True, kw_only=True)
class UnRegisterBrokerRequestHeader(Header):
    """A broker leaves (104)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


@dataclass(slots=True, kw_only=True)
class QueryDataVersionRequestHeader(Header):
    """Does the name server know this version of a broker's topics (322)? It is in the body."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


@dataclass(slots=True, kw_only=True)
class QueryDataVersionResponseHeader(Header):
    """Answer to 322."""

    changed: bool


@dataclass(slots=True, kw_only=True)
class PutKVConfigRequestHeader(Header):
    """Store one text (100)."""

    namespace: str
    key: str
    value: str


@dataclass(slots=True, kw_only=True)
class GetKVConfigRequestHeader(Header):
    """Read one text (101)."""

    namespace: str
    key: str


@dataclass(slots=True, kw_only=True)
class GetKVConfigResponseHeader(Header):
    """Answer to 101."""

    value: str | None = None


@dataclass(slots=True, kw_only=True)
class DeleteKVConfigRequestHeader(Header):
    """Forget one text (102)."""

    namespace: str
    key: str


@dataclass(slots=True, kw_only=True)
class GetKVListByNamespaceRequestHeader(Header):
    """All texts of a namespace (219)."""

    namespace: str


@dataclass(slots=True, kw_only=True)
class WipeWritePermOfBrokerRequestHeader(Header):
    """Take a broker's topics out of writing (205)."""

    broker_name: str


@dataclass(slots=True, kw_only=True)
class WipeWritePermOfBrokerResponseHeader(Header):
    """Answer to 205."""

    wipe_topic_count: int


@dataclass(slots=True, kw_only=True)
class AddWritePermOfBrokerRequestHeader(Header):
    """Let a broker's topics be written again (327)."""

    broker_name: str


@dataclass(slots=True, kw_only=True)
class AddWritePermOfBrokerResponseHeader(Header):
    """Answer to 327."""

    add_topic_count: int


@dataclass(slots=True, kw_only=True)
class DeleteTopicFromNamesrvRequestHeader(Header):
    """Forget a topic's route (216), in one cluster or everywhere."""

    topic: str
    cluster_name: str | None = None


@dataclass(slots=True, kw_only=True)
class RegisterTopicRequestHeader(Header):
    """Make a topic known (217); the body is its route."""

    topic: str


@dataclass(slots=True, kw_only=True)
class GetTopicsByClusterRequestHeader(Header):
    """The topics of a cluster (224)."""

    cluster: str


@dataclass(slots=True, kw_only=True)
class GetBrokerMemberGroupRequestHeader(Header):
    """Who shares a broker name (901)."""

    cluster_name: str
    broker_name: str


@dataclass(slots=True, kw_only=True)
class BrokerHeartbeatRequestHeader(Header):
    """A light sign of life between registrations (904)."""

    wire_names: ClassVar[WireNames] = {"heartbeat_timeout_ms": "heartbeatTimeoutMills"}
    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Long | None = None
    epoch: int | None = None
    max_offset: Long | None = None
    confirm_offset: Long | None = None
    heartbeat_timeout_ms: Long | None = None
    election_priority: int | None = None


@dataclass(slots=True, kw_only=True)
class NotifyMinBrokerIdChangeRequestHeader(Header):
    """Name server to brokers of one name: this is the least id among you now (905)."""

    min_broker_id: Long | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
