"""Queue locks: which client of an orderly group holds which queue, and until when.

Owns the table of locks, in memory only: after a restart every member asks again. A lock belongs to
a client id, not to a connection, lives for `live_ms` after its last request and is re-entrant;
setting the wall clock changes nothing.
Invariant: at any time a queue has at most one unexpired holder in a group.
Java: RebalanceLockManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cometmq.model.queue import MessageQueue

LIVE_MS = 60_000
"""How long a lock lives unless it is asked for again."""

LOCKS_MAX = 100_000
"""Locks kept for one group; beyond it new ones are refused."""

GROUPS_MAX = 100_000
"""Groups that may hold locks; beyond it further ones get none."""


class QueueLock(NamedTuple):
    """Who holds a queue, and when they last asked for it."""

    client_id: str
    asked_ms: int


class QueueLocks:
    """The locks of all groups. Owned by the broker's loop."""

    def __init__(self, monotonic_ms: Callable[[], int], live_ms: int = LIVE_MS) -> None:
        self._monotonic_ms = monotonic_ms
        self.live_ms = live_ms
        self._groups: dict[str, dict[MessageQueue, QueueLock]] = {}

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> list[MessageQueue]:
        """Lock what is free, expired or already the client's; return what it holds of `queues`."""
        now_ms, locks = self._monotonic_ms(), self._groups.get(group, {})
        held = []
        for queue in queues:
            lock = locks.get(queue)
            if lock and lock.client_id != client_id and self._is_live(lock, now_ms):
                continue
            if lock is None and len(locks) >= LOCKS_MAX and not self._drop_expired(locks, now_ms):
                continue
            locks[queue] = QueueLock(client_id, now_ms)
            held.append(queue)
        if held and group not in self._groups:
            if len(self._groups) >= GROUPS_MAX:
                return []
            self._groups[group] = locks
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release those of `queues` that this client holds; others' locks stay."""
        locks = self._groups.get(group)
        if locks is None:
            return
        for queue in queues:
            lock = locks.get(queue)
            if lock and lock.client_id == client_id:
                del locks[queue]
        if not locks:
            del self._groups[group]

    def is_any_held(self, group: str) -> bool:
        """Whether any queue is locked for the group: it is consuming in order."""
        locks = self._groups.get(group)
        if locks is None:
            return False
        now_ms = self._monotonic_ms()
        return any(self._is_live(lock, now_ms) for lock in locks.values())

    def holder(self, group: str, queue: MessageQueue) -> str | None:
        """The client id that holds the queue now."""
        lock = self._groups.get(group, {}).get(queue)
        return lock.client_id if lock and self._is_live(lock, self._monotonic_ms()) else None

    def _is_live(self, lock: QueueLock, now_ms: int) -> bool:
        return now_ms - lock.asked_ms <= self.live_ms

    def _drop_expired(self, locks: dict[MessageQueue, QueueLock], now_ms: int) -> bool:
        expired = [queue for queue, lock in locks.items() if not self._is_live(lock, now_ms)]
        for queue in expired:
            del locks[queue]
        return bool(expired)
