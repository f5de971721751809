"""SIGTERM and SIGINT, while a program does nothing but wait for its consumers.

Owns the two signal handlers from the first wait on the main thread until the last one has ended;
knows nothing of consumers. Invariants: a handler that the program has installed stays in charge;
after the first signal the previous handlers are back, so a second one acts as if we were not here.
Java: nothing alike; programs add a shutdown hook
"""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_listeners: list[Callable[[str], object]] = []
_replaced: dict[int, Any] = {}


@contextmanager
def stop_signals(on_signal: Callable[[str], object]) -> Iterator[None]:
    """Have the first SIGTERM or SIGINT call `on_signal` with its name, on the main thread.

    Does nothing on other threads, where Python takes no signals, and nothing about a signal for
    which the program has a handler of its own, or which it ignores.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _listeners.append(on_signal)
    if len(_listeners) == 1:
        _install()
    try:
        yield
    finally:
        _listeners.remove(on_signal)
        if not _listeners:
            _restore()


def _install() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)
        if _is_default(number, before):
            signal.signal(number, _on_signal)
            _replaced[number] = before


def _is_default(number: int, handler: Any) -> bool:
    """Whether the program has left a signal as Python, or asyncio.run, treats it by itself."""
    if number == signal.SIGTERM:
        return handler is signal.SIG_DFL
    owner = getattr(getattr(handler, "func", None), "__self__", None)
    return handler is signal.default_int_handler or isinstance(owner, asyncio.Runner)


def _restore() -> None:
    for number, before in _replaced.items():
        if signal.getsignal(number) is _on_signal:
            signal.signal(number, before)
    _replaced.clear()


def _on_signal(number: int, _frame: FrameType | None) -> None:
    _restore()
    for listener in _listeners:
        listener(signal.Signals(number).name)
