"""Commits of queues that are handled by key: first to the journal on disk, then to the broker.

Owns when the journal is written and when the broker is given an offset; knows nothing of slots,
handlers and lanes. Invariant: a broker gets an offset only after the journal holds it, so when the
queue comes back, the member knows whether the broker's offset is its own.
Java: nothing alike
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from cometmq.errors import CometError

if TYPE_CHECKING:
    from cometmq.client.consumer.consumer_options import ConsumerOptions
    from cometmq.client.handling.by_key_run import KeyQueueState
    from cometmq.client.offsets.offset_store import OffsetStore

log = logging.getLogger(__name__)

_COMMIT_S = 1.0
_WRITE_S = 0.05
"""A busy queue's journal is written so often: each write costs as much as a message."""


class KeyCommits:
    """Commits for the queues of one consumer. One loop owns it."""

    def __init__(self, options: ConsumerOptions, offsets: OffsetStore) -> None:
        self._offsets = offsets
        self._every_s = min(_COMMIT_S, options.persist_s)
        self._span_max = options.flow.span // 2

    def schedule_write(self, state: KeyQueueState) -> None:
        """Have the journal written once: at once, or `_WRITE_S` after it was written last."""
        if not state.is_write_scheduled:
            state.is_write_scheduled = True
            asyncio.get_running_loop().call_at(state.written_at + _WRITE_S, self.write, state)

    def write(self, state: KeyQueueState) -> None:
        """Append what was finished or has failed, unless another member may have the queue."""
        state.is_write_scheduled = False
        state.written_at = asyncio.get_running_loop().time()
        if not state.assigned.has_lost_lock:
            state.file.append(state.key_queue.take_journal_records())

    def is_due(self, state: KeyQueueState, now: float) -> bool:
        """Whether it is time to commit: by the clock, or since the queue is far ahead."""
        is_time = now >= state.committed_at + self._every_s
        return is_time or state.assigned.span > self._span_max

    async def commit(self, state: KeyQueueState) -> None:
        """Give the broker the lowest unfinished offset, unless it has that already.

        Never raises for a broker that does not answer: the next commit comes soon.
        """
        assigned, journal = state.assigned, state.file.journal
        async with state.commit_lock:
            self.write(state)
            offset, is_first = assigned.window.commit_offset, not state.committed_at
            if assigned.has_lost_lock or (offset == assigned.committed_offset and not is_first):
                return
            state.committed_at = asyncio.get_running_loop().time()
            state.file.append(journal.record_commit_begin(offset))
            try:
                await self._offsets.commit(assigned.queue, offset)
            except CometError as error:
                log.debug("the offset of %s is committed later: %s", assigned.queue, error)
                return
            # the pair of the record before the commit: from here on no older offset is ours
            state.file.append(journal.record_commit_done(offset))
            assert offset >= (assigned.committed_offset or 0), "commits never go backwards"
            assigned.committed_offset = offset
            if not assigned.is_dropped:
                self._offsets.remember(assigned.queue, offset)
