"""Lanes: callers with the same key go one after the other, callers with others side by side.

Owns the queueing by key; refuses to know what is done in a lane. Invariants: callers of one key
enter in the order they asked; whoever needs several keys takes its places in all of them at one
moment, so no two wait for each other. One loop owns it. Bounded by the deadline of each caller.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from cometmq.errors import RemotingTimeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Hashable, Iterable


class Lanes:
    """One lane per key in use; an unused key costs nothing."""

    def __init__(self) -> None:
        self._last: dict[Hashable, asyncio.Future[None]] = {}

    def try_enter(self, key: Hashable) -> asyncio.Future[None] | None:
        """Enter at once where nobody else of the key is, to `leave` with it; None otherwise."""
        if key in self._last:
            return None
        mine = self._last[key] = asyncio.get_running_loop().create_future()
        return mine

    def leave(self, key: Hashable, mine: asyncio.Future[None]) -> None:
        """Let the next one of the key go."""
        if not mine.done():
            mine.set_result(None)
        if self._last.get(key) is mine:
            del self._last[key]

    @asynccontextmanager
    async def enter(self, key: Hashable, deadline: float) -> AsyncIterator[None]:
        """Wait for those of the same key who came first; raises RemotingTimeout at the deadline."""
        before = self._last.get(key)
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last[key] = mine
        try:
            if before is not None:
                await self.wait(before, deadline)
            yield
        finally:
            self.leave_after(before, key, mine)

    def take(self, keys: Iterable[Hashable]) -> Places:
        """Take a place behind whoever is in each of these lanes now; leave all of them in the end.

        Each key once.
        """
        new = asyncio.get_running_loop().create_future
        places = {}
        for key in keys:
            mine = new()
            places[key] = (self._last.get(key), mine)
            self._last[key] = mine
        return Places(self, places)

    def leave_after(
        self, before: asyncio.Future[None] | None, key: Hashable, mine: asyncio.Future[None]
    ) -> None:
        """Leave a lane, but let the next one not past those who are still before."""
        if before is None or before.done():
            self.leave(key, mine)
        else:
            before.add_done_callback(lambda _: self.leave(key, mine))

    async def wait(self, before: asyncio.Future[None], deadline: float) -> None:
        """Wait for the one before; raises RemotingTimeout at the deadline."""
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.shield(before)
        except TimeoutError:
            raise RemotingTimeout("earlier sends of the same key took all the time given") from None


class Places:
    """The places of one caller in several lanes. Made by `Lanes.take`."""

    def __init__(
        self,
        lanes: Lanes,
        places: dict[Hashable, tuple[asyncio.Future[None] | None, asyncio.Future[None]]],
    ) -> None:
        self._lanes, self._places = lanes, places

    async def wait(self, keys: Iterable[Hashable], deadline: float) -> None:
        """Wait until all who were before in these lanes have left; raises RemotingTimeout."""
        for key in keys:
            before, _ = self._places[key]
            if before is not None and not before.done():
                await self._lanes.wait(before, deadline)

    def leave(self, keys: Iterable[Hashable]) -> None:
        """Let the next ones of these keys go."""
        for key in keys:
            before, mine = self._places.pop(key)
            self._lanes.leave_after(before, key, mine)

    def leave_all(self) -> None:
        """Let the next ones of all keys go that were not left yet."""
        self.leave(list(self._places))
