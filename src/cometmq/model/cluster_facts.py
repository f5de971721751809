"""What was found by asking a cluster's servers and clients, one after the other.

Facts only; `rules/diagnosis` judges them. Java: none; mqadmin's commands ask for the
same, one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from cometmq.model.subscription import ConsumeType, MessageModel

if TYPE_CHECKING:
    from cometmq.model.admin_stats import ConsumerRunningInfo, QueueProgress
    from cometmq.model.queue import MessageQueue
    from cometmq.model.route import ClusterInfo, TopicRouteData


class Reachability(StrEnum):
    """How an address answered."""

    ANSWERS = "answers"
    BAD_ADDRESS = "no address"
    UNRESOLVED = "name not resolved"
    REFUSED = "refused"
    UNREACHABLE = "not reachable"
    SILENT = "silent"
    OTHER_PROTOCOL = "another protocol"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What one address answered, and what kind of server is there.

    `refusal` is what it said to the first question: empty when it answered that.
    """

    addr: str
    reachability: Reachability
    problem: str = ""
    refusal: str = ""
    is_broker: bool = False
    is_name_server: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerFacts:
    """A name server that was given, and the brokers that it knows."""

    server: ServerFacts
    clusters: ClusterInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """A broker at the address that name servers give for it.

    `runtime` is its answer to 28, `config` that to 26, both empty without one; `asked_ms` is this
    machine's wall clock at the answer to 28.
    """

    cluster: str
    broker_name: str
    broker_id: int
    server: ServerFacts
    runtime: dict[str, str] = field(default_factory=dict)
    config: dict[str, str] = field(default_factory=dict)
    asked_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFacts:
    """A member of a group; `info` is None when it did not answer, for the reason in `problem`."""

    client_id: str
    info: ConsumerRunningInfo | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """A consumer group with the members that are connected to any broker."""

    group: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    members: tuple[MemberFacts, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """All that was found.

    `left_out` says in words what was too much to be asked; `unreadable` has the address of each
    server with an answer that could not be read, and which answer that was.
    """

    name_servers: tuple[NameServerFacts, ...]
    brokers: tuple[BrokerFacts, ...] = ()
    routes: dict[str, TopicRouteData] = field(default_factory=dict)
    groups: tuple[GroupFacts, ...] = ()
    progress: dict[MessageQueue, QueueProgress] = field(default_factory=dict)
    """How far the groups are, where that was asked for; without a commit at the first offset."""
    left_out: tuple[str, ...] = ()
    unreadable: tuple[tuple[str, str], ...] = ()
