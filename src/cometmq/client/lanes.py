"""Lanes: callers with the same key go one after the other, callers with others side by side.

Owns the queueing by key; refuses to know what is done in a lane. Invariant: callers of one key
enter in the order they asked. One loop owns it. Bounded by the deadline of each caller.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from cometmq.errors import RemotingTimeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Hashable


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
                await self._wait(before, deadline)
            yield
        finally:
            # whoever gives up while waiting must not let the next one past those before it
            if before is None or before.done():
                self.leave(key, mine)
            else:
                before.add_done_callback(lambda _: self.leave(key, mine))

    async def _wait(self, before: asyncio.Future[None], deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.shield(before)
        except TimeoutError:
            raise RemotingTimeout("earlier sends of the same key took all the time given") from None
