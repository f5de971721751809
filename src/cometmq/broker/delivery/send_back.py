"""CONSUMER_SEND_MSG_BACK (36): a message that a consumer failed on is retried or dead-lettered.

Stores a copy of the message: in the group's retry topic by way of a delay level, or in its
dead-letter queue after the last attempt or when its properties leave no room for ours. The original
stays where it is.
Invariant: response code 0 means that the copy is as durable as a sent message.
Java: AbstractSendMessageProcessor.consumerSendMsgBack.
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from cometmq.broker.delivery.property_limit import BYTES_MAX, fit_properties
from cometmq.broker.sends.single_message_writer import attempts_max
from cometmq.errors import ProtocolError, Reject
from cometmq.model import topic as names
from cometmq.net.endpoint import Endpoint, RequestEffect, header_resources
from cometmq.net.handler import Reply
from cometmq.rules import permission
from cometmq.rules.failures.retry_policy import (
    REASON_CHARS_MAX,
    attempts_exhausted,
    policy_delay_ms,
    retry_delay_level,
)
from cometmq.store.message_draft import MessageDraft
from cometmq.store.put_result import PutStatus
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.retry import ConsumerSendMsgBackRequestHeader
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import message_id, properties

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cometmq.broker.cluster.topics import Topics
    from cometmq.broker.delivery.dead_letters import DeadLetterQueues, NewestDeadLetters
    from cometmq.broker.delivery.delayed_messages import DelayedMessages
    from cometmq.broker.groups.consumer_groups import ConsumerGroups
    from cometmq.broker.metrics.broker_stats import BrokerStats
    from cometmq.model.group import SubscriptionGroupConfig
    from cometmq.net.admission import FoundAdmission
    from cometmq.net.connection import Connection
    from cometmq.settings.broker import BrokerSettings
    from cometmq.store.cold_read_context import ReadContext
    from cometmq.store.message_store import MessageStore
    from cometmq.store.put_result import PutResult
    from cometmq.wire.command import Command
    from cometmq.wire.records.log_record import StoredRecord

log = logging.getLogger(__name__)


class _SentBack(NamedTuple):
    """What was read for a request: the message, its copy, and, if that is dead, its history."""

    record: StoredRecord
    draft: MessageDraft
    becomes_dead_letter: bool = False
    has_no_room: bool = False
    origin: StoredRecord | None = None
    newest: NewestDeadLetters | None = None


class SendBackHandler:
    """Answers 36."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        groups: ConsumerGroups,
        delayed_messages: DelayedMessages,
        dead_letters: DeadLetterQueues,
        stats: BrokerStats,
        settings: BrokerSettings,
        now_ms: Callable[[], int],
        admit_found: FoundAdmission,
    ) -> None:
        """`admit_found` decides whether who sends a message back may read its topic."""
        self._admit_found = admit_found
        self._store = store
        self._topics = topics
        self._groups = groups
        self._delayed_messages = delayed_messages
        self._dead_letters = dead_letters
        self._stats = stats
        self._settings = settings
        self._now_ms = now_ms
        self._round_robin = count()

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(
                RequestCode.CONSUMER_SEND_MSG_BACK,
                self,
                RequestEffect.MUTATING | RequestEffect.DURABLE | RequestEffect.CREATING,
                resources=header_resources(topics=("originTopic",)),
            ),
        )

    def adjust(self, settings: BrokerSettings) -> None:
        """Work with these settings from now on."""
        self._settings = settings

    def __call__(self, request: Command, connection: Connection) -> Reply | Awaitable[Reply]:
        """Store the next attempt; raises Reject."""
        header = ConsumerSendMsgBackRequestHeader.decode(request.ext)
        group = self._groups.admit(header.group)
        if not permission.is_writable(self._settings.broker_permission):
            raise Reject(ResponseCode.NO_PERMISSION, "this broker does not let anyone write")
        if group.retry_queue_nums <= 0:
            return Reply()
        retry_topic = names.retry_topic_of(header.group)
        sys_flag = names.SUBSCRIBED_BY_UNIT if header.unit_mode else 0
        config = self._topics.ensure(retry_topic, group.retry_queue_nums, sys_flag=sys_flag)
        if not permission.is_writable(config.perm):
            raise Reject(ResponseCode.NO_PERMISSION, f"the topic {retry_topic} may not be written")
        times_max = attempts_max(group, request.version, header.max_reconsume_times)
        reason = request.ext.get("dlqReason")
        return self._store.cold_reader.prepare_and_apply(
            partial(self._prepare, header, times_max, reason),
            partial(self._apply, header, group, partial(self._admit_found, request, connection)),
        )

    def _prepare(
        self,
        header: ConsumerSendMsgBackRequestHeader,
        times_max: int,
        reason: str | None,
        context: ReadContext,
    ) -> _SentBack:
        record = _read_record(header.offset, context)
        draft = _next_attempt(record, header, reason)
        room = BYTES_MAX - _delay_properties_bytes(draft.topic)
        raw, left_out = fit_properties(draft.properties, room)
        # without what was left out, the handler would see another message
        if (
            not left_out
            and header.delay_level >= 0
            and not attempts_exhausted(record.reconsume_times, times_max)
        ):
            draft.properties = raw
            return _SentBack(record, draft)
        origin = _read_origin(record, context)
        newest = self._dead_letters.prepare(header.group, context)
        return _SentBack(record, draft, True, bool(left_out), origin, newest)

    def _apply(
        self,
        header: ConsumerSendMsgBackRequestHeader,
        group: SubscriptionGroupConfig,
        admit_found: Callable[[str], None],
        sent_back: _SentBack,
    ) -> Reply:
        record, draft = sent_back.record, sent_back.draft
        admit_found(record.topic)
        if sent_back.has_no_room:
            log.warning(
                "%s does not retry a message: its properties leave no room for ours", header.group
            )
        if sent_back.becomes_dead_letter:
            placed = self._put_dead_letter(header.group, sent_back)
        else:
            level = self._level_of(group, header.delay_level, record.reconsume_times)
            draft.properties = properties.put(draft.properties, b"DELAY", str(level).encode())
            draft.queue_id = next(self._round_robin) % group.retry_queue_nums
            self._delayed_messages.schedule(draft)
            placed = self._store.put(draft)
        if placed.status is not PutStatus.PUT_OK:
            raise Reject(ResponseCode.SYSTEM_ERROR, placed.status.name)
        self._stats.count_sent_back(header.group, record.topic)
        return Reply(durable=True)

    def _level_of(self, group: SubscriptionGroupConfig, asked: int, times: int) -> int:
        """The delay level of the next attempt: as asked for, else as the group's policy says."""
        delay_ms = None if asked > 0 else policy_delay_ms(group.group_retry_policy, times)
        if delay_ms is None:
            return retry_delay_level(asked, times)
        return self._delayed_messages.levels.nearest(delay_ms)

    def _put_dead_letter(self, group: str, sent_back: _SentBack) -> PutResult:
        record, draft, origin = sent_back.record, sent_back.draft, sent_back.origin
        added = {b"DELAY": 0, b"DLQ_ATTEMPTS": record.reconsume_times + 1}
        added[b"DLQ_FAILED_AT"] = self._now_ms()
        if origin is not None:
            added[b"DLQ_ORIGIN_QUEUE_ID"] = origin.queue_id
            added[b"DLQ_ORIGIN_OFFSET"] = origin.queue_offset
        for key, value in added.items():
            draft.properties = properties.put(draft.properties, key, b"%d" % value)
        draft.topic = record.topic
        return self._dead_letters.put(group, draft, sent_back.newest)


