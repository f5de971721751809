"""What the route registry hears of a broker, keeps of it, and says to others of it.

Values only. Java: RegisterBrokerBody, BrokerLiveInfo, RegisterBrokerResult.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cometmq.model.topic import DataVersion, TopicConfig


class BrokerId(NamedTuple):
    """Which registration is meant."""

    cluster: str
    broker_name: str
    broker_id: int
    addr: str


class RegisterBrokerResult(NamedTuple):
    """What a slave learns from its registration; both None for a master."""

    master_addr: str | None = None
    ha_server_addr: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """What a broker registers. `has_acting_master` None: it is too old to know what that is."""

    who: BrokerId
    topics: Mapping[str, TopicConfig]
    version: DataVersion
    timeout_ms: int | None = None
    ha_server_addr: str | None = None
    has_acting_master: bool | None = None
    zone: str | None = None
    filter_servers: list[str] = field(default_factory=list)


class MinBrokerIdChange(NamedTuple):
    """The least id of a broker name is another one now, and who is to hear of it."""

    broker_name: str
    min_id: int
    min_addr: str
    notified: list[str]
    offline_addr: str | None = None
    ha_addr: str | None = None


@dataclass(slots=True)
class BrokerLiveInfo:
    """A registered address and its last sign of life."""

    who: BrokerId
    last_ms: int
    timeout_ms: int
    version: DataVersion
    ha_server_addr: str | None
    owner: object
    fingerprint: object = None
