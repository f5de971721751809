"""Locks by key: callers with the same key go one after the other, others run side by side.

Owns the queue of waiting callers of each key; refuses to know what is done under a lock.
Invariants: callers of one key acquire its lock in the order they asked. A caller that needs several
keys joins all their queues at one moment, so no two callers wait for each other. One loop owns it.
Every wait is bounded by the caller's deadline.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from cometmq.errors import RemotingTimeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Hashable, Iterable


class KeyLocks:
    """One lock per key in use; an unused key costs nothing."""

    def __init__(self) -> None:
        self._last: dict[Hashable, asyncio.Future[None]] = {}
        """Who is last in each key's line: a future that is done when that caller has released."""

    def try_acquire(self, key: Hashable) -> asyncio.Future[None] | None:
        """Acquire a free lock at once and return the token for `release`; None when it is taken."""
        if key in self._last:
            return None
        mine = self._last[key] = asyncio.get_running_loop().create_future()
        return mine

    def release(self, key: Hashable, mine: asyncio.Future[None]) -> None:
        """Let the next caller of the key go on."""
        if not mine.done():
            mine.set_result(None)
        if self._last.get(key) is mine:
            del self._last[key]

    @asynccontextmanager
    async def acquire(self, key: Hashable, deadline: float) -> AsyncIterator[None]:
        """Hold the key's lock for a block; raises RemotingTimeout when the deadline comes first."""
        before = self._last.get(key)
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last[key] = mine
        try:
            if before is not None:
                await self.wait(before, deadline)
            yield
        finally:
            self.release_after(before, key, mine)

    def reserve(self, keys: Iterable[Hashable]) -> KeyReservation:
        """Join the lines of several keys now, to wait for them later.

        `keys` has each key once. The caller must `release_all` in the end.
        """
        new = asyncio.get_running_loop().create_future
        places: dict[Hashable, tuple[asyncio.Future[None] | None, asyncio.Future[None]]] = {}
        for key in keys:
            assert key not in places, "a caller that reserves a key twice would wait for itself"
            mine = new()
            places[key] = (self._last.get(key), mine)
            self._last[key] = mine
        return KeyReservation(self, places)

    def release_after(
        self, before: asyncio.Future[None] | None, key: Hashable, mine: asyncio.Future[None]
    ) -> None:
        """Release, but let the next caller not overtake those who are still ahead of this one."""
        if before is None or before.done():
            self.release(key, mine)
        else:
            before.add_done_callback(lambda _: self.release(key, mine))

    async def wait(self, before: asyncio.Future[None], deadline: float) -> None:
        """Wait until the caller ahead has released; raises RemotingTimeout at the deadline."""
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.shield(before)
        except TimeoutError:
            raise RemotingTimeout("earlier sends of the same key took all the time given") from None


class KeyReservation:
    """The places of one caller in the lines of several keys. Made by `KeyLocks.reserve`."""

    def __init__(
        self,
        locks: KeyLocks,
        places: dict[Hashable, tuple[asyncio.Future[None] | None, asyncio.Future[None]]],
    ) -> None:
        self._locks = locks
        self._places = places

    async def wait(self, keys: Iterable[Hashable], deadline: float) -> None:
        """Wait until all who were ahead in these keys have released; raises RemotingTimeout."""
        for key in keys:
            before, _ = self._places[key]
            if before is not None and not before.done():
                await self._locks.wait(before, deadline)

    def release(self, keys: Iterable[Hashable]) -> None:
        """Let the next callers of these keys go on."""
        for key in keys:
            before, mine = self._places.pop(key)
            self._locks.release_after(before, key, mine)

    def release_all(self) -> None:
        """Release every key that was not released yet."""
        self.release(list(self._places))
