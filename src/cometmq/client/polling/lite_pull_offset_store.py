"""Offsets of a polling consumer: a message that was handed out is not consumed yet.

Invariant: nothing is committed that was not handed out, nor the batch handed out last, unless the
user says so.
Java: DefaultLitePullConsumerImpl.commitAll, updateConsumeOffset
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.client.offsets.local_offset_store import LocalOffsetStore
from cometmq.client.offsets.offset_store import OffsetStore

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.client.consumer.consumer_options import ConsumerOptions
    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.queue import MessageQueue
    from cometmq.runtime.clock_and_file_protocols import Files


class LitePullOffsetStore(OffsetStore):
    """Offsets that only `set_consumed` moves: a message handed out is not done yet."""

    def __init__(self, session: ClientSession, options: ConsumerOptions) -> None:
        super().__init__(session, options.group, options.consume_from, options.consume_timestamp_ms)
        self._starts: dict[MessageQueue, int] = {}

    def set_consumed(self, queue: MessageQueue, offset: int) -> None:
        """Note that the user is done with everything below `offset`."""
        self._memory[queue] = offset

    def consumed_offset(self, queue: MessageQueue) -> int | None:
        """The offset that was noted last, or None."""
        return self._memory.get(queue)

    def remember(self, queue: MessageQueue, offset: int) -> None:
        """Do nothing: a queue that was pulled is not consumed yet."""

    def reset(self, queue: MessageQueue, offset: int) -> None:
        """Start there when the queue is taken next, without committing it."""
        self._starts[queue] = offset

    async def start_offset(self, queue: MessageQueue) -> int:
        """The offset of the last `reset`, else as for every consumer."""
        found = self._starts.pop(queue, None)
        return await super().start_offset(queue) if found is None else found

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit the noted offset, whatever was pulled; do nothing when none was noted."""
        del offset
        noted = self._memory.get(queue)
        if noted is not None:
            await super().commit(queue, noted)


class LitePullLocalOffsetStore(LitePullOffsetStore, LocalOffsetStore):
    """The same in a file, for a group that is broadcast to."""

    def __init__(
        self, session: ClientSession, options: ConsumerOptions, folder: Path, files: Files
    ) -> None:
        LocalOffsetStore.__init__(self, session, options, folder, files)
        self._starts = {}
