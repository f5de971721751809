"""Hot. The response to a send: where the message lies, or why the store refused it.

Java: SendMessageProcessor.handlePutMessageResult.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.broker.delivery.real_destination import destination_of
from cometmq.broker.delivery.timer_schedule import OUT_MS
from cometmq.broker.requests.status_codes import PUT_STATUS_CODES, PUT_STATUS_REMARKS
from cometmq.model.topic import is_retry_topic
from cometmq.net.handler import Reply
from cometmq.wire import recall_handle
from cometmq.wire.codes import ResponseCode
from cometmq.wire.headers.send import SendMessageResponseHeader
from cometmq.wire.recall_handle import RecallHandle
from cometmq.wire.records import message_id, properties

if TYPE_CHECKING:
    from cometmq.errors import Reject
    from cometmq.store.put_result import PutResult, PutStatus


class SendResponses:
    """Makes responses to sends."""

    def __init__(self, region: dict[str, str], store_host: bytes, broker_name: str) -> None:
        """`region`: the properties that each response carries, MSG_REGION among them."""
        self._broker_name = broker_name
        self._region = region
        self.store_host = store_host
        """This broker's address as message ids hold it."""

    def stored(self, phy_offsets: list[int], queue_offset: int, queue_id: int, raw: bytes) -> Reply:
        """The messages lie there now, and leave no sooner than they are durable.

        `raw`: the properties of the request.
        """
        uniq_key = properties.find(raw, b"UNIQ_KEY")
        header = SendMessageResponseHeader(
            msg_id=message_id.offset_ids(self.store_host, phy_offsets),
            queue_id=queue_id,
            queue_offset=queue_offset,
            transaction_id=uniq_key.decode("utf-8", "replace") if uniq_key else None,
            msg_region=self._region["MSG_REGION"],
            trace_on=True,
        )
        # waitStoreMsgOK of Java's Message: false asks for this broker's own copy only
        local_only = properties.find(raw, b"WAIT") == b"false" if b"WAIT\x01" in raw else False
        return Reply(ResponseCode.SUCCESS, header, durable=True, local_only=local_only)

    def timer_stored(self, placed: PutResult, queue_id: int, raw: bytes) -> Reply:
        """The same for a message at a time of its own, with the handle to recall it by.

        `raw`: the properties as they are stored.
        """
        reply = self.stored([placed.phy_offset], placed.queue_offset, queue_id, raw)
        header = reply.header
        assert isinstance(header, SendMessageResponseHeader)
        topic, _ = destination_of(raw)
        slot_ms = int(properties.find(raw, OUT_MS) or b"0")
        if not is_retry_topic(topic) and header.transaction_id:
            handle = RecallHandle(topic, self._broker_name, slot_ms + 1, header.transaction_id)
            header.recall_handle = recall_handle.encode(handle)
        return reply

    def not_stored(self, status: PutStatus) -> Reply:
        """The store did not take the message."""
        return Reply(PUT_STATUS_CODES[status], remark=PUT_STATUS_REMARKS[status], ext=self._region)

    def refused(self, refusal: Reject) -> Reply:
        """The send did not pass a check."""
        return Reply(refusal.code, remark=refusal.remark, ext=self._region)
