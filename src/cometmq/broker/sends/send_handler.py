"""Hot. SEND_MESSAGE, its short form and batches (10, 310, 320): check, prepare, put, respond.

Joins `send_check`, `message_preparation`, `single_message_writer` or `batch_writer`, and
`send_response`; the dispatcher holds the response until the message is as durable as promised.
Invariant: a message that was answered with 0, 10, 11 or 12 lies in the log, any other does not.
Java: SendMessageProcessor, AbstractSendMessageProcessor.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.broker.sends.message_preparation import prioritized
from cometmq.errors import Reject
from cometmq.model.topic import TIMER_TOPIC
from cometmq.net.endpoint import Endpoint, RequestEffect, header_resources
from cometmq.store.message_draft import MessageDraft
from cometmq.store.put_result import PutStatus
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from cometmq.wire.records.message_batch import BatchColumns

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from cometmq.broker.sends.batch_writer import BatchWriter
    from cometmq.broker.sends.message_preparation import MessagePreparer
    from cometmq.broker.sends.send_check import SendCheck
    from cometmq.broker.sends.send_response import SendResponses
    from cometmq.broker.sends.single_message_writer import SingleMessageWriter
    from cometmq.model.topic import TopicConfig
    from cometmq.net.connection import Connection
    from cometmq.net.handler import Reply
    from cometmq.settings.broker import BrokerSettings
    from cometmq.settings.store import StoreSettings
    from cometmq.store.put_result import PutResult
    from cometmq.wire.command import Command


LARGE_BATCH_REST_S = 0.1
"""Longest rest behind a large batch."""


class SendHandler:
    """Answers 10, 310 and 320."""

    def __init__(
        self,
        check: SendCheck,
        preparation: MessagePreparer,
        single_writer: SingleMessageWriter,
        batch_writer: BatchWriter,
        responses: SendResponses,
    ) -> None:
        self.check = check
        self.preparation = preparation
        self.responses = responses
        self._single_writer = single_writer
        self._batch_writer = batch_writer
        self._large_batch = asyncio.Lock()

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(
                RequestCode.SEND_MESSAGE,
                self,
                RequestEffect.MUTATING | RequestEffect.DURABLE | RequestEffect.CREATING,
            ),
            Endpoint(
                RequestCode.SEND_MESSAGE_V2,
                self,
                RequestEffect.MUTATING | RequestEffect.DURABLE | RequestEffect.CREATING,
                resources=header_resources(topics=("b",), producers=("a",)),
            ),
            Endpoint(
                RequestCode.SEND_BATCH_MESSAGE,
                self,
                RequestEffect.MUTATING | RequestEffect.DURABLE | RequestEffect.CREATING,
                resources=header_resources(topics=("b",), producers=("a",)),
            ),
        )

    def adjust(self, settings: BrokerSettings) -> None:
        """Work with these settings from now on."""
        self.check.adjust(settings)

    def adjust_store(self, settings: StoreSettings) -> None:
        """Work with these limits from now on."""
        self.preparation.adjust(settings)
        self._batch_writer.adjust(settings)

    def __call__(self, request: Command, connection: Connection) -> Reply | Awaitable[Reply]:
        """Store what the request carries and answer where it lies."""
        v1 = request.code == RequestCode.SEND_MESSAGE
        header = (SendMessageRequestHeader if v1 else SendMessageRequestHeaderV2).decode(
            request.ext
        )
        try:
            config = self.check.admit(header)
            if header.batch or request.code == RequestCode.SEND_BATCH_MESSAGE:
                return self._send_batch(header, config, request.body, connection)
            return self._send_one(header, config, request, connection)
        except Reject as refusal:
            return self.responses.refused(refusal)

    def _send_one(
        self,
        header: SendMessageRequestHeader,
        config: TopicConfig,
        request: Command,
        connection: Connection,
    ) -> Reply | Awaitable[Reply]:
        queue_id = self.check.queue_of(header, config)
        raw = self.preparation.complete((header.properties or "").encode())
        raw, queue_id = prioritized(raw, queue_id, config.write_queue_nums)
        draft = MessageDraft(
            header.topic,
            queue_id,
            request.body,
            raw,
            flag=header.flag,
            sys_flag=self.check.sys_flag_of(header, config),
            born_ms=header.born_timestamp,
            born_host=connection.host,
            reconsume_times=header.reconsume_times or 0,
        )
        self.preparation.check_content(draft)
        writer = self._single_writer
        if writer.is_exhausted(draft, request.version, header.max_reconsume_times):
            return writer.put_dead_letter(
                draft, lambda placed: self._respond(placed, draft.queue_id, raw)
            )
        placed = writer.put(draft)
        if draft.topic == TIMER_TOPIC and placed.status is PutStatus.PUT_OK:
            return self.responses.timer_stored(placed, queue_id, draft.properties)
        return self._respond(placed, queue_id, raw)

    def _respond(self, placed: PutResult, queue_id: int, raw: bytes) -> Reply:
        if placed.status is not PutStatus.PUT_OK:
            return self.responses.not_stored(placed.status)
        return self.responses.stored([placed.phy_offset], placed.queue_offset, queue_id, raw)

    def _send_batch(
        self,
        header: SendMessageRequestHeader,
        config: TopicConfig,
        body: bytes,
        connection: Connection,
    ) -> Reply | Awaitable[Reply]:
        items = self._batch_writer.decode(header.topic, body)
        if items is None:
            return self._send_large_batch(header, body, connection)
        return self._put_batch(header, config, items, connection)

    async def _send_large_batch(
        self, header: SendMessageRequestHeader, body: bytes, connection: Connection
    ) -> Reply:
        """Store a large batch; before the next one others are served for as long as it took."""
        loop = asyncio.get_running_loop()
        await self._large_batch.acquire()
        began = loop.time()
        try:
            config = self.check.admit(header)  # its topic may have been deleted meanwhile
            items = BatchColumns([], [], [])
            for part in self._batch_writer.decode_large(body):
                items.add(part)
                await asyncio.sleep(0)
            began = loop.time()
            return self._put_batch(header, config, items, connection)
        except Reject as refusal:
            return self.responses.refused(refusal)
        finally:  # what follows in this iteration, writing and publishing, takes as much again
            rest_s = min(2 * (loop.time() - began), LARGE_BATCH_REST_S)
            loop.call_later(rest_s, self._large_batch.release)

    def _put_batch(
        self,
        header: SendMessageRequestHeader,
        config: TopicConfig,
        items: BatchColumns,
        connection: Connection,
    ) -> Reply:
        queue_id = self.check.queue_of(header, config)
        sys_flag = self.check.sys_flag_of(header, config)
        put = self._batch_writer.put(header, queue_id, sys_flag, items, connection.host)
        if put.status is not PutStatus.PUT_OK:
            return self.responses.not_stored(put.status)
        raw = (header.properties or "").encode()
        return self.responses.stored(put.phy_offsets, put.queue_offset, queue_id, raw)
