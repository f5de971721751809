"""Runs roles until a signal: the loop, the signals, the order of starting and stopping.

A role has `start` and `stop`. Invariant: however the run ends, roles are stopped in the reverse
order of their start; a second signal ends the process at once.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import importlib.util
import os
import signal
import sys
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Protocol

import click

from cometmq.cli.process_limits import raise_open_files
from cometmq.cli.service_notifier import ServiceNotifier
from cometmq.runtime.freed_memory import keep_freed_memory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import FrameType

YOUNG_MAX = 20_000
"""New objects before a collection; one loop iteration of a busy role makes and drops 1,000."""
MIDDLE_MAX, OLD_MAX = 1, 100
"""Collections before one of the next generation. By Python's default of ten, what ten young ones
left was looked at together: it held up the loop for 15 to 23 ms, and now for 4 to 9."""
SWITCH_S = 0.001
"""How long a computing thread keeps the interpreter lock, and so the loop's longest wait for it."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
_AT_ONCE = 130


class Role(Protocol):
    """A server that can be started and stopped."""

    async def start(self) -> None:
        """Begin to serve; raises CometError when it cannot."""

    async def stop(self) -> None:
        """Stop serving and release everything."""


class RunningRoles:
    """The roles that run, in the order of their start."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def start(self, role: Role) -> None:
        """Start a role, and stop it when the run ends."""
        await role.start()
        self._stack.push_async_callback(role.stop)

    def at_end(self, work: Callable[[], None]) -> None:
        """Call `work` when the run ends, before the roles that were started earlier stop."""
        self._stack.callback(work)


def serve(
    begin: Callable[[RunningRoles], Awaitable[None]], *, until_stdin_closes: bool = False
) -> None:
    """Call `begin`, which starts roles; return after SIGINT or SIGTERM, when all have stopped.

    A fatal signal, such as SIGBUS of a disk that fails under a mapping, prints where it happened.
    """
    if sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)
    keep_freed_memory()
    raise_open_files()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(begin, until_stdin_closes))


async def _serve(
    begin: Callable[[RunningRoles], Awaitable[None]], until_stdin_closes: bool
) -> None:
    ended, notifier = asyncio.Event(), ServiceNotifier()
    async with AsyncExitStack() as stack:
        stack.callback(_on_signals(ended))
        if until_stdin_closes:
            _on_stdin_end(ended)
        beginning = asyncio.ensure_future(_begin(begin, RunningRoles(stack)))
        ending = asyncio.ensure_future(ended.wait())
        await asyncio.wait((beginning, ending), return_when=asyncio.FIRST_COMPLETED)
        if not beginning.done():
            beginning.cancel()
        with suppress(asyncio.CancelledError):
            await beginning
            notifier.ready()
            await ending
        await notifier.stopping()


async def _begin(begin: Callable[[RunningRoles], Awaitable[None]], running: RunningRoles) -> None:
    await begin(running)
    # Objects that exist now live long: freeze them, so that collections skip them.
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, MIDDLE_MAX, OLD_MAX)
    sys.setswitchinterval(SWITCH_S)


def _on_signals(ended: asyncio.Event) -> Callable[[], None]:
    """Let signals set `ended`; return a function that restores the previous handlers.

    Plain handlers, not the loop's: they run even while a long recovery keeps the loop busy.
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


def print_lines(*lines: str) -> None:
    """Print lines to stdout now; a closed stdout does not stop the roles."""
    for line in lines:
        click.echo(line)
    sys.stdout.flush()
