"""Long work on a loop, a little in each of its iterations, so that nobody waits for it long.

One piece of work at a time has turns; the others wait for its end. A thread would not do: what
holds the interpreter's lock holds up the loop.
Java: none; its brokers have threads enough.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

TURN_S = 0.001
"""Time after which a turn is over, seconds."""

_T = TypeVar("_T")


class Turns:
    """Who has turns. Belongs to one loop."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        """Held by whoever has turns; take it before what must not be done twice at once."""

    async def collect(self, pieces: Iterable[_T]) -> list[_T]:
        """All that the iterator makes, each piece a little work, with the lock held by the caller.

        Raises what the iterator raises. It may meet a state that has changed between two pieces.
        """
        assert self.lock.locked(), "whoever has turns holds the lock"
        time, found = asyncio.get_running_loop().time, []
        until = time() + TURN_S
        for piece in pieces:
            found.append(piece)
            if time() > until:
                await asyncio.sleep(0)
                until = time() + TURN_S
        return found
