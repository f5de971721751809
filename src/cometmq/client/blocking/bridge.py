"""The bridge from one blocking client to the loop thread, the thread that runs the asyncio client.

Owns the loop thread from start to stop; refuses to know what is called there. Invariant: a loop
thread that was entered is left, also when the start fails; a forked child never uses its parent's
loop thread.
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
    """Calls the asyncio client of one blocking client, on the loop of the loop thread."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._loop_thread: EventLoopThread | None = None
        self._entered: EventLoopThread | None = None
        """The loop thread also while the client starts and stops, when its loop owns it as well."""
        self._is_foreign = False
        _all.add(self)

    def start(self, start: Coroutine[object, object, None]) -> None:
        """Enter the loop thread and run the client's start on it."""
        if self._is_foreign:
            start.close()
            raise self._not_running()
        if self._loop_thread is not None:  # refused, unless the client has stopped by itself
            self._loop_thread.call(start)
            return
        loop_thread = self._entered = EventLoopThread.enter()
        try:
            loop_thread.call(start)
            self._loop_thread = loop_thread
        finally:
            if self._loop_thread is None:
                self._entered = None
                loop_thread.leave()

    def stop(self, stop: Coroutine[object, object, None]) -> None:
        """Run the client's stop and leave the loop thread."""
        if self._loop_thread is None:
            stop.close()
            return
        loop_thread = self._loop_thread
        self._loop_thread = None
        try:
            loop_thread.call(stop)
        finally:
            self._entered = None
            loop_thread.leave()

    @property
    def is_started(self) -> bool:
        """Whether the client is started."""
        return self._loop_thread is not None

    @property
    def loop_thread(self) -> EventLoopThread:
        """The loop thread; raises NotStarted before start and after stop."""
        if self._loop_thread is None:
            raise self._not_running()
        return self._loop_thread

    def call(self, work: Coroutine[object, object, T]) -> T:
        """Run one coroutine on the client's loop and wait for it."""
        if self._loop_thread is None:
            work.close()
        return self.loop_thread.call(work)

    def run(self, action: Callable[[], T]) -> T:
        """Make a plain call, on the client's loop from start to stop; wait for what it returns."""
        loop_thread = self._entered
        return action() if loop_thread is None else loop_thread.run(action)

    def begin(self, begin: Callable[[], asyncio.Future[T]]) -> Future[T]:
        """Begin something on the client's loop and return a future of its result."""
        return self.loop_thread.begin(begin)

    def disown(self) -> None:
        """Drop the loop thread of a parent process, whose thread does not exist in this one."""
        self._is_foreign |= self._loop_thread is not None
        self._loop_thread = self._entered = None

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
