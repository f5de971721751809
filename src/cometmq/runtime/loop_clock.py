"""Whose time the running event loop goes by.

A loop in virtual time (`cometmq.testing.sim_loop`) brings its own clock as `loop.clock`, and no
thread may run beside it; every other loop goes by the system's clock.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.runtime.system_clock_and_files import SystemClock

if TYPE_CHECKING:
    from cometmq.runtime.clock_and_file_protocols import Clock


def clock_of_running_loop() -> Clock:
    """The clock of the loop that runs here. Raises RuntimeError where none runs."""
    clock: Clock | None = getattr(asyncio.get_running_loop(), "clock", None)
    return SystemClock() if clock is None else clock


def is_in_virtual_time() -> bool:
    """Whether the loop that runs here has a time of its own, for which threads do not exist."""
    return hasattr(asyncio.get_running_loop(), "clock")
