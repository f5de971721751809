"""The bridge from one blocking client to the portal, the thread that runs the asyncio client.

Owns the portal from start to stop; refuses to know what is called there. Invariant: a portal that
was entered is left, also when the start fails; a forked child never uses its parent's portal.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING

from cometmq.client.blocking.event_loop_thread import EventLoopThread
from cometmq.errors import NotStarted

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future
    from typing import TypeVar

    T = TypeVar("T")


_all: weakref.WeakSet[BlockingBridge] = weakref.WeakSet()


class BlockingBridge:
    """Calls the asyncio client of one blocking client, on the loop of the portal."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._portal: EventLoopThread | None = None
        self._is_foreign = False
        _all.add(self)

    def start(self, start: Coroutine[object, object, None]) -> None:
        """Enter the portal and run the client's start on it."""
        if self._is_foreign:
            start.close()
            raise self._not_running()
        portal = EventLoopThread.enter()
        try:
            portal.call(start)
            self._portal = portal
        finally:
            if self._portal is None:
                portal.leave()

    def stop(self, stop: Coroutine[object, object, None]) -> None:
        """Run the client's stop and leave the portal."""
        if self._portal is None:
            stop.close()
            return
        portal = self._portal
        self._portal = None
        try:
            portal.call(stop)
        finally:
            portal.leave()

    @property
    def is_started(self) -> bool:
        """Whether the client is started."""
        return self._portal is not None

    @property
    def portal(self) -> EventLoopThread:
        """The portal; raises NotStarted before start and after stop."""
        if self._portal is None:
            raise self._not_running()
        return self._portal

    def call(self, work: Coroutine[object, object, T]) -> T:
        """Run one coroutine on the client's loop and wait for it."""
        if self._portal is None:
            work.close()
        return self.portal.call(work)

    def run(self, action: Callable[[], T]) -> T:
        """Make a plain call, on the client's loop if it is started; wait for what it returns."""
        return action() if self._portal is None else self._portal.run(action)

    def begin(self, begin: Callable[[], asyncio.Future[T]]) -> Future[T]:
        """Begin something on the client's loop and return a future of its result."""
        return self.portal.begin(begin)

    def disown(self) -> None:
        """Drop the portal of a parent process, whose thread does not exist in this one."""
        self._is_foreign = self._portal is not None
        self._portal = None

    def _not_running(self) -> NotStarted:
        if self._is_foreign:
            return NotStarted(
                f"this {self._what} was started before the process forked: make another one in "
                "the child"
            )
        return NotStarted(
            f"this {self._what} is not running: use it inside 'with', or call start()"
        )


def _disown_all() -> None:
    for bridge in list(_all):
        bridge.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
