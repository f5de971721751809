"""What operators see of a consumer group: its members, its lag, and where it was moved.

Java: ConsumerConnection, ConsumeStats, RollbackStats.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cometmq.model.subscription import ConsumeFromWhere, ConsumeType, MessageModel

if TYPE_CHECKING:
    from cometmq.model.admin_stats import ConsumerRunningInfo
    from cometmq.model.queue import MessageQueue
    from cometmq.model.subscription import ClientConnection, SubscriptionData


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """One connected member of a group; `info` is what it reports of itself.

    Where it reports nothing, `info` is None and `problem` says why.
    """

    connection: ClientConnection
    info: ConsumerRunningInfo | None = None
    problem: str = ""

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that it has now, in order."""
        return sorted(self.info.mq_table) if self.info else []


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMembers:
    """The connected members of a group, by client id, and what the group has subscribed."""

    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    members: tuple[GroupMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLag:
    """How far a group is behind in one queue. Times are ms since 1970.

    `committed` is the next offset to read, None where the group has committed none; `position` is
    the same for a member that has begun and not committed yet.
    """

    queue: MessageQueue
    first_offset: int
    end_offset: int
    committed: int | None
    position: int | None
    in_flight: int = 0
    """Messages that were handed out and are not committed."""
    last_consumed_ms: int = 0
    """When the last message that is done was stored; 0: unknown."""
    owner: str | None = None
    """The client id of the member that has the queue; None: nobody says so."""

    @property
    def lag(self) -> int | None:
        """Messages that are there and not done; None while nobody knows where the group starts."""
        if self.position is None:
            return None
        return max(0, self.end_offset - max(self.position, self.first_offset))


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetMove:
    """Where a group was in a queue, and where it goes on; `before` is None without a commit."""

    queue: MessageQueue
    before: int | None
    after: int
