"""Which calls of a handler run now: while one does, its batch is not stuck.

Owns the count around a handler, plain or async; knows nothing of outcomes. A set is changed in one
step each, so threads need no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from cometmq.client.handling.handler_call import is_async

if TYPE_CHECKING:
    from cometmq.client.handling.handler_call import (
        AsyncHandler,
        Handler,
        HandlerStatus,
        SyncHandler,
    )
    from cometmq.model.message import MessageExt


class RunningCalls:
    """The calls of one task's handler. Any thread may use it."""

    def __init__(self) -> None:
        self._calls: set[object] = set()

    @property
    def are_running(self) -> bool:
        """Whether at least one call runs."""
        return bool(self._calls)

    def counted(self, handler: Handler) -> Handler:
        """The handler, whose calls are counted; it stays plain, or async."""
        calls = self._calls
        if is_async(handler):
            awaited = cast("AsyncHandler", handler)

            async def run_async(messages: list[MessageExt]) -> HandlerStatus:
                call = object()
                calls.add(call)
                try:
                    return await awaited(messages)
                finally:
                    calls.discard(call)

            return run_async
        plain = cast("SyncHandler", handler)

        def run(messages: list[MessageExt]) -> HandlerStatus:
            call = object()
            calls.add(call)
            try:
                return plain(messages)
            finally:
                calls.discard(call)

        return run
