"""Lookup of single messages: by physical offset (33), by id, key or tag (12).

Applies the limits of a lookup and encodes its answer. The store owns the index.
Java: QueryMessageProcessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import Reject
from cometmq.net.endpoint import Endpoint
from cometmq.net.handler import Reply
from cometmq.store.index.key_index import STEPS_MAX
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers import query as headers
from cometmq.wire.records import log_record

if TYPE_CHECKING:
    from cometmq.net.admission import FoundAdmission
    from cometmq.net.connection import Connection
    from cometmq.settings.store import StoreSettings
    from cometmq.store.message_store import MessageStore
    from cometmq.wire.command import Command

_BY_TAG = "T"
_NOT_FOUND = "can not find message, maybe time range not correct"
_PASSED_OVER = (
    f"too many messages have this key: of each index file the newest {STEPS_MAX} were looked at; "
    "look for the others by another of their keys"
)


class MessageLookupHandler:
    """Answers 33 and 12."""

    def __init__(
        self, store: MessageStore, settings: StoreSettings, admit_found: FoundAdmission
    ) -> None:
        """`admit_found` decides whether who asks for an offset may read what lies there."""
        self._admit_found = admit_found
        self._store = store
        self._settings = settings

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(RequestCode.VIEW_MESSAGE_BY_ID, self.by_offset),
            Endpoint(RequestCode.QUERY_MESSAGE, self.by_key),
        )

    async def by_offset(self, request: Command, connection: Connection) -> Reply:
        """Send the record at a physical offset (33)."""
        offset = headers.ViewMessageRequestHeader.decode(request.ext).offset
        record = None
        if offset >= 0:
            record = await self._store.cold_reader.run(lambda context: context.record_at(offset))
        if record is None:
            raise Reject(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        self._admit_found(request, connection, log_record.decode(record).topic)
        return Reply(body=record)

    async def by_key(self, request: Command, _connection: Connection) -> Reply:
        """Send the newest messages with a client's id, a key or a tag, in the log's order (12)."""
        header = headers.QueryMessageRequestHeader.decode(request.ext)
        count = header.max_num
        if header.is_unique_key:
            count = self._settings.default_query_max_num
        found = await self._store.lookup.query(
            header.topic,
            header.key,
            max(0, min(count, self._settings.max_query_num)),
            header.begin_timestamp,
            header.end_timestamp,
            is_tag=header.index_type == _BY_TAG and not header.is_unique_key,
        )
        reach = headers.QueryMessageResponseHeader(
            index_last_update_timestamp=found.index_ms, index_last_update_phyoffset=found.index_phy
        )
        remark = None if found.is_complete else _PASSED_OVER
        if found.records:
            return Reply(header=reach, body=b"".join(found.records), remark=remark)
        return Reply(ResponseCode.QUERY_NOT_FOUND, reach, remark=remark or _NOT_FOUND)
