"""What a consumer group does at one moment: what `rules/diagnosis/bottleneck` compares of two.

Counts only grow, from a member's start on; the difference of two moments is what happened between
them. None stands for what a member does not say: Java's say less than ours.
Java: ConsumerRunningInfo, in part.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cometmq.model.admin_stats import ConsumerRunningInfo
    from cometmq.model.queue import MessageQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueWork:
    """One queue of a member."""

    position: int
    """The offset up to which everything is done."""
    cached: int = 0
    """Messages that were pulled and are not done."""
    limited_s: dict[str, float] = field(default_factory=dict)
    """How long a limit of flow control kept it from being pulled: "count", "size", "span"."""
    blocked: str = ""
    """What is known of the message or key that keeps failing and holds it up."""
    keys: dict[str, float] = field(default_factory=dict)
    """The keys of most of the messages that wait, each with its share of them."""
    lanes: int = 0
    """Different keys that wait, by key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberWork:
    """One member. `busy_s` is what its handlers took, all threads together."""

    order: str = "none"
    """How it handles messages: "none", "queue" or "key"."""
    threads: int = 20
    batch_size: int = 1
    busy: int | None = None
    """Handlers that run now."""
    is_paused: bool = False
    calls: float = 0.0
    busy_s: float = 0.0
    done: float = 0.0
    failed: float = 0.0
    pulled: float = 0.0
    retried: float = 0.0
    """Of these, messages that came again from the group's retry topic."""
    sent_back: float = 0.0
    sent_back_delay_s: float = 0.0
    """The delays of all that were sent back, added up."""
    not_sent_back: float = 0.0
    """Attempts to send a failed message back that no broker took."""
    cpu_s: float | None = None
    """What its process has computed."""
    pull_s: float = 0.0
    """What its pulls that found something took."""
    pulls: float = 0.0
    outages: tuple[str, ...] = ()
    """Topics whose circuit breaker is open."""
    lost: tuple[str, ...] = ()
    """Addresses to which it has lost its connection and has no new one."""
    lock_holders: dict[MessageQueue, str] = field(default_factory=dict)
    """Queues for whose lock it waits, and which client has it; "?": nobody says which."""
    queues: dict[MessageQueue, QueueWork] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMoment:
    """A connected member; without an answer `info` is None and `problem` says why."""

    client_id: str
    info: ConsumerRunningInfo | None = None
    work: MemberWork = field(default_factory=MemberWork)
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMoment:
    """A group with its members, queues and brokers."""

    group: str
    at_s: float
    """When, by any clock that goes evenly."""
    members: tuple[MemberMoment, ...] = ()
    ends: dict[MessageQueue, int] = field(default_factory=dict)
    """Where each queue of its topics ends; retry topics are left out."""
    committed: dict[MessageQueue, int] = field(default_factory=dict)
    unreadable: tuple[MessageQueue, ...] = ()
    """Queues of its topics that may not be read."""
    dead_brokers: dict[str, str] = field(default_factory=dict)
    """Brokers with its topics that do not answer, and what was met."""
    cold_reads: dict[str, float] = field(default_factory=dict)
    """Reads that waited for the disk, by broker; only brokers that say so."""
