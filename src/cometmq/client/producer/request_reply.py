"""Requests that want a reply: a message out, another one back to this client.

Owns the waiting for replies and their making; refuses to know queues and retries (`sends`).
Invariant: a request ends once, with its reply or at its deadline; a reply nobody waits for any more
is dropped. Bounded by `WAITING_MAX`.
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
from cometmq.wire import sysflag
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import response
from cometmq.wire.compression import inflate
from cometmq.wire.headers.send import ReplyMessageRequestHeader

if TYPE_CHECKING:
    from cometmq.client.producer.send_pipeline import Sends
    from cometmq.client.session.client_options import ProducerOptions
    from cometmq.model.queue import MessageQueue
    from cometmq.model.results import SendResult
    from cometmq.net.channel import Channel
    from cometmq.wire.command import Command

log = logging.getLogger(__name__)

WAITING_MAX = 65_535
"""Requests that may wait for their replies."""
TOPICS_MAX = 4096
REPLY = "reply"


class Requests:
    """The requests of one started producer. One loop owns it."""

    def __init__(self, sends: Sends, options: ProducerOptions) -> None:
        self._sends, self._core, self._options = sends, sends.core, options
        self._waiting: dict[str, asyncio.Future[MessageExt]] = self._core.waiting
        self._greeted: set[str] = set()
        self._core.answers[RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT] = self._replied

    async def ask(self, message: Message, timeout_s: float) -> MessageExt:
        """Send a message and wait for the reply to it."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        if len(self._waiting) >= WAITING_MAX:
            raise TooManyRequests(f"{WAITING_MAX} requests wait for their replies")
        now_ms = self._core.clock.now_ms()
        correlation_id = msg_id = self._core.uniq_keys.take(now_ms)
        extra = {
            Property.CORRELATION_ID: correlation_id,
            Property.REPLY_TO_CLIENT: self._core.client_id,
            Property.TTL: str(max(1, int(timeout_s * 1000))),
        }
        prepared = self._sends.prepared(message, msg_id, now_ms, extra)
        reply: asyncio.Future[MessageExt] = loop.create_future()
        self._waiting[correlation_id] = reply
        try:
            async with asyncio.timeout_at(deadline):
                await self._greet(message.topic)
                await self._sends.in_turn(prepared, message, deadline)
                return await reply
        except TimeoutError as error:
            if isinstance(error, RemotingTimeout):
                raise
            raise RemotingTimeout(
                f"no reply to {msg_id} on {message.topic} within {timeout_s:.3g} s"
            ) from None
        finally:
            self._waiting.pop(correlation_id, None)

    async def reply(self, asked: MessageExt, body: bytes, timeout_s: float) -> SendResult:
        """Send the reply to a message by way of the broker it came from."""
        if not isinstance(asked, MessageExt):
            raise InvalidMessage(
                f"request must be a message as a consumer gets it, not {asked!r:.80}"
            )
        deadline = asyncio.get_running_loop().time() + timeout_s
        wanted = asked.properties
        cluster, client = wanted.get(Property.CLUSTER), wanted.get(Property.REPLY_TO_CLIENT)
        correlation_id = wanted.get(Property.CORRELATION_ID)
        if not (cluster and client and correlation_id):
            raise InvalidMessage(f"{asked.msg_id} is no request: nobody waits for a reply to it")
        extra = {
            Property.MSG_TYPE: REPLY,
            Property.CORRELATION_ID: correlation_id,
            Property.REPLY_TO_CLIENT: client,
            Property.TTL: wanted.get(Property.TTL, ""),
        }
        message = Message(cluster + REPLY_TOPIC_SUFFIX, body)
        now_ms = self._core.clock.now_ms()
        msg_id = self._core.uniq_keys.take(now_ms)
        prepared = self._sends.prepared(message, msg_id, now_ms, extra)
        prepared = prepared._replace(code=RequestCode.SEND_REPLY_MESSAGE_V2)
        queue = await self._queue_at(message.topic, asked.broker_name)
        return await self._sends.deliver(prepared, message, queue, deadline)

    async def _queue_at(self, topic: str, broker_name: str) -> MessageQueue | None:
        """A queue of the broker that the asking client is connected to."""
        queues = await self._core.routes.publish_queues(topic, self._options.default_topic_queues)
        return next((queue for queue in queues if queue.broker_name == broker_name), None)

    async def _greet(self, topic: str) -> None:
        """Let all brokers of the topic know this client before one of them has a reply for it."""
        if topic not in self._greeted:
            await self._core.routes.publish_queues(topic, self._options.default_topic_queues)
            await self._core.heartbeat()
            if len(self._greeted) >= TOPICS_MAX:
                self._greeted.clear()
            self._greeted.add(topic)

    def _replied(self, command: Command, channel: Channel) -> None:
        """A broker brings a reply (called by the connection)."""
        try:
            header = ReplyMessageRequestHeader.decode(command.ext)
            message = _message_of(header, command.body)
        except CometError as error:
            log.warning("a reply from %s cannot be read: %s", channel.addr, error)
            channel.answer(response(command.opaque, ResponseCode.SYSTEM_ERROR, remark=str(error)))
            return
        correlation_id = message.properties.get(Property.CORRELATION_ID, "")
        waiter = self._waiting.pop(correlation_id, None)
        if waiter is None:
            log.info("a reply to %s came when nobody waited for it", correlation_id)
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
        _packed(header.born_host),
        header.store_timestamp,
        _packed(header.store_host),
        0,
        header.broker_name or "",
    )


def _packed(addr: str) -> bytes:
    """An "ip:port" as a record holds it; of what is none the unspecified address."""
    host, _, port = addr.strip("/").rpartition(":")
    try:
        return ipaddress.ip_address(host.strip("[]")).packed + int(port).to_bytes(4, "big")
    except (ValueError, OverflowError):
        return bytes(8)
