"""Stops a child process at SIGTERM, or when the job that started it has ended.

The job holds the child's stdin open while it lives, so the child sees the end of stdin however the
job ended. POSIX.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Coroutine


def stop_event() -> asyncio.Event:
    """The event that is set when this process must stop. Call it on the running loop."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    stdin = sys.stdin.fileno()

    def on_stdin() -> None:
        if not os.read(stdin, 4096):
            loop.remove_reader(stdin)
            ended.set()

    loop.add_signal_handler(signal.SIGTERM, ended.set)
    loop.add_reader(stdin, on_stdin)
    return ended


async def run_until_stopped(work: Coroutine[object, object, None]) -> None:
    """Run the work, or cancel it when this process must stop; raise what the work raised."""
    ended = asyncio.ensure_future(stop_event().wait())
    working = asyncio.ensure_future(work)
    await asyncio.wait((ended, working), return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
    if working.done():
        await working
    else:
        working.cancel()
        await asyncio.wait((working,))
