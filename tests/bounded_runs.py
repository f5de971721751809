"""Scenarios on an event loop of their own that end in bounded time, and waiting in them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def run(scenario: Coroutine[Any, Any, None], bound_s: float = 60) -> None:
    """Run a scenario; TimeoutError when it takes longer."""
    asyncio.run(asyncio.wait_for(scenario, bound_s))


async def until(condition: Callable[[], Any]) -> None:
    """Wait until a condition holds; the scenario's bound ends it."""
    while not condition():
        await asyncio.sleep(0.01)
