"""Queues that stand still since their first message keeps failing: who, since when, why.

Owns the table and when the log hears of it; refuses to know what is tried next. Invariant: a queue
is in the table from the first failure of its head until that is done, buried or given away.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cometmq.model.results import BlockedQueue

if TYPE_CHECKING:
    from cometmq.model.message import MessageExt
    from cometmq.model.queue import MessageQueue
    from cometmq.runtime.ports import Clock

log = logging.getLogger(__name__)

_FIRST_WORD_MS, _WORD_EVERY_MS = 10_000, 300_000


class BlockedQueues:
    """The queues of one consumer that stand still. One loop owns it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._table: dict[MessageQueue, BlockedQueue] = {}
        self._next_word_ms: dict[MessageQueue, int] = {}

    def record_failure(self, queue: MessageQueue, message: MessageExt, reason: str) -> None:
        """Note one more failure of a queue's first message; the log hears of it now and then."""
        now_ms, known = self._clock.now_ms(), self._table.get(queue)
        if known is None or known.queue_offset != message.queue_offset:
            known = BlockedQueue(
                queue, message.queue_offset, message.msg_id, message.reconsume_times, now_ms, ""
            )
            self._next_word_ms[queue] = now_ms + _FIRST_WORD_MS
        one = self._table[queue] = known._replace(attempts=known.attempts + 1, reason=reason)
        if now_ms >= self._next_word_ms[queue]:
            age_ms = now_ms - one.since_ms
            self._next_word_ms[queue] = now_ms + min(age_ms, _WORD_EVERY_MS)
            log.warning("%s is blocked: %s", queue, describe(one, now_ms))

    def unblock(self, queue: MessageQueue) -> None:
        """Note that the queue goes on."""
        one = self._table.pop(queue, None)
        if one is not None and self._clock.now_ms() >= one.since_ms + _FIRST_WORD_MS:
            log.warning("%s goes on after: %s", queue, describe(one, self._clock.now_ms()))
        self._next_word_ms.pop(queue, None)

    def forget(self, queue: MessageQueue) -> None:
        """Drop a queue that is no longer ours, without a word."""
        self._table.pop(queue, None)
        self._next_word_ms.pop(queue, None)

    def all(self) -> list[BlockedQueue]:
        """The queues that stand still now, the oldest first."""
        return sorted(self._table.values(), key=lambda one: one.since_ms)

    def running_info(self) -> dict[str, str]:
        """The same as texts for the running info, by the queue's name."""
        now_ms = self._clock.now_ms()
        return {
            f"BLOCKED_{one.queue.topic}@{one.queue.broker_name}@{one.queue.queue_id}": describe(
                one, now_ms
            )
            for one in self.all()
        }


def describe(one: BlockedQueue, now_ms: int) -> str:
    """One line about a queue that stands still."""
    age_s = (now_ms - one.since_ms) / 1000
    return (
        f"message {one.msg_id} at offset {one.queue_offset} has failed {one.attempts} time(s) in "
        f"{age_s:.0f} s, at last with {one.reason}"
    )