def _read_record(phy_offset: int, context: ReadContext) -> StoredRecord:
    record = context.record_at(phy_offset) if phy_offset >= 0 else None
    if record is None:
        raise Reject(
            ResponseCode.SYSTEM_ERROR,
            f"no whole message lies at {phy_offset}: it is deleted or damaged; send your copy",
        )
    return stored.decode(record)


def _next_attempt(
    record: StoredRecord, header: ConsumerSendMsgBackRequestHeader, reason: str | None
) -> MessageDraft:
    """The copy of a message for the group's retry topic."""
    raw = stored.shown_properties(record.properties)
    raw = properties.put(raw, b"WAIT", b"false")
    if properties.find(raw, b"RETRY_TOPIC") is None:
        raw = properties.append(raw, b"RETRY_TOPIC", record.topic.encode())
    if properties.find(raw, b"ORIGIN_MESSAGE_ID") is None:
        origin = message_id.offset_id(record.store_host, record.phy_offset)
        raw = properties.append(raw, b"ORIGIN_MESSAGE_ID", origin.encode())
    if reason:
        raw = properties.put(raw, b"DLQ_REASON", _reason_property(reason))
    draft = MessageDraft.copy_of(record, names.retry_topic_of(header.group), 0, raw)
    draft.reconsume_times += 1
    return draft


def _read_origin(record: StoredRecord, context: ReadContext) -> StoredRecord | None:
    """The first record of a chain of attempts, while it is still in the log."""
    first = properties.find(record.properties, b"ORIGIN_MESSAGE_ID")
    if first is None:
        return record
    try:
        host, phy_offset = message_id.parse_offset_id(first.decode("ascii", "replace"))
        found = context.record_at(phy_offset) if phy_offset >= 0 else None
        origin = stored.decode(found) if found else None
    except ProtocolError:
        return None
    return origin if origin and origin.store_host == host else None


def _delay_properties_bytes(retry_topic: str) -> int:
    """How much scheduling the next attempt adds to the properties, at most."""
    pairs = {"DELAY": "99", "REAL_TOPIC": retry_topic, "REAL_QID": str(0x7FFFFFFF)}
    return len(properties.encode(pairs))


def _reason_property(reason: str) -> bytes:
    """A reason as a property: short enough, without the separators."""
    text = reason[:REASON_CHARS_MAX].replace("\x01", " ").replace("\x02", " ")
    return text.encode("utf-8", "replace")
