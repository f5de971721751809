"""Queues that wait for a lock of another member: whose it is, since when, and what the log says.

Owns the table of refused locks and when it is logged; knows nothing of requests. Invariant: a wait
of `LOG_AFTER_S` is logged, then less and less often, one line for all queues of a holder.
Java: nothing alike; its consumers wait in silence
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cometmq.model.queue import MessageQueue
    from cometmq.model.queue_lock import LockHolder

log = logging.getLogger(__name__)

LOG_AFTER_S = 2.0
"""A queue that another member gives away waits no longer than its handler takes."""
LOG_EVERY_MAX_S = 300.0
FORGET_S = 5.0
"""A lock that was not asked for in so long is not wanted any more; it is asked for every 0.5 s."""
_QUEUES_MAX = 8


class _Wait:
    """One queue that waits."""

    __slots__ = ("asked_at", "holder", "since")

    def __init__(self, now: float) -> None:
        self.since = self.asked_at = now
        self.holder: LockHolder | None = None


class LockWaits:
    """The refused locks of one consumer. One loop owns it; times are the loop's."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._table: dict[MessageQueue, _Wait] = {}
        self._next_log_at = 0.0
        self._pause_s = LOG_AFTER_S
        self._is_logged = False

    def refuse(self, queue: MessageQueue, holder: LockHolder | None, now: float) -> None:
        """Note that another member has a lock: who, if the broker says."""
        self._forget_old(now)
        if not self._table:
            self._pause_s, self._next_log_at = LOG_AFTER_S, now + LOG_AFTER_S
        wait = self._table.setdefault(queue, _Wait(now))
        wait.holder, wait.asked_at = holder, now

    def grant(self, queue: MessageQueue, now: float) -> None:
        """Note that a lock is ours."""
        wait = self._table.pop(queue, None)
        if wait is not None and self._is_logged:
            log.warning("got the lock of %s after %.0f s", queue, now - wait.since)
        if not self._table:
            self._is_logged = False

    def holders(self, now: float) -> dict[MessageQueue, str]:
        """For whose lock each queue waits that waits long ("?": the broker does not say)."""
        self._forget_old(now)
        return {
            queue: wait.holder.client_id if wait.holder else "?"
            for queue, wait in self._table.items()
            if now - wait.since >= LOG_AFTER_S
        }

    def report(self, now: float) -> None:
        """Log what waits, if it is time."""
        self._forget_old(now)
        if not self._table or now < self._next_log_at:
            return
        self._next_log_at = now + self._pause_s
        self._pause_s = min(self._pause_s * 2, LOG_EVERY_MAX_S)
        self._is_logged = True
        by_holder: dict[str | None, list[MessageQueue]] = defaultdict(list)
        for queue, wait in sorted(self._table.items()):
            by_holder[wait.holder and wait.holder.client_id].append(queue)
        for client_id, queues in by_holder.items():
            self._log(client_id, queues, now)

    def _log(self, client_id: str | None, queues: list[MessageQueue], now: float) -> None:
        waits = [self._table[queue] for queue in queues]
        names = ", ".join(str(queue) for queue in queues[:_QUEUES_MAX])
        if len(queues) > _QUEUES_MAX:
            names += f" and {len(queues) - _QUEUES_MAX} more"
        waited_s = now - min(wait.since for wait in waits)
        holders = [wait.holder for wait in waits if wait.holder is not None]
        if not holders:
            log.warning(
                "the group %s has waited %.0f s for the lock of %s: another member has it, the "
                "broker does not say which; one that has died keeps it for 60 s",
                self._group,
                waited_s,
                names,
            )
            return
        log.warning(
            "the group %s has waited %.0f s for the lock of %s: the client %s has held it for %.0f "
            "s and keeps it until it releases it, or for %.0f s without renewing it",
            self._group,
            waited_s,
            names,
            client_id,
            max(holder.held_ms for holder in holders) / 1000,
            max(holder.left_ms for holder in holders) / 1000,
        )

    def _forget_old(self, now: float) -> None:
        old = [q for q, wait in self._table.items() if now - wait.asked_at > FORGET_S]
        for queue in old:
            del self._table[queue]
