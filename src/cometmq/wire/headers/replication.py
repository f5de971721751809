"""Headers of requests about replicas."""

from __future__ import annotations

from dataclasses import dataclass

from cometmq.wire.headers.base import Header, Long


@dataclass(slots=True, kw_only=True)
class NotifyBrokerRoleChangedRequestHeader(Header):
    """Tell a broker who the master is (1008); without an address, which epoch is about to begin."""

    master_address: str | None = None
    master_epoch: int | None = None
    sync_state_set_epoch: int | None = None
    master_broker_id: Long | None = None


@dataclass(slots=True, kw_only=True)
class GetBrokerEpochCacheRequestHeader(Header):
    """Ask for epochs (1007). RocketMQ's has no field: ours asks for the first one, too."""

    with_first: bool = False
