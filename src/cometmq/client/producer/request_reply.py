"""Requests and replies: a message is sent, and its consumer sends another one back to this client.

Owns the pending requests and the making of replies; refuses to know queues and retries
(`send_pipeline`). Invariant: a request ends once, with its reply or at its deadline; a reply that
comes after that is dropped. Bounded by `PENDING_MAX`.
Java: DefaultMQProducerImpl.request, RequestFutureHolder, MessageUtil.createReplyMessage
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from typing import TYPE_CHECKING

from cometmq.errors import (
    CometError,
    InvalidMessage,
    RemotingTimeout,
    TooManyRequests,
)
from cometmq.model.message import Message, MessageExt, Property
from cometmq.model.topic import REPLY_TOPIC_SUFFIX
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import response
from cometmq.wire.compression import inflate
from cometmq.wire.headers.send import ReplyMessageRequestHeader
from cometmq.wire.records import sysflag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cometmq.client.producer.producer_options import ProducerOptions
    from cometmq.client.producer.send_pipeline import SendPipeline
    from cometmq.model.queue import MessageQueue
    from cometmq.model.results import SendResult
    from cometmq.net.channel import Channel
    from cometmq.wire.command import Command

log = logging.getLogger(__name__)

PENDING_MAX = 65_535
"""Requests that may wait for their replies at once."""
TOPICS_MAX = 4096
"""Topics that are remembered as announced to; one more forgets all of them."""
REPLY = "reply"


class RequestReply:
    """The requests and replies of one started producer. One loop owns it."""

    def __init__(self, pipeline: SendPipeline, options: ProducerOptions) -> None:
        self._pipeline = pipeline
        self._session = pipeline.session
        self._options = options
        self._pending: dict[str, asyncio.Future[MessageExt]] = self._session.pending_replies
        self._announced: set[str] = set()
        self._session.request_handlers[RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT] = self._on_reply

    async def request(self, message: Message, timeout_s: float) -> MessageExt:
        """Send a message and wait for the reply to it."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        if len(self._pending) >= PENDING_MAX:
            raise TooManyRequests(f"{PENDING_MAX} requests wait for their replies")
        now_ms = self._session.clock.now_ms()
        correlation_id = msg_id = self._session.uniq_keys.next_key(now_ms)
        extra = {
            Property.CORRELATION_ID: correlation_id,
            Property.REPLY_TO_CLIENT: self._session.client_id,
            Property.TTL: str(max(1, int(timeout_s * 1000))),
        }

        async def send() -> SendResult:
            prepared = self._pipeline.prepare(message, msg_id, now_ms, extra)
            await self._announce(message.topic)
            return await self._pipeline.send_prepared(prepared, message, deadline)

        reply: asyncio.Future[MessageExt] = loop.create_future()
        self._pending[correlation_id] = reply
        try:
            async with asyncio.timeout_at(deadline):
                await self._pipeline.with_hooks("request", message, send)
                return await reply
        except TimeoutError as error:
            if isinstance(error, RemotingTimeout):
                raise
            raise RemotingTimeout(
                f"no reply to {msg_id} on {message.topic} within {timeout_s:.3g} s"
            ) from None
        finally:
            self._pending.pop(correlation_id, None)

    async def reply(
        self,
        asked: MessageExt,
        body: bytes,
        timeout_s: float,
        properties: Mapping[str, str] | None = None,
    ) -> SendResult:
        """Send the reply to a message through the broker it came from."""
        if not isinstance(asked, MessageExt):
            raise InvalidMessage(
                f"request must be a message as a consumer gets it, not {asked!r:.80}"
            )
        deadline = asyncio.get_running_loop().time() + timeout_s
        found = asked.properties
        cluster = found.get(Property.CLUSTER)
        client = found.get(Property.REPLY_TO_CLIENT)
        correlation_id = found.get(Property.CORRELATION_ID)
        if not (cluster and client and correlation_id):
            raise InvalidMessage(f"{asked.msg_id} is no request: nobody waits for a reply to it")
        extra = {
            Property.MSG_TYPE: REPLY,
            Property.CORRELATION_ID: correlation_id,
            Property.REPLY_TO_CLIENT: client,
            Property.TTL: found.get(Property.TTL, ""),
        }
        message = Message(cluster + REPLY_TOPIC_SUFFIX, body, properties=properties)
        now_ms = self._session.clock.now_ms()
        msg_id = self._session.uniq_keys.next_key(now_ms)

        async def send() -> SendResult:
            prepared = self._pipeline.prepare(message, msg_id, now_ms, extra)
            prepared = prepared._replace(code=RequestCode.SEND_REPLY_MESSAGE_V2)
            queue = await self._queue_at(message.topic, asked.broker_name)
            return await self._pipeline.deliver(prepared, message, queue, deadline)

        return await self._pipeline.with_hooks("reply", message, send)

    async def _queue_at(self, topic: str, broker_name: str) -> MessageQueue | None:
        """A queue of the broker that the requesting client is connected to."""
        queues = await self._session.routes.publish_queues(
            topic, self._options.default_topic_queues
        )
        return next((queue for queue in queues if queue.broker_name == broker_name), None)

    async def _announce(self, topic: str) -> None:
        """Send all brokers of the topic a heartbeat: one of them has to route the reply here."""
        if topic not in self._announced:
            await self._session.routes.publish_queues(topic, self._options.default_topic_queues)
            await self._session.heartbeat()
            if len(self._announced) >= TOPICS_MAX:
                self._announced.clear()
            self._announced.add(topic)

    def _on_reply(self, command: Command, channel: Channel) -> None:
        """A broker delivers a reply (called by the connection)."""
        try:
            header = ReplyMessageRequestHeader.decode(command.ext)
            message = _message_of(header, command.body)
        except CometError as error:
            log.warning("a reply from %s cannot be read: %s", channel.addr, error)
            channel.answer(response(command.opaque, ResponseCode.SYSTEM_ERROR, remark=str(error)))
            return
        correlation_id = message.properties.get(Property.CORRELATION_ID, "")
        waiter = self._pending.pop(correlation_id, None)
        if waiter is None:
            log.info("a reply to %s came after its request had ended", correlation_id)
        elif not waiter.done():
            waiter.set_result(message)
        if not command.is_oneway:
            channel.answer(response(command.opaque, ResponseCode.SUCCESS))


def _message_of(header: ReplyMessageRequestHeader, body: bytes) -> MessageExt:
    raw = (header.properties or "").encode()
    flags = header.sys_flag
    return MessageExt(
        header.topic,
        header.queue_id,
        0,
        inflate(body, flags),
        raw,
        header.reconsume_times or 0,
        header.flag,
        flags & ~sysflag.COMPRESSED,
        0,
        header.born_timestamp,
        _packed_host(header.born_host),
        header.store_timestamp,
        _packed_host(header.store_host),
        0,
        header.broker_name or "",
    )


def _packed_host(addr: str) -> bytes:
    """An "ip:port" as a record holds it; the unspecified address for any other text."""
    host, _, port = addr.strip("/").rpartition(":")
    try:
        return ipaddress.ip_address(host.strip("[]")).packed + int(port).to_bytes(4, "big")
    except (ValueError, OverflowError):
        return bytes(8)
