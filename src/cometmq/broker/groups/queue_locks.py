"""Queue locks: which client of an orderly group holds which queue, and until when.

Owns the table of locks, in memory only: after a restart every member asks again. A lock belongs to
a client id, lives for `live_ms` after its last request and is re-entrant; setting the wall clock
changes nothing. It ends sooner when its client unlocks it or leaves the group, and with the
connection where the client has promised to begin nothing after that. Where a client has asked over
several connections, as after a reconnect, all of them must end: an old connection's late unlock, or
its end, does not touch what was locked again over a new one.
Invariant: at any time a queue has at most one unexpired holder in a group.
Java: RebalanceLockManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.model.queue_lock import EarlyUnlockCause, LockHolder

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from cometmq.model.queue import MessageQueue

LIVE_MS = 60_000
"""How long a lock lives unless it is asked for again."""

LOCKS_MAX = 100_000
"""Locks kept for one group; beyond it new ones are refused."""

GROUPS_MAX = 100_000
"""Groups that may hold locks; beyond it further ones get none."""

LOCKS_TOTAL_MAX = 200_000
"""Locks kept for all groups: 160 MB; beyond it new ones are refused."""

LOOK_MS = 10_000
"""How often a full table is looked through for locks that have expired."""

CONNECTIONS_MAX = 8
"""Connections noted for one lock; one that is asked for over still more ends by its time alone."""


class QueueLock:
    """Who holds a queue, since when, when they last asked for it, and over which connections."""

    __slots__ = ("asked_ms", "client_id", "ends", "taken_ms")

    def __init__(self, client_id: str, now_ms: int) -> None:
        self.client_id = client_id
        self.taken_ms = self.asked_ms = now_ms
        self.ends: dict[Hashable, EarlyUnlockCause] = {}
        """What was asked for, by connection; None stands for those that are gone."""


class QueueLocks:
    """The locks of all groups. Owned by the broker's loop."""

    def __init__(self, monotonic_ms: Callable[[], int], live_ms: int = LIVE_MS) -> None:
        self._monotonic_ms = monotonic_ms
        self.live_ms = live_ms
        self._groups: dict[str, dict[MessageQueue, QueueLock]] = {}
        self._asked: dict[Hashable, dict[str, set[MessageQueue]]] = {}
        self._count = 0
        self._looked_ms: int | None = None

    def lock(
        self,
        group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        connection: Hashable = None,
        end: EarlyUnlockCause = EarlyUnlockCause.LEAVING,
    ) -> list[MessageQueue]:
        """Lock what is free, expired or already the client's; return what it holds of `queues`."""
        locks = self._groups.get(group, {})
        if not locks and len(self._groups) >= GROUPS_MAX:
            return []
        now_ms, held = self._monotonic_ms(), []
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and not self._is_live(lock, now_ms):
                self._remove(group, queue)
                lock = None
            if lock is not None and lock.client_id != client_id:
                continue
            if lock is None:
                is_full = len(locks) >= LOCKS_MAX or self._count >= LOCKS_TOTAL_MAX
                if is_full and not self._drop_expired(now_ms):
                    continue
                locks = self._groups.setdefault(group, locks)
                lock = locks[queue] = QueueLock(client_id, now_ms)
                self._count += 1
            lock.asked_ms = now_ms
            self._note(group, queue, lock, connection, end)
            held.append(queue)
        return held

    def unlock(
        self,
        group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        connection: Hashable = None,
    ) -> None:
        """Release those of `queues` that this client holds; others' locks stay."""
        for queue in queues:
            lock = self._groups.get(group, {}).get(queue)
            if lock is not None and lock.client_id == client_id:
                promised = {
                    at for at, end in lock.ends.items() if end is EarlyUnlockCause.CONNECTION
                }
                self._keep_ends(group, queue, lock, promised - {connection})

    def leave(self, group: str, connection: Hashable) -> None:
        """Release what was asked for over a connection whose client leaves the group."""
        for queue in list(self._asked.get(connection, {}).get(group, ())):
            lock = self._groups[group][queue]
            kept = {
                at
                for at, end in lock.ends.items()
                if end is EarlyUnlockCause.TIME
                or (end is EarlyUnlockCause.CONNECTION and at != connection)
            }
            self._keep_ends(group, queue, lock, kept)

    def end_connection(self, connection: Hashable, *, by_client: bool) -> None:
        """Release what was promised to end with a connection that its client's side has ended.

        A connection that ended here, or for an unknown reason, may seem alive at the client's:
        then nothing is released. Other locks keep their time in any case.
        """
        for group, queues in self._asked.pop(connection, {}).items():
            for queue in queues:
                lock = self._groups[group][queue]
                end = lock.ends.pop(connection)
                if end is not EarlyUnlockCause.CONNECTION or not by_client:
                    _note_gone(
                        lock, EarlyUnlockCause.TIME if end is EarlyUnlockCause.CONNECTION else end
                    )
                elif not lock.ends:
                    self._remove(group, queue)

    def is_any_held(self, group: str) -> bool:
        """Whether any queue is locked for the group: it is consuming in order."""
        locks = self._groups.get(group)
        if locks is None:
            return False
        now_ms = self._monotonic_ms()
        return any(self._is_live(lock, now_ms) for lock in locks.values())

    def holder(self, group: str, queue: MessageQueue) -> LockHolder | None:
        """Who holds the queue now."""
        lock, now_ms = self._groups.get(group, {}).get(queue), self._monotonic_ms()
        if lock is None or not self._is_live(lock, now_ms):
            return None
        left_ms = lock.asked_ms + self.live_ms - now_ms
        return LockHolder(lock.client_id, now_ms - lock.taken_ms, left_ms)

    def _is_live(self, lock: QueueLock, now_ms: int) -> bool:
        return now_ms - lock.asked_ms <= self.live_ms

    def _note(
        self,
        group: str,
        queue: MessageQueue,
        lock: QueueLock,
        connection: Hashable,
        end: EarlyUnlockCause,
    ) -> None:
        """Note how a connection asked for a lock."""
        if connection is None or (
            connection not in lock.ends and len(lock.ends) >= CONNECTIONS_MAX
        ):
            _note_gone(lock, end if connection is None else EarlyUnlockCause.TIME)
            return
        lock.ends[connection] = end
        self._asked.setdefault(connection, {}).setdefault(group, set()).add(queue)

    def _keep_ends(
        self, group: str, queue: MessageQueue, lock: QueueLock, kept: set[Hashable]
    ) -> None:
        """Forget what was asked for over other connections; without any the lock is free."""
        for connection in lock.ends.keys() - kept:
            del lock.ends[connection]
            self._forget_asked(group, queue, connection)
        if not lock.ends:
            self._remove(group, queue)

    def _remove(self, group: str, queue: MessageQueue) -> None:
        locks = self._groups[group]
        for connection in locks.pop(queue).ends:
            self._forget_asked(group, queue, connection)
        self._count -= 1
        if not locks:
            del self._groups[group]

    def _forget_asked(self, group: str, queue: MessageQueue, connection: Hashable) -> None:
        groups = self._asked.get(connection)
        if groups is not None and group in groups:
            groups[group].discard(queue)
            if not groups[group]:
                del groups[group]
            if not groups:
                del self._asked[connection]

    def _drop_expired(self, now_ms: int) -> bool:
        """Make room; whether there is any. The table is looked through now and then only."""
        if self._looked_ms is not None and now_ms - self._looked_ms < LOOK_MS:
            return False
        self._looked_ms = now_ms
        expired = [
            (group, queue)
            for group, locks in self._groups.items()
            for queue, lock in locks.items()
            if not self._is_live(lock, now_ms)
        ]
        for group, queue in expired:
            self._remove(group, queue)
        return bool(expired)


def _note_gone(lock: QueueLock, end: EarlyUnlockCause) -> None:
    """Note what counts though its connection does not; TIME, once agreed, counts for good."""
    if lock.ends.get(None) is not EarlyUnlockCause.TIME:
        lock.ends[None] = end
