"""Hot. SEND_MESSAGE, its short form and batches (10, 310, 320): admit, complete, put, answer.

Owns the checks of a sender, in RocketMQ's order and with its codes, and the properties a broker
adds. Refuses to know files: the store places the record, and the dispatcher holds the answer until
it is as safe as promised. Delays, dead letters and transactions have files of their own.
Invariant: a message that was answered with 0, 10, 11 or 12 lies in the log, any other does not.
Java: SendMessageProcessor, AbstractSendMessageProcessor.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from cometmq.broker.delivery.transactions import is_half_message
from cometmq.broker.messages.status_codes import PUT_STATUS_CODES, PUT_STATUS_REMARKS
from cometmq.broker.messages.tag_codes import delay_level
from cometmq.errors import ProtocolError, Reject
from cometmq.model import topic as names
from cometmq.net.endpoint import Effect, Endpoint, header_resources
from cometmq.net.handler import Reply
from cometmq.rules import permission
from cometmq.rules.name_validation import topic_name_problem
from cometmq.store.results import MessageDraft, PutStatus
from cometmq.wire import message_batch, message_id, properties, sysflag
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.send import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.broker.cluster.topics import Topics
    from cometmq.broker.delivery.dead_letters import DeadLetterQueues
    from cometmq.broker.delivery.delayed_messages import DelayedMessages
    from cometmq.broker.delivery.transactions import Transactions
    from cometmq.broker.groups.consumer_groups import ConsumerGroups
    from cometmq.broker.groups.queue_locks import QueueLocks
    from cometmq.broker.metrics.broker_stats import BrokerStats
    from cometmq.model.topic import TopicConfig
    from cometmq.net.connection import Connection
    from cometmq.settings.broker import BrokerSettings
    from cometmq.store.log.record_template import RecordPositions
    from cometmq.store.message_store import MessageStore
    from cometmq.store.results import PutResult
    from cometmq.wire.command import Command
    from cometmq.wire.message_batch import BatchItem

MAX_RECONSUME_SINCE = 121
"""Clients of this version and later say themselves how often a message may be tried."""

_COPIED_MARKS = (b"MSG_REGION\x01", b"CLUSTER\x01")
"""What a message carries that was taken out of a broker and is sent again."""
_TIMER_MARK = b"TIMER_DEL"
_TRANSIENT_MARK = b"__RMQ.TRANSIENT."
_SPECIAL_MARKS = (
    *_COPIED_MARKS,
    *(b"POP_CK\x01", properties.CRC32_KEY, _TRANSIENT_MARK, b"INNER_NUM\x01", b"DELAY\x01"),
    *(_TIMER_MARK, b"TRAN_MSG\x01"),
)
"""What a message cannot carry that is stored as it came."""


class SendHandler:
    """Answers 10, 310 and 320."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        groups: ConsumerGroups,
        locks: QueueLocks,
        delayed_messages: DelayedMessages,
        dead_letters: DeadLetterQueues,
        transactions: Transactions,
        stats: BrokerStats,
        settings: BrokerSettings,
        next_key: Callable[[], str],
        store_host: bytes,
    ) -> None:
        self._store, self._topics, self._groups = store, topics, groups
        self._locks, self._delayed_messages, self._dead_letters = (
            locks,
            delayed_messages,
            dead_letters,
        )
        self._transactions, self._stats, self._settings = transactions, stats, settings
        self._next_key, self.store_host = next_key, store_host
        self._turns = count()
        self._region = {"MSG_REGION": settings.region_id, "TRACE_ON": "true"}
        self.tail = properties.encode({**self._region, "CLUSTER": settings.broker_cluster_name})

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(
                RequestCode.SEND_MESSAGE, self, Effect.MUTATING | Effect.DURABLE | Effect.CREATING
            ),
            Endpoint(
                RequestCode.SEND_MESSAGE_V2,
                self,
                Effect.MUTATING | Effect.DURABLE | Effect.CREATING,
                resources=header_resources(topics=("b",), groups=("a",)),
            ),
            Endpoint(
                RequestCode.SEND_BATCH_MESSAGE,
                self,
                Effect.MUTATING | Effect.DURABLE | Effect.CREATING,
                resources=header_resources(topics=("b",), groups=("a",)),
            ),
        )

    def adjust(self, settings: BrokerSettings) -> None:
        """Work with these settings from now on."""
        self._settings = settings

    def __call__(self, request: Command, connection: Connection) -> Reply:
        """Store what the request carries and answer where it lies."""
        v1 = request.code == RequestCode.SEND_MESSAGE
        header = (SendMessageRequestHeader if v1 else SendMessageRequestHeaderV2).decode(
            request.ext
        )
        try:
            config = self.admit(header)
            if header.batch or request.code == RequestCode.SEND_BATCH_MESSAGE:
                return self._send_batch(header, config, request.body, connection)
            return self._send_one(header, config, request, connection)
        except Reject as refusal:
            return Reply(refusal.code, remark=refusal.remark, ext=self._region)

    def admit(self, header: SendMessageRequestHeader) -> TopicConfig:
        """The topic to send to, created where that is allowed; raises Reject."""
        name = header.topic
        config = self._topics.get(name)
        if config and config.order and not permission.is_writable(self._settings.broker_permission):
            raise Reject(ResponseCode.NO_PERMISSION, "this broker does not let anyone write")
        if config is None and (problem := topic_name_problem(name)):
            raise Reject(ResponseCode.INVALID_PARAMETER, problem)
        if name in names.SEND_FORBIDDEN_TOPICS:
            raise Reject(ResponseCode.NO_PERMISSION, f"clients may not send to the topic {name}")
        if config is None:
            config = self._topics.create_for_send(
                name,
                header.default_topic,
                header.default_topic_queue_nums,
                unit_mode=bool(header.unit_mode),
            )
        if config is None:
            raise Reject(
                ResponseCode.TOPIC_NOT_EXIST,
                f"the topic {name} does not exist on this broker and may not be created by a send",
            )
        queues = max(config.write_queue_nums, config.read_queue_nums)
        if header.queue_id >= queues:
            raise Reject(
                ResponseCode.INVALID_PARAMETER,
                f"queue {header.queue_id} of {name} does not exist; there are {queues}, from 0",
            )
        return config

    def sys_flag_of(self, header: SendMessageRequestHeader, config: TopicConfig) -> int:
        """The flag a message is stored with; raises Reject for kinds that are not supported."""
        sys_flag = header.sys_flag
        if sys_flag & sysflag.INNER_BATCH:
            raise _illegal("a batch in one record needs a topic of batches, which is not supported")
        return (
            sys_flag | sysflag.MULTI_TAGS if config.topic_filter_type == "MULTI_TAG" else sys_flag
        )

    def complete(self, raw: bytes) -> bytes:
        """A sender's properties as they are stored: with what a broker adds."""
        raw = self.cleaned(raw)
        if properties.find(raw, b"UNIQ_KEY") is None:
            raw = properties.append(raw, b"UNIQ_KEY", self._next_key().encode())
        elif raw[-1] != 2:
            raw += b"\x02"
        return raw + self.tail

    @staticmethod
    def cleaned(raw: bytes) -> bytes:
        """A sender's properties without those that a broker sets or that only it heeds."""
        if any(b"\x02" + mark in raw or raw.startswith(mark) for mark in _COPIED_MARKS):
            for key in (b"MSG_REGION", b"TRACE_ON", b"CLUSTER"):
                raw = properties.remove(raw, key)
        if b"POP_CK\x01" in raw:
            raw = properties.remove(raw, b"POP_CK")
        if b"__CRC32#\x01" in raw:
            raw = properties.remove(raw, b"__CRC32#")
        if _TRANSIENT_MARK in raw:
            raw = _without_transient(raw)
        return raw

    def _send_one(
        self,
        header: SendMessageRequestHeader,
        config: TopicConfig,
        request: Command,
        connection: Connection,
    ) -> Reply:
        queue_id = self.queue_of(header, config)
        raw = self.complete((header.properties or "").encode())
        draft = MessageDraft(
            header.topic,
            queue_id,
            request.body,
            raw,
            flag=header.flag,
            sys_flag=self.sys_flag_of(header, config),
            born_ms=header.born_timestamp,
            born_host=connection.host,
            reconsume_times=header.reconsume_times or 0,
        )
        self._check_content(draft)
        if names.is_retry_topic(draft.topic) and self._is_exhausted(header, request.version):
            return self._send_to_dead_letters(draft)
        if b"TRAN_MSG\x01" in raw and is_half_message(draft):
            self._set_aside(draft)
        else:
            self._check_is_whole(draft)
            self._delayed_messages.schedule(draft)
        placed = self._store.put(draft)
        if placed.status is PutStatus.PUT_OK:
            self._stats.count_put(draft.topic, 1, placed.size)
            if draft.topic == names.SCHEDULE_TOPIC:
                self._stats.count_delayed(draft.topic, draft.queue_id, placed.size)
        return self._answer(placed.status, [placed], queue_id, raw)

    def _send_batch(
        self,
        header: SendMessageRequestHeader,
        config: TopicConfig,
        body: bytes,
        connection: Connection,
    ) -> Reply:
        if len(header.topic) > names.TOPIC_NAME_MAX or names.is_retry_topic(header.topic):
            raise _illegal(
                "a batch goes neither to a retry topic nor to one of more than 127 bytes"
            )
        if len(body) > self._settings.max_message_size:
            raise Reject(
                ResponseCode.SYSTEM_ERROR,
                f"the batch has {len(body)} bytes, the limit is {self._settings.max_message_size}",
            )
        try:
            items = message_batch.decode(body)
        except ProtocolError as error:
            raise _illegal(str(error)) from error
        if not items:
            raise _illegal("the batch holds no message")
        queue_id = self.queue_of(header, config)
        flags = self.sys_flag_of(header, config)
        raw = (header.properties or "").encode()
        places = self._put_plain(header, queue_id, flags, body, items, connection)
        if places is not None:
            self._stats.count_put(header.topic, len(items), places.size)
            return self._stored(places.phy_offsets, places.queue_offsets[0], queue_id, raw)
        drafts = self._drafts(header, queue_id, flags, items, connection)
        placed = self._store.put_batch(drafts)
        status = placed[0].status
        if status is PutStatus.PUT_OK:
            self._stats.count_put(header.topic, len(placed), sum(place.size for place in placed))
        return self._answer(status, placed, queue_id, raw)

    def _drafts(
        self,
        header: SendMessageRequestHeader,
        queue_id: int,
        flags: int,
        items: list[BatchItem],
        connection: Connection,
    ) -> list[MessageDraft]:
        """The messages of a batch, each checked by itself; raises Reject."""
        times = header.reconsume_times or 0
        drafts = [
            MessageDraft(
                header.topic,
                queue_id,
                item.body,
                self.cleaned(item.properties),  # Apache adds nothing to these
                flag=item.flag,
                sys_flag=flags,
                born_ms=header.born_timestamp,
                born_host=connection.host,
                reconsume_times=times,
            )
            for item in items
        ]
        for draft in drafts:
            self._check_content(draft)
            self._check_is_whole(draft)
            if b"TRAN_MSG\x01" in draft.properties and is_half_message(draft):
                raise _illegal("a batch holds a half message; send that one by itself")
            if delay_level(draft.properties) > 0:
                raise _illegal("a batch holds a message with a delay; send that one by itself")
        return drafts

    def _put_plain(
        self,
        header: SendMessageRequestHeader,
        queue_id: int,
        flags: int,
        body: bytes,
        items: list[BatchItem],
        connection: Connection,
    ) -> RecordPositions | None:
        """Store messages that need nothing special as they came; None: they take the long way.

        Measured with eight batches of 32 under way: 79 k/s where it had been 49.
        """
        if any(mark in body for mark in _SPECIAL_MARKS) or not sysflag.is_queued(flags):
            return None
        bodies, flag = [item.body for item in items], items[0].flag
        if not all(bodies) or {item.flag for item in items} != {flag}:
            return None
        tags_code_of, raws = self._store.tags_code, [item.properties for item in items]
        lane = self._store.record_template(
            *(header.topic, queue_id + 1),
            flag=flag,
            sys_flag=flags,
            born_host=connection.host,
            reconsume_times=header.reconsume_times or 0,
        )
        codes = [tags_code_of(header.topic, raw, 0) for raw in raws]
        return lane.put_batch(queue_id, header.born_timestamp, bodies, raws, codes)

    def queue_of(self, header: SendMessageRequestHeader, config: TopicConfig) -> int:
        """The queue asked for, or for a number below 0 each in turn."""
        if header.queue_id >= 0:
            return header.queue_id
        return next(self._turns) % max(1, config.write_queue_nums)

    def _check_content(self, draft: MessageDraft) -> None:
        raw, settings = draft.properties, self._settings
        if not draft.body:
            raise _illegal("the body is empty")
        if len(draft.body) > settings.max_message_size:
            raise _illegal(
                f"the body has {len(draft.body)} bytes, the limit is {settings.max_message_size}"
            )
        if b"INNER_NUM\x01" in raw and properties.find(raw, b"INNER_NUM"):
            raise _illegal("the property INNER_NUM marks a batch in one record, which this is not")
        if b"DELAY\x01" in raw:
            _check_delay(raw)
        if _TIMER_MARK in raw and delay_level(raw) <= 0:
            _refuse_timer(raw)

    def _set_aside(self, draft: MessageDraft) -> None:
        if self._settings.reject_transaction_message:
            raise Reject(
                ResponseCode.NO_PERMISSION,
                "the broker takes no transactional messages: rejectTransactionMessage is set",
            )
        self._transactions.make_half(draft)

    @staticmethod
    def _check_is_whole(draft: MessageDraft) -> None:
        if not sysflag.is_queued(draft.sys_flag):  # it would be stored and never seen
            raise _illegal("the flag says that the message is half, the property TRAN_MSG does not")

    def _is_exhausted(self, header: SendMessageRequestHeader, version: int) -> bool:
        group = header.topic.removeprefix(names.RETRY_PREFIX)
        config = self._groups.admit(group)
        times_max = config.retry_max_times
        if version >= MAX_RECONSUME_SINCE and header.max_reconsume_times is not None:
            times_max = header.max_reconsume_times
        return (header.reconsume_times or 0) > times_max or self._locks.is_any_held(group)

    def _send_to_dead_letters(self, draft: MessageDraft) -> Reply:
        group = draft.topic.removeprefix(names.RETRY_PREFIX)
        raw = properties.remove(draft.properties, b"DELAY")
        draft.properties = properties.append(raw, b"DELAY", b"-1")
        placed = self._dead_letters.put(group, draft)
        return self._answer(placed.status, [placed], draft.queue_id, draft.properties)

    def _answer(
        self, status: PutStatus, placed: list[PutResult], queue_id: int, raw: bytes
    ) -> Reply:
        code = PUT_STATUS_CODES[status]
        if status is not PutStatus.PUT_OK:
            return Reply(code, remark=PUT_STATUS_REMARKS[status], ext=self._region)
        return self._stored(
            [place.phy_offset for place in placed], placed[0].queue_offset, queue_id, raw
        )

    def _stored(
        self, phy_offsets: list[int], queue_offset: int, queue_id: int, raw: bytes
    ) -> Reply:
        """The answer to who sent what lies there now; `raw` are the properties of the request."""
        uniq_key = properties.find(raw, b"UNIQ_KEY")
        header = SendMessageResponseHeader(
            msg_id=message_id.offset_ids(self.store_host, phy_offsets),
            queue_id=queue_id,
            queue_offset=queue_offset,
            transaction_id=uniq_key.decode("utf-8", "replace") if uniq_key else None,
            msg_region=self._settings.region_id,
            trace_on=True,
        )
        return Reply(ResponseCode.SUCCESS, header, durable=True)


def _check_delay(raw: bytes) -> None:
    level = properties.find(raw, b"DELAY") or b"0"
    is_number = level.removeprefix(b"-").isdigit() and len(level) < 12
    if not is_number or abs(int(level)) >= 1 << 31:
        text = level[:32].decode("utf-8", "replace")
        raise Reject(ResponseCode.SYSTEM_ERROR, f"the delay level {text!r} is no number")


def _refuse_timer(raw: bytes) -> None:
    for key in (b"TIMER_DELIVER_MS", b"TIMER_DELAY_MS", b"TIMER_DELAY_SEC", b"TIMER_DEL_UNIQKEY"):
        if properties.find(raw, key):
            raise Reject(
                ResponseCode.SYSTEM_ERROR,
                "messages at arbitrary times are not supported by this broker; use a delay level",
            )


def _without_transient(raw: bytes) -> bytes:
    kept = [item for item in raw.split(b"\x02") if item and not item.startswith(_TRANSIENT_MARK)]
    return b"".join([item + b"\x02" for item in kept])


def _illegal(remark: str) -> Reject:
    return Reject(ResponseCode.MESSAGE_ILLEGAL, remark)
