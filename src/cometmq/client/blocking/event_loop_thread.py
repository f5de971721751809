"""The one thread and event loop of a process that all blocking clients share.

Owns the life of the thread: the first client starts it, the last one ends it, and a forked child
gets a new one. Refuses to know what runs on the loop. Invariants: at most one loop thread per
process, and none without a client; every call ends, at the latest with the loop thread; at most
`CALLS_MAX` calls wait for the loop to begin them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from cometmq.errors import NotStarted, TooManyRequests
from cometmq.net.channel_pool import close_pools_of_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")

log = logging.getLogger(__name__)

CALLS_MAX = 65_535
"""Calls that may wait until the loop begins them, of all clients together."""
INTERRUPT_S = 0.5 if os.name == "nt" else None
"""How often a thread that waits looks for signals; None where they wake it. Windows has no such."""
_lock = threading.Lock()
_shared: dict[int, EventLoopThread] = {}
_ENDED = "the client was stopped before the call was over"


class EventLoopThread:
    """A loop in a daemon thread. `enter` and `leave` count the clients that use it."""

    def __init__(self) -> None:
        self._users = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="cometmq-loop", daemon=True)
        self._calls: deque[tuple[Callable[[], None], Callable[[Exception], None]]] = deque()
        self._called: set[Future[Any]] = set()
        self._is_woken = self._is_over = self._has_begun_last = False
        self._thread.start()

    @staticmethod
    def enter() -> EventLoopThread:
        """Return this process's loop thread, started if need be; pair it with `leave`."""
        with _lock:
            loop_thread = _shared.get(os.getpid())
            if loop_thread is None:
                _shared.clear()  # a forked child inherits the parent's entry, but not its thread
                loop_thread = _shared[os.getpid()] = EventLoopThread()
            loop_thread._users += 1
            return loop_thread

    def leave(self) -> None:
        """Leave the loop thread; the last client that leaves ends the thread."""
        with _lock:
            self._users -= 1
            is_last = self._users == 0 and _shared.get(os.getpid()) is self
            if is_last:
                del _shared[os.getpid()]
        if is_last:
            self._is_over = True
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def call(self, coroutine: Coroutine[object, object, T]) -> T:
        """Run a coroutine on the loop and wait for what it returns or raises.

        An interrupt of the caller (Ctrl-C) cancels the coroutine. Raises NotStarted when the
        loop thread ends before the coroutine does.
        """
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:  # the loop was closed since the caller looked
            coroutine.close()
            raise NotStarted(_ENDED) from None
        self._called.add(future)
        if self._loop.is_closed():
            self._cancel_calls()  # nobody else does any more
        try:
            return _result(future)
        except CancelledError:
            if self._is_over:
                raise NotStarted(_ENDED) from None
            raise
        finally:
            self._called.discard(future)
            future.cancel()  # does nothing once it is done

    def run(self, action: Callable[[], T]) -> T:
        """Run a plain call on the loop and wait for what it returns or raises.

        Called on the loop itself, as by an async handler, it waits for nothing.
        """
        if threading.current_thread() is self._thread:
            return action()

        async def run() -> T:
            return action()

        return self.call(run())

    def post(self, action: Callable[[], object]) -> None:
        """Make a plain call on the loop, soon; waits for nothing, so signal handlers may use it."""
        with suppress(RuntimeError):  # the loop was closed: there is nothing left to tell
            self._loop.call_soon_threadsafe(action)

    def begin(self, start: Callable[[], asyncio.Future[T]]) -> Future[T]:
        """Call `start` on the loop, soon and in the order of the calls; return its result's future.

        Many calls share one wake-up of the loop. Raises TooManyRequests when 65,535 of them wait
        for it: when threads begin calls faster than the loop, they get the error.
        """
        if len(self._calls) >= CALLS_MAX:
            raise TooManyRequests(
                f"{CALLS_MAX} calls wait for the thread of the blocking clients; wait for some of "
                "their futures first"
            )
        outside: Future[T] = Future()

        def run() -> None:
            try:
                inside = start()
            except Exception as error:  # noqa: BLE001 - raised where the result is waited for
                _fail(outside, error)
                return
            inside.add_done_callback(lambda done: _copy_result(done, outside))

        self.submit(run, partial(_fail, outside))
        return outside

    def submit(self, run: Callable[[], None], refuse: Callable[[Exception], None]) -> None:
        """Call `run`, which must not raise, on the loop, soon and in the order of the calls.

        Many calls share one wake-up of the loop. `refuse` is called instead with NotStarted when
        the loop thread ends before. For callers that wait, so that no more come than threads.
        """
        self._calls.append((run, refuse))
        if not self._is_woken:
            self._is_woken = True
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:  # the loop was closed since the caller looked
                self._refuse_calls()

    def _drain(self) -> None:
        if self._has_begun_last:
            self._refuse_calls()
            return
        self._is_woken = False  # before the loop below: a later append must wake the loop again
        for _ in range(len(self._calls)):
            run, _refuse = self._calls.popleft()
            run()

    def _cancel_calls(self) -> None:
        """End the waits for coroutines that the loop began too late to cancel, or never."""
        for future in list(self._called):
            future.cancel()

    def _refuse_calls(self) -> None:
        """Fail the calls that no loop will begin any more."""
        self._is_woken = False  # before the loop below, as in `_drain`
        while self._calls:
            _run, refuse = self._calls.popleft()
            refuse(NotStarted(_ENDED))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            while not self._is_over:
                self._run_on()
        finally:
            self._loop.run_until_complete(self._end())
            self._loop.close()
            self._refuse_calls()  # those that came after the last ones were begun
            self._cancel_calls()

    def _run_on(self) -> None:
        """Run the loop; a SystemExit raised on it ends the task that raised it, not the loop."""
        try:
            self._loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            log.error("%r was raised on the loop that all blocking clients share", error)

    async def _end(self) -> None:
        """Begin the last calls, then cancel all tasks, so that no caller waits for ever."""
        self._drain()
        self._has_begun_last = True  # what began later would not be cancelled below
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await close_pools_of_loop()  # those of clients whose stop was interrupted
        await self._loop.shutdown_asyncgens()


def _result(future: Future[T]) -> T:
    """Wait for a result, so that Ctrl-C is noticed on systems where locks are deaf to it."""
    while True:
        try:
            return future.result(INTERRUPT_S)
        except TimeoutError:
            if future.done():
                raise


def _fail(outside: Future[Any], error: Exception) -> None:
    if outside.set_running_or_notify_cancel():  # else its caller has cancelled it
        outside.set_exception(error)


def _copy_result(done: asyncio.Future[T], outside: Future[T]) -> None:
    if not outside.set_running_or_notify_cancel():
        return
    if done.cancelled():
        outside.set_exception(CancelledError())
    elif error := done.exception():
        outside.set_exception(error)
    else:
        outside.set_result(done.result())


def _renew_lock() -> None:
    """Make a new lock: a thread of the parent may have held it, and does not exist here."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
