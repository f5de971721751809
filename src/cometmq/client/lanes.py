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
                self._leave(key, mine)
            else:
                before.add_done_callback(lambda _: self._leave(key, mine))

    async def _wait(self, before: asyncio.Future[None], deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.shield(before)
        except TimeoutError:
            raise RemotingTimeout("earlier sends of the same key took all the time given") from None

    def _leave(self, key: Hashable, mine: asyncio.Future[None]) -> None:
        if not mine.done():
            mine.set_result(None)
        if self._last.get(key) is mine:
            del self._last[key]
