"""Request and reply: a reply is pushed to the client that waits for it (324, 325, 326).

Pushes a reply to the connection whose client id is in REPLY_TO_CLIENT, and stores its copy in
<cluster>_REPLY_TOPIC. The request itself is an ordinary message. The client that sent it matches
replies to requests, by CORRELATION_ID.
Invariant: response code 0 means that the waiting client accepted the reply.
Java: ReplyMessageProcessor, Broker2Client.callClient.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cometmq.errors import Reject, RemotingError
from cometmq.net.endpoint import Endpoint, RequestEffect, header_resources
from cometmq.net.handler import Reply
from cometmq.store.message_draft import MessageDraft
from cometmq.store.put_result import PutStatus
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request as new_request
from cometmq.wire.headers.send import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from cometmq.wire.records import message_id, properties, sysflag

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cometmq.broker.groups.client_registry import ClientRegistry
    from cometmq.broker.metrics.broker_stats import BrokerStats
    from cometmq.broker.sends.send_handler import SendHandler
    from cometmq.net.connection import Connection
    from cometmq.settings.broker import BrokerSettings
    from cometmq.store.message_store import MessageStore
    from cometmq.wire.command import Command

log = logging.getLogger(__name__)

PUSH_S = 10.0
"""How long a client may take to acknowledge a reply pushed to it."""


class ReplyHandler:
    """Answers 324 and 325."""

    def __init__(
        self,
        store: MessageStore,
        clients: ClientRegistry,
        send: SendHandler,
        stats: BrokerStats,
        settings: BrokerSettings,
        address: Callable[[], str],
        now_ms: Callable[[], int],
    ) -> None:
        """`address` gives where this broker is reached, host:port."""
        self._store = store
        self._clients = clients
        self._send = send
        self._stats = stats
        self._settings = settings
        self._address = address
        self._now_ms = now_ms
        self._region = {"MSG_REGION": settings.region_id, "TRACE_ON": "true"}

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(
                RequestCode.SEND_REPLY_MESSAGE, self, RequestEffect.MUTATING | RequestEffect.DURABLE
            ),
            Endpoint(
                RequestCode.SEND_REPLY_MESSAGE_V2,
                self,
                RequestEffect.MUTATING | RequestEffect.DURABLE,
                resources=header_resources(topics=("b",), producers=("a",)),
            ),
        )

    def adjust(self, settings: BrokerSettings) -> None:
        """Work with these settings from now on."""
        self._settings = settings

    def __call__(self, request: Command, connection: Connection) -> Reply | Awaitable[Reply]:
        """Push the reply, store it if that is switched on, and answer how the push went."""
        v1 = request.code == RequestCode.SEND_REPLY_MESSAGE
        kind = SendMessageRequestHeader if v1 else SendMessageRequestHeaderV2
        header = kind.decode(request.ext)
        try:
            config = self._send.check.admit(header)
        except Reject as refusal:
            return Reply(refusal.code, remark=refusal.remark, ext=self._region)
        return self._push(
            header, self._send.check.queue_of(header, config), request.body, connection
        )

    async def _push(
        self, header: SendMessageRequestHeader, queue_id: int, body: bytes, connection: Connection
    ) -> Reply:
        raw = self._with_region((header.properties or "").encode())
        wanted = properties.find(raw, b"REPLY_TO_CLIENT")
        client_id = (wanted or b"").decode("utf-8", "replace")
        asking = self._clients.find_producer(client_id) if client_id else None
        if not client_id:
            answer = _failed("the reply names no client: it has no REPLY_TO_CLIENT")
        elif asking is None:
            answer = _failed(f"the client {client_id} that waits for the reply is not connected")
        else:
            answer = await self._send_to_client(
                asking, client_id, self._push_header(header, raw, connection), body
            )
        if not answer.code:
            answer.header = SendMessageResponseHeader(msg_id="0", queue_id=queue_id, queue_offset=0)
        answer.ext = self._region
        if self._settings.store_reply_message_enable:
            self._store_copy(header, queue_id, raw, body, connection, answer)
        return answer

    def _with_region(self, raw: bytes) -> bytes:
        """The sender's properties with the region that this broker adds to every message."""
        for key in (b"MSG_REGION", b"TRACE_ON"):
            raw = properties.put(raw, key, self._region[key.decode()].encode())
        return raw

    def _push_header(
        self, header: SendMessageRequestHeader, raw: bytes, connection: Connection
    ) -> ReplyMessageRequestHeader:
        """The header of the request that pushes the reply (326)."""
        now_ms = self._now_ms()
        stamped = properties.put(raw, b"PUSH_REPLY_TIME", b"%d" % now_ms)
        return ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=stamped.decode(),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
            born_host=connection.addr,
            store_host=self._address(),
            store_timestamp=now_ms,
        )

    @staticmethod
    async def _send_to_client(
        asking: Connection, client_id: str, header: ReplyMessageRequestHeader, body: bytes
    ) -> Reply:
        command = new_request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, 0, header, body)
        try:
            taken = await asking.request(command, PUSH_S)
        except RemotingError as error:
            return _failed(f"the reply could not be pushed to {client_id}: {error}")
        if taken.code:
            return _failed(f"the client {client_id} did not take the reply: {taken.remark}")
        return Reply()

    def _store_copy(
        self,
        header: SendMessageRequestHeader,
        queue_id: int,
        raw: bytes,
        body: bytes,
        connection: Connection,
        answer: Reply,
    ) -> None:
        """Store the reply as well; a failure to store it does not fail the reply."""
        draft = MessageDraft(
            header.topic,
            queue_id,
            body,
            raw,
            flag=header.flag,
            sys_flag=header.sys_flag & ~sysflag.TRANSACTION_MASK,
            born_ms=header.born_timestamp,
            born_host=connection.host,
            reconsume_times=header.reconsume_times or 0,
        )
        placed = self._store.put(draft)
        if placed.status is not PutStatus.PUT_OK:
            log.warning("a reply in %s is not stored: %s", header.topic, placed.status.name)
            return
        self._stats.count_put(header.topic, 1, placed.size)
        place = message_id.offset_id(self._send.responses.store_host, placed.phy_offset)
        answer.header = SendMessageResponseHeader(
            msg_id=place, queue_id=queue_id, queue_offset=placed.queue_offset
        )
        answer.durable = not answer.code


def _failed(remark: str) -> Reply:
    return Reply(ResponseCode.SYSTEM_ERROR, remark=remark)
