"""Offsets of a group: kept at the brokers, remembered here between commits.

Reads, remembers and commits offsets, and knows where a group without an offset starts; knows
nothing of windows and locks. Invariant: a remembered offset only grows, except by `reset`.
Java: RemoteBrokerOffsetStore, RebalancePushImpl.computePullFromWhere
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cometmq.client.offsets.broker_offsets import BrokerOffsets
from cometmq.errors import RemotingError
from cometmq.model.results import ConsumeFrom
from cometmq.model.topic import is_retry_topic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.queue import MessageQueue

log = logging.getLogger(__name__)

_TIMEOUT_S = 5.0


class OffsetStore:
    """Offsets of one group. One loop owns it."""

    def __init__(
        self,
        session: ClientSession,
        group: str,
        consume_from: ConsumeFrom,
        timestamp_ms: int | None,
    ) -> None:
        self._brokers = BrokerOffsets(session, _TIMEOUT_S)
        self._group = group
        self._consume_from = consume_from
        self._timestamp_ms = timestamp_ms
        self._memory: dict[MessageQueue, int] = {}
        self._resets: set[MessageQueue] = set()

    def remember(self, queue: MessageQueue, offset: int) -> None:
        """Note that everything below `offset` is finished."""
        if offset > self._memory.get(queue, -1):
            self._memory[queue] = offset
            self._resets.discard(queue)

    def reset(self, queue: MessageQueue, offset: int) -> None:
        """Move to an offset, backwards too."""
        self._resets.add(queue)
        self._memory[queue] = offset

    def remembered_offset(self, queue: MessageQueue) -> int:
        """The offset noted last; 0 when there is none."""
        return self._memory.get(queue, 0)

    def was_reset(self, queue: MessageQueue) -> bool:
        """Whether nothing was noted of the queue since the last `reset`."""
        return queue in self._resets

    def forget(self, queue: MessageQueue) -> None:
        """Drop the noted offset: another member has the queue now."""
        self._memory.pop(queue, None)
        self._resets.discard(queue)

    async def start_offset(self, queue: MessageQueue) -> int:
        """Where to start: at the last reset, else at the committed offset, else by `consume_from`.

        Raises RemotingError, BrokerError or ProtocolError; the queue must not be read then.
        """
        if queue in self._memory:
            return self._memory[queue]
        committed = await self.committed(queue)
        if committed is not None:
            return committed
        if is_retry_topic(queue.topic):
            return 0
        return await self._first_offset(queue)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The offset the broker holds for the group, or None."""
        # by default brokers start a new group of a young queue at its first message
        set_zero = False if self._consume_from is ConsumeFrom.TIMESTAMP else None
        return await self._brokers.committed(self._group, queue, set_zero_if_not_found=set_zero)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit at the broker and wait for its response. Raises RemotingError or BrokerError."""
        await self._brokers.commit(self._group, queue, offset)

    def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Commit the noted offsets of these queues, without waiting for responses."""
        for queue in queues:
            offset = self._memory.get(queue)
            if offset is None:
                continue
            try:
                self._brokers.commit_oneway(self._group, queue, offset)
            except RemotingError as error:
                log.debug("the offset of %s stays unsaved for now: %s", queue, error)

    async def _first_offset(self, queue: MessageQueue) -> int:
        if self._consume_from is ConsumeFrom.FIRST:
            return 0
        if self._consume_from is ConsumeFrom.TIMESTAMP and self._timestamp_ms is not None:
            return await self._brokers.offset_at(queue, self._timestamp_ms)
        end = await self._brokers.max_offset(queue)
        if end:
            # Apache's brokers know of no start in an empty queue, but of one in a young queue: its
            # first messages may have come between our two questions.
            young = await self.committed(queue)
            return end if young is None else young
        return end
