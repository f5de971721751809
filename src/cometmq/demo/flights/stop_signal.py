"""When a child process shall end: at SIGTERM, and when the job that started it is gone.

Owns both signs; refuses to know what the process does. The job holds the child's stdin open as
long as it lives, so its end is seen however the job died. POSIX.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Coroutine


def end_of_work() -> asyncio.Event:
    """The event that is set when this process shall end. Call it on the running loop."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    stdin = sys.stdin.fileno()

    def on_stdin() -> None:
        if not os.read(stdin, 4096):
            loop.remove_reader(stdin)
            ended.set()

    loop.add_signal_handler(signal.SIGTERM, ended.set)
    loop.add_reader(stdin, on_stdin)
    return ended


async def do_until_end(work: Coroutine[object, object, None]) -> None:
    """Do the work, or drop it when this process shall end; raises what the work raised."""
    ended = asyncio.ensure_future(end_of_work().wait())
    working = asyncio.ensure_future(work)
    await asyncio.wait((ended, working), return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
    if working.done():
        await working
    else:
        working.cancel()
        await asyncio.wait((working,))
