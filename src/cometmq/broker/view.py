"""Single messages: by their place (33), by their keys (12).

There is no key index yet: a lookup by key finds nothing rather than reading the whole log. A lookup
by UNIQ_KEY finds nothing either; the offset id always works.
Java: QueryMessageProcessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import Reject
from cometmq.net.edge import Reply
from cometmq.wire.codes import ResponseCode
from cometmq.wire.headers.query import QueryMessageRequestHeader, ViewMessageRequestHeader

if TYPE_CHECKING:
    from cometmq.net.peer import Peer
    from cometmq.store.message_store import MessageStore
    from cometmq.wire.command import Command


class ViewHandler:
    """Answers 33 and 12."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def by_offset(self, request: Command, _peer: Peer) -> Reply:
        """Send the record at a physical offset (33)."""
        offset = ViewMessageRequestHeader.decode(request.ext).offset
        record = self._store.record_at(offset) if offset >= 0 else None
        if record is None:
            raise Reject(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return Reply(body=record)

    def by_key(self, request: Command, _peer: Peer) -> Reply:
        """Find messages by key (12)."""
        QueryMessageRequestHeader.decode(request.ext)
        raise Reject(
            ResponseCode.QUERY_NOT_FOUND,
            "can not find message, maybe time range not correct; this broker has no key index yet",
        )
