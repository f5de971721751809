"""The route of a topic: its brokers and queues, as a name server reports them.

Java: TopicRouteData, QueueData, BrokerData, ClusterInfo, BrokerMemberGroup.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MASTER_ID = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueData:
    """How many queues of the topic one broker name has, and their permissions."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerData:
    """The addresses behind a broker name; id 0 is the master."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str]
    enable_acting_master: bool = False
    zone_name: str | None = None

    @property
    def master(self) -> str | None:
        """The master's address, or None while there is none."""
        return self.broker_addrs.get(MASTER_ID)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRouteData:
    """All brokers and queues of one topic."""

    broker_datas: tuple[BrokerData, ...] = ()
    queue_datas: tuple[QueueData, ...] = ()
    order_topic_conf: str | None = None
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    """All brokers a name server knows, and which clusters they belong to."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict)
