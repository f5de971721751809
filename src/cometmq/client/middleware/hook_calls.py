"""Calls single hooks: those that may raise, and those whose errors are logged and ignored.

Owns both kinds of calls, each for plain callers and for async ones; refuses to know which hook
is called when. One of the few places that catch everything: an error of a middleware that only
watches must not change what it watches.
"""

from __future__ import annotations

import logging
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from cometmq.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from cometmq.client.middleware.middleware import Middleware

log = logging.getLogger(__name__)


def has_async_hook(middleware: Iterable[Middleware], names: Sequence[str]) -> bool:
    """Whether one of the hooks is an async function."""
    return any(iscoroutinefunction(getattr(one, name)) for one in middleware for name in names)


def check_plain_hooks(middleware: Iterable[Middleware], names: Sequence[str], topic: str) -> None:
    """Raise SettingsError when one of the hooks is async but must run in a thread."""
    for one in middleware:
        if has_async_hook([one], names):
            raise SettingsError(
                f"the handler of {topic} is a plain function, which runs in a thread: the hooks of "
                f"{type(one).__name__} around it must be plain functions as well"
            )


async def await_hook(hook: Callable[..., Awaitable[None] | None], *args: Any) -> None:
    """Call a plain or async hook; what it raises is raised."""
    awaitable = hook(*args)
    if awaitable is not None:
        await awaitable


async def await_observer(hook: Callable[..., Awaitable[None] | None], *args: Any) -> None:
    """Call a plain or async hook; what it raises is logged."""
    try:
        await await_hook(hook, *args)
    except Exception:
        log.exception("%s failed and is ignored", hook.__qualname__)


def call_observer(hook: Callable[..., Awaitable[None] | None], *args: Any) -> None:
    """Call a plain hook; what it raises is logged."""
    try:
        hook(*args)
    except Exception:
        log.exception("%s failed and is ignored", hook.__qualname__)
