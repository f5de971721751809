"""Runs roles until a signal: the loop, the signals, the order of starting and stopping.

Refuses to know what a role is beyond `start` and `stop`. Invariant: what was started is stopped in
reverse order, whatever ends the run; a second signal ends the process at once.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import logging
import os
import signal
import sys
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Protocol

import click

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import FrameType

YOUNG_MAX = 20_000
"""Objects made before the collector looks at them; a turn of a busy role makes and drops 1,000."""
SWITCH_S = 0.001
"""How long a thread that computes keeps the interpreter; the loop waits so long beside one."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
_AT_ONCE = 130


class Role(Protocol):
    """What can be started and stopped."""

    async def start(self) -> None:
        """Begin to serve; raises CometError when that cannot be."""

    async def stop(self) -> None:
        """Serve no more and leave everything in order."""


class Running:
    """What runs, in the order it was started."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def start(self, role: Role) -> None:
        """Start a role; it is stopped when the run ends."""
        await role.start()
        self._stack.push_async_callback(role.stop)

    def at_end(self, work: Callable[[], None]) -> None:
        """Have `work` done when the run ends, before what was started earlier stops."""
        self._stack.callback(work)


def serve(begin: Callable[[Running], Awaitable[None]], *, until_stdin_closes: bool = False) -> None:
    """Call `begin`, which starts roles; return after SIGINT or SIGTERM, when all have stopped."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(begin, until_stdin_closes))


async def _serve(begin: Callable[[Running], Awaitable[None]], until_stdin_closes: bool) -> None:
    ended = asyncio.Event()
    async with AsyncExitStack() as stack:
        stack.callback(_on_signals(ended))
        if until_stdin_closes:
            _on_stdin_end(ended)
        beginning = asyncio.ensure_future(_begin(begin, Running(stack)))
        ending = asyncio.ensure_future(ended.wait())
        await asyncio.wait((beginning, ending), return_when=asyncio.FIRST_COMPLETED)
        if not beginning.done():
            beginning.cancel()
        with suppress(asyncio.CancelledError):
            await beginning
            await ending


async def _begin(begin: Callable[[Running], Awaitable[None]], running: Running) -> None:
    await begin(running)
    # What lives now lives long: the collector need not walk through it again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX)
    sys.setswitchinterval(SWITCH_S)


def _on_signals(ended: asyncio.Event) -> Callable[[], None]:
    """Have signals set `ended`; return what takes the handlers away again.

    Plain handlers, not the loop's: these run even while a long recovery keeps the loop busy.
    """
    loop = asyncio.get_running_loop()
    is_second = False

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        nonlocal is_second
        if is_second:
            os._exit(_AT_ONCE)
        is_second = True
        loop.call_soon_threadsafe(ended.set)

    before = {number: signal.signal(number, on_signal) for number in SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore


def _on_stdin_end(ended: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    fd = sys.stdin.fileno()

    def on_readable() -> None:
        if not os.read(fd, 4096):
            loop.remove_reader(fd)
            ended.set()

    loop.add_reader(fd, on_readable)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if importlib.util.find_spec("uvloop") is None:
        return None
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def log_to_stderr(verbosity: int) -> None:
    """Log warnings and errors to stderr; with 1 what happens as well, with 2 everything."""
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbosity, 2)]
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def tell(*lines: str) -> None:
    """Print lines to stdout now; a reader that has gone is no reason to stop."""
    for line in lines:
        click.echo(line)
    sys.stdout.flush()
