"""Queues that are blocked since their first message keeps failing: which, since when, why.

Owns the table and when it is logged; knows nothing of what is tried next. Invariant: a queue is in
the table from the first failure of its head until that is done, given up, or the queue is lost.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cometmq.model.results import BlockedQueue

if TYPE_CHECKING:
    from cometmq.model.message import MessageExt
    from cometmq.model.queue import MessageQueue
    from cometmq.runtime.clock_and_file_protocols import Clock

log = logging.getLogger(__name__)

_LOG_AFTER_MS = 10_000
_LOG_EVERY_MS = 300_000


class BlockedQueues:
    """The blocked queues of one consumer. One loop owns it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._table: dict[MessageQueue, BlockedQueue] = {}
        self._since: dict[MessageQueue, int] = {}
        """Since when each queue is blocked, by the monotonic clock."""
        self._next_log_ms: dict[MessageQueue, int] = {}

    def record_failure(self, queue: MessageQueue, message: MessageExt, reason: str) -> None:
        """Note one more failure of a queue's first message; logged from time to time."""
        now_ms, known = self._clock.monotonic_ms(), self._table.get(queue)
        if known is None or known.queue_offset != message.queue_offset:
            wall_ms, attempts = self._clock.now_ms(), message.reconsume_times
            known = BlockedQueue(queue, message.queue_offset, message.msg_id, attempts, wall_ms, "")
            self._since[queue] = now_ms
            self._next_log_ms[queue] = now_ms + _LOG_AFTER_MS
        one = self._table[queue] = known._replace(attempts=known.attempts + 1, reason=reason)
        if now_ms >= self._next_log_ms[queue]:
            age_ms = now_ms - self._since[queue]
            self._next_log_ms[queue] = now_ms + min(age_ms, _LOG_EVERY_MS)
            log.warning("%s is blocked: %s", queue, describe(one, age_ms))

    def unblock(self, queue: MessageQueue) -> None:
        """Note that the queue goes on."""
        one = self._table.pop(queue, None)
        if one is not None and (age_ms := self._age_ms(queue)) >= _LOG_AFTER_MS:
            log.warning("%s is no longer blocked; it was: %s", queue, describe(one, age_ms))
        self.forget(queue)

    def forget(self, queue: MessageQueue) -> None:
        """Remove a queue that is no longer ours, and log nothing."""
        self._table.pop(queue, None)
        self._since.pop(queue, None)
        self._next_log_ms.pop(queue, None)

    def all(self) -> list[BlockedQueue]:
        """The queues that are blocked now, the longest blocked first."""
        return sorted(self._table.values(), key=lambda one: one.since_ms)

    def running_info(self) -> dict[str, str]:
        """The same as texts for the running info, by the queue's name."""
        return {
            f"BLOCKED_{one.queue.topic}@{one.queue.broker_name}@{one.queue.queue_id}": describe(
                one, self._age_ms(one.queue)
            )
            for one in self.all()
        }

    def _age_ms(self, queue: MessageQueue) -> int:
        return self._clock.monotonic_ms() - self._since[queue]


def describe(one: BlockedQueue, age_ms: int) -> str:
    """One line about a queue that is blocked for so long."""
    return (
        f"message {one.msg_id} at offset {one.queue_offset} has failed {one.attempts} time(s) in "
        f"{age_ms / 1000:.0f} s, at last with {one.reason}"
    )
