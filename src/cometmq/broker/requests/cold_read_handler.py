"""Handlers that look into the store: answered at once, or when what they read is in memory.

Refuses to know what is read. Invariant: the handler changes nothing before it has read all that it
reads, so it may be asked again.
Java: none; its handlers wait in threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.net.handler import Answer, Held
from cometmq.store.log.mapped_file_queue import NotInMemory

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from cometmq.net.connection import Connection
    from cometmq.net.handler import Handler, HandlerResult
    from cometmq.store.cold_reads import ColdReader
    from cometmq.wire.command import Command


class ColdReadHandler:
    """Such a handler: the loop does not wait for the disk with it."""

    __slots__ = ("_cold_reader", "_handler")

    def __init__(self, handler: Handler, cold_reader: ColdReader) -> None:
        self._handler = handler
        self._cold_reader = cold_reader

    def __call__(
        self, request: Command, connection: Connection
    ) -> HandlerResult | Awaitable[HandlerResult]:
        """Answer as the handler does."""
        try:
            return self._cold_reader.read_cached(lambda: self._handler(request, connection))
        except NotInMemory:
            return self._later(request, connection)

    async def _later(self, request: Command, connection: Connection) -> HandlerResult:
        answer = await self._cold_reader.read(lambda: self._handler(request, connection))
        return answer if isinstance(answer, Answer | Held) else await answer
