"""What the parts of an admin share: the session, and how all masters are asked.

Java: DefaultMQAdminExtImpl
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.client.admin.topic_changes import TopicChanges
from cometmq.client.session.client_session import ClientSession, require_started
from cometmq.wire.command import request

if TYPE_CHECKING:
    from collections.abc import Collection

    from cometmq.wire.codes import RequestCode
    from cometmq.wire.command import Command
    from cometmq.wire.headers.base import Header


class AdminSession:
    """The base of the parts of an admin. Belongs to the loop on which it was started."""

    _session: ClientSession | None = None

    def _running(self) -> ClientSession:
        return require_started(self._session, "admin")

    def _changes(self) -> TopicChanges:
        return TopicChanges(self._running())

    async def _ask_masters(
        self,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        brokers: Collection[str] = (),
    ) -> dict[str, Command]:
        """The response of each master, or of those named, by broker name, whatever its code."""
        masters = await self._changes().masters(brokers)
        command = request(code, 0, header, body)
        found = await asyncio.gather(
            *(self._running().call(addr, command) for addr in masters.values())
        )
        return dict(zip(masters, found, strict=True))
