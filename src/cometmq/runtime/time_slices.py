"""Time slices: long work on a loop, a little in each iteration, so that nobody waits for it long.

One piece of work at a time is sliced; the others wait for its end. A thread would not do: what
holds the interpreter's lock holds up the loop.
Java: none; its brokers have threads enough.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

SLICE_S = 0.001
"""Length of a slice, seconds."""

_T = TypeVar("_T")


class TimeSlices:
    """The work on one loop that is done in slices, one after the other. Belongs to that loop."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        """Held by the work that is sliced now; take it before what two must not do at once."""

    async def collect(self, pieces: Iterable[_T]) -> list[_T]:
        """All that the iterator makes, each piece a little work, with the lock held by the caller.

        Raises what the iterator raises. It may meet a state that has changed between two pieces.
        """
        assert self.lock.locked(), "the work that is sliced holds the lock"
        time, found = asyncio.get_running_loop().time, []
        until = time() + SLICE_S
        for piece in pieces:
            found.append(piece)
            if time() > until:
                await asyncio.sleep(0)
                until = time() + SLICE_S
        return found
