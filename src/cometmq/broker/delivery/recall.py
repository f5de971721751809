"""RECALL_MESSAGE (370): takes back a message at a time of its own that is not due yet.

A recall is a message of the timer topic for the slot of the one that it takes back; that slot then
leaves the named message out. Whether there is such a message is known only then.
Java: RecallMessageProcessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.broker.delivery.timer_schedule import RECALL_KEY
from cometmq.broker.requests.status_codes import PUT_STATUS_REMARKS
from cometmq.errors import ProtocolError, Reject
from cometmq.net.endpoint import Endpoint, RequestEffect
from cometmq.net.handler import Reply
from cometmq.rules import permission, timer_times
from cometmq.store.message_draft import MessageDraft
from cometmq.store.put_result import PutStatus
from cometmq.wire import recall_handle
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader
from cometmq.wire.records import properties

if TYPE_CHECKING:
    from cometmq.broker.cluster.topics import Topics
    from cometmq.broker.delivery.timer_schedule import TimerSchedule
    from cometmq.broker.metrics.broker_stats import BrokerStats
    from cometmq.net.connection import Connection
    from cometmq.settings.broker import BrokerSettings
    from cometmq.store.message_store import MessageStore
    from cometmq.wire.command import Command
    from cometmq.wire.recall_handle import RecallHandle


class RecallHandler:
    """Answers 370."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        timer_schedule: TimerSchedule,
        stats: BrokerStats,
        settings: BrokerSettings,
    ) -> None:
        self._store = store
        self._topics = topics
        self._timer_schedule = timer_schedule
        self._stats = stats
        self._settings = settings

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        effects = RequestEffect.MUTATING | RequestEffect.DURABLE
        return (Endpoint(RequestCode.RECALL_MESSAGE, self, effects),)

    def adjust(self, settings: BrokerSettings) -> None:
        """Work with these settings from now on."""
        self._settings = settings

    def __call__(self, request: Command, connection: Connection) -> Reply:
        """Put the recall, or say why not."""
        try:
            return self._recall(request, connection)
        except Reject as refusal:
            region = {"MSG_REGION": self._settings.region_id}
            return Reply(refusal.code, remark=refusal.remark, ext=region)

    def _recall(self, request: Command, connection: Connection) -> Reply:
        self._check_allowed()
        header = RecallMessageRequestHeader.decode(request.ext)
        if self._topics.get(header.topic) is None:
            raise Reject(ResponseCode.TOPIC_NOT_EXIST, f"the topic {header.topic} does not exist")
        handle = self._handle_of(header)
        now_ms = self._store.current_store_ms()
        raw = properties.encode(
            {
                "UNIQ_KEY": handle.uniq_key,
                "TAGS": "_RECALL_TAG_",
                timer_times.DELIVER_MS.decode(): str(handle.slot_ms),
                RECALL_KEY.decode(): handle.uniq_key,
                "PGROUP": header.producer_group or "",
                "BORN_TIMESTAMP": str(now_ms),
            }
        )
        draft = MessageDraft(handle.topic, 0, b"0", raw, born_ms=now_ms, born_host=connection.host)
        self._timer_schedule.apply(draft)
        placed = self._store.put(draft)
        if placed.status is not PutStatus.PUT_OK:
            raise Reject(ResponseCode.SYSTEM_ERROR, PUT_STATUS_REMARKS[placed.status])
        self._stats.count_put(draft.topic, 1, placed.size)
        response = RecallMessageResponseHeader(msg_id=handle.uniq_key)
        ext = {"MSG_REGION": self._settings.region_id}
        return Reply(ResponseCode.SUCCESS, response, ext=ext, durable=True)

    def _check_allowed(self) -> None:
        settings = self._settings
        if not settings.recall_message_enable:
            raise Reject(
                ResponseCode.NO_PERMISSION,
                "this broker recalls no messages; its setting recallMessageEnable allows it",
            )
        may_write = permission.is_writable(settings.broker_permission)
        if not may_write and not settings.allow_recall_when_broker_not_writeable:
            raise Reject(
                ResponseCode.SERVICE_NOT_AVAILABLE, "this broker does not let anyone write"
            )

    def _handle_of(self, header: RecallMessageRequestHeader) -> RecallHandle:
        try:
            handle = recall_handle.decode(header.recall_handle)
        except ProtocolError as problem:
            raise _illegal(str(problem)) from None
        if handle.topic != header.topic:
            raise _illegal(f"the handle is of the topic {handle.topic}, not {header.topic}")
        if handle.broker_name != self._settings.broker_name:
            raise _illegal(f"the handle is of the broker {handle.broker_name}: ask that one")
        if handle.slot_ms <= self._store.current_store_ms():
            raise _illegal("the message was due before")
        return handle


def _illegal(remark: str) -> Reject:
    return Reject(ResponseCode.ILLEGAL_OPERATION, remark)
