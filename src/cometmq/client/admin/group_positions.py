"""Where a group is in queues, how far behind, and how it is moved.

Owns what the numbers of several answers mean together; knows nothing of names that are wrong.
Invariant: a move is checked for all queues before the first one is made.
Java: DefaultMQAdminExtImpl.examineConsumeStats, resetOffsetByTimestamp
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.client.offsets.broker_offsets import BrokerOffsets
from cometmq.errors import ClientError
from cometmq.model.group_status import OffsetMove, QueueLag
from cometmq.settings import properties
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.headers.admin import ResetOffsetRequestHeader

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.admin_stats import QueueProgress, TopicOffset
    from cometmq.model.group_status import GroupMembers
    from cometmq.model.queue import MessageQueue

_AT_ONCE = 16
_MODE = "useServerSideResetOffset"


class GroupPositions:
    """One group's places in queues whose routes are known. Belongs to its session's loop."""

    def __init__(self, session: ClientSession, group: str) -> None:
        self._session = session
        self._group = group
        self._offsets = BrokerOffsets(session)
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def lags(
        self,
        bounds: Mapping[MessageQueue, TopicOffset],
        progress: Mapping[MessageQueue, QueueProgress],
        members: GroupMembers,
    ) -> list[QueueLag]:
        """The lag in each queue of `bounds`, in order; `progress` is what brokers say of it."""
        known = {queue: one for queue, one in progress.items() if one.consumer_offset > 0}
        # a progress of 0 also stands for no commit at all
        unsure = [queue for queue in bounds if queue not in known]
        committed = {queue: one.consumer_offset for queue, one in known.items()}
        asked = committed | await self.committed(unsure)
        owners = {queue: member for member in members.members for queue in member.queues}
        found: list[QueueLag] = []
        for queue, bound in sorted(bounds.items()):
            owner, done = owners.get(queue), known.get(queue)
            position = at = asked.get(queue)
            if position is None and owner is not None and owner.info is not None:
                begun = owner.info.mq_table[queue].commit_offset
                position = begun if begun >= 0 else None
            found.append(
                QueueLag(
                    queue=queue,
                    first_offset=bound.min_offset,
                    end_offset=bound.max_offset,
                    committed=at,
                    position=position,
                    in_flight=max(0, done.pull_offset - done.consumer_offset) if done else 0,
                    last_consumed_ms=done.last_timestamp if done else 0,
                    owner=owner.connection.client_id if owner else None,
                )
            )
        return found

    async def committed(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int | None]:
        """The committed offset in each of these queues, None where there is none."""
        wanted = list(queues)

        async def ask(queue: MessageQueue) -> int | None:
            async with self._slots:
                return await self._offsets.committed(self._group, queue)

        found = await asyncio.gather(*map(ask, wanted))
        return dict(zip(wanted, found, strict=True))

    async def at_time(self, queues: Iterable[MessageQueue], at_ms: int) -> dict[MessageQueue, int]:
        """The offset of the first message stored at a time or later, in each of these queues."""
        wanted = list(queues)

        async def ask(queue: MessageQueue) -> int:
            async with self._slots:
                return await self._offsets.offset_at(queue, at_ms)

        found = await asyncio.gather(*map(ask, wanted))
        return dict(zip(wanted, found, strict=True))

    async def planned(self, targets: Mapping[MessageQueue, int]) -> list[OffsetMove]:
        """The moves to these offsets, in order of the queues; nothing changes."""
        before = await self.committed(targets)
        return [
            OffsetMove(queue=queue, before=before[queue], after=after)
            for queue, after in sorted(targets.items())
        ]

    async def move(self, moves: Collection[OffsetMove], *, has_members: bool) -> None:
        """Make these moves. Raises ClientError before the first where that is left to members.

        A broker that does it itself also tells running members, with their next pull.
        """
        brokers = {one.queue.broker_name for one in moves}
        done_there = {broker: await self._resets(broker) for broker in sorted(brokers)}
        others = [broker for broker, is_done in done_there.items() if not is_done]
        if others and has_members:
            raise ClientError(
                f"the broker {others[0]} leaves a reset to the members ({_MODE} is not true), and "
                f"the group {self._group} has some: stop them first"
            )

        async def make(one: OffsetMove) -> None:
            async with self._slots:
                if done_there[one.queue.broker_name]:
                    await self._reset(one)
                else:
                    await self._offsets.commit(self._group, one.queue, one.after)

        await asyncio.gather(*map(make, moves))

    async def _resets(self, broker: str) -> bool:
        """Whether the broker moves groups itself; brokers before release 5 cannot."""
        addr = self._session.routes.master_addr(broker)
        command = request(RequestCode.GET_BROKER_CONFIG, 0)
        text = (await self._session.call_checked(addr, command)).body.decode("utf-8", "replace")
        found = {entry.key: entry.value for entry in properties.parse(text)}
        return found.get(_MODE, "").strip().lower() == "true"

    async def _reset(self, one: OffsetMove) -> None:
        header = ResetOffsetRequestHeader(
            topic=one.queue.topic,
            group=self._group,
            queue_id=one.queue.queue_id,
            offset=one.after,
            timestamp=-1,
            is_force=True,
        )
        addr = self._session.routes.master_addr(one.queue.broker_name)
        command = request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, 0, header)
        await self._session.call_checked(addr, command)


def within(offset: int, bound: TopicOffset) -> int:
    """The offset that is nearest to this one among those of the queue."""
    return min(max(offset, bound.min_offset), bound.max_offset)
