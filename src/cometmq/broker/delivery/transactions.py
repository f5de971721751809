"""Transactions: half messages are stored apart until their producer commits or rolls back (37).

Turns a message into a half message of RMQ_SYS_TRANS_HALF_TOPIC, ends it by storing it in its own
topic or not at all, and notes that end in the op queue. `check_back` asks producers that did
neither.
Invariants: a committed message and the op message of its end are put in one loop iteration, so that
one write holds both; an uncommitted message lies in no queue that its topic's consumers read.
Java: EndTransactionProcessor, TransactionalMessageBridge, TransactionalMessageUtil.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cometmq.broker.delivery.real_destination import (
    destination_of,
    with_destination,
    without_destination,
)
from cometmq.broker.requests.status_codes import PUT_STATUS_REMARKS
from cometmq.broker.sends.tag_codes import delay_level
from cometmq.errors import ProtocolError, Reject
from cometmq.model.topic import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from cometmq.net.endpoint import Endpoint, RequestEffect
from cometmq.net.handler import Reply
from cometmq.rules.half_message import encode_op_body, is_end_too_late
from cometmq.store.message_draft import MessageDraft
from cometmq.store.put_result import PutStatus
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.transaction import (
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import message_id, properties, sysflag

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cometmq.broker.delivery.delayed_messages import DelayedMessages
    from cometmq.broker.delivery.timer_schedule import TimerSchedule
    from cometmq.broker.metrics.broker_stats import BrokerStats
    from cometmq.net.admission import FoundAdmission
    from cometmq.net.connection import Connection
    from cometmq.settings.broker import BrokerSettings
    from cometmq.store.cold_read_context import ReadContext
    from cometmq.store.message_store import MessageStore
    from cometmq.wire.command import Command
    from cometmq.wire.records.log_record import StoredRecord

COPIES_MAX = 100_000
"""Half messages whose last copy is remembered, for ends that name an older copy."""

ENDED_MAX = 100_000
"""Half messages whose end is remembered, so that a second commit puts no second message."""

CHECK_TIMES = b"TRANSACTION_CHECK_TIMES"
IMMUNITY = b"CHECK_IMMUNITY_TIME_IN_SECONDS"
GROWTH_BYTES = 100
"""Room that a half message's properties keep for what the checks add to them."""

_ENDS = (sysflag.TRANSACTION_COMMIT, sysflag.TRANSACTION_ROLLBACK)
_END_STATUS_CODES = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.SUCCESS,
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.OS_PAGE_CACHE_BUSY: ResponseCode.SYSTEM_ERROR,
}


class Transactions:
    """Makes half messages and ends them. Belongs to the broker's loop."""

    def __init__(
        self,
        store: MessageStore,
        delayed_messages: DelayedMessages,
        timer_schedule: TimerSchedule,
        stats: BrokerStats,
        settings: BrokerSettings,
        admit_found: FoundAdmission,
    ) -> None:
        """`admit_found` decides whether who ends a half message may send to its topic."""
        self._admit_found = admit_found
        self._store = store
        self._delayed_messages = delayed_messages
        self._timer_schedule = timer_schedule
        self._stats = stats
        self._settings = settings
        self._copies: dict[int, int] = {}
        self.ending: set[int] = set()
        """Offsets of half messages whose end is put, but not durable yet."""
        self._ended: dict[int, None] = {}

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(
                RequestCode.END_TRANSACTION,
                self.end,
                RequestEffect.MUTATING | RequestEffect.DURABLE,
            ),
            Endpoint(
                RequestCode.RESUME_CHECK_HALF_MESSAGE,
                self.resume,
                RequestEffect.MUTATING | RequestEffect.DURABLE,
            ),
        )

    def adjust(self, settings: BrokerSettings) -> None:
        """Work with these settings from now on."""
        self._settings = settings

    def make_half(self, draft: MessageDraft) -> None:
        """Redirect a message to the half queue, with its own topic in its properties.

        Raises Reject. Java: TransactionalMessageBridge.parseHalfMessageInner.
        """
        if self._settings.reject_transaction_message:
            raise Reject(
                ResponseCode.NO_PERMISSION,
                "the broker takes no transactional messages: rejectTransactionMessage is set",
            )
        raw = draft.properties
        raw = properties.remove(raw, b"__transactionId__")
        unique = properties.find(raw, b"UNIQ_KEY")
        if unique:
            raw = properties.append(raw, b"__transactionId__", unique)
        raw = with_destination(raw, draft.topic, draft.queue_id)
        if len(raw) > properties.BYTES_MAX - GROWTH_BYTES:
            raise Reject(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the properties take {len(raw)} bytes with the broker's own; a half message may "
                f"have {properties.BYTES_MAX - GROWTH_BYTES}, so that it can be asked about",
            )
        draft.properties = raw
        draft.topic = HALF_TOPIC
        draft.queue_id = 0
        draft.sys_flag &= ~sysflag.TRANSACTION_MASK

    def copied(self, queue_offset: int, copy_offset: int) -> None:
        """Note the copy of a half message: an end that names the original ends both."""
        self._copies[queue_offset] = copy_offset
        if len(self._copies) > COPIES_MAX:
            del self._copies[next(iter(self._copies))]

    def end(self, request: Command, connection: Connection) -> Reply | Awaitable[Reply]:
        """Commit or roll back a half message (37); raises Reject.

        "Unknown" changes nothing and is answered with 0; so is a second end, as when a producer
        commits and is checked at the same moment.
        """
        header = EndTransactionRequestHeader.decode(request.ext)
        if header.commit_or_rollback == sysflag.TRANSACTION_NONE:
            return Reply()
        if header.commit_or_rollback not in _ENDS:
            raise _wrong("commitOrRollback field wrong; it is 0, 8 or 12")
        return self._store.cold_reader.prepare_and_apply(
            partial(_read_half, header.commit_log_offset, (HALF_TOPIC,)),
            partial(self._end, header, partial(self._admit_found, request, connection)),
        )

    def _end(
        self,
        header: EndTransactionRequestHeader,
        admit_found: Callable[[str], None],
        half: StoredRecord,
    ) -> Reply:
        raw = half.properties
        topic = (properties.find(raw, b"REAL_TOPIC") or b"").decode("utf-8", "replace")
        admit_found(topic)
        if not header.from_transaction_check and is_end_too_late(
            self._store.believed_ms() - half.born_ms,
            properties.find(raw, IMMUNITY),
            self._settings.transaction_timeout_ms,
        ):
            raise Reject(
                ResponseCode.ILLEGAL_OPERATION,
                "the time that CHECK_IMMUNITY_TIME_IN_SECONDS gives is over; wait to be asked",
            )
        if properties.find(raw, b"PGROUP") != header.producer_group.encode():
            raise _wrong("The producer group wrong")
        if half.queue_offset != header.tran_state_table_offset:
            raise _wrong("The transaction state table offset wrong")
        if half.queue_offset not in self._ended:
            is_commit = header.commit_or_rollback == sysflag.TRANSACTION_COMMIT
            if is_commit:
                self._commit(half)
            self._note_end(half)
            self._stats.count_end(topic, is_commit=is_commit)
        return Reply(durable=True)

    def resume(self, request: Command, _connection: Connection) -> Reply | Awaitable[Reply]:
        """Store a half message again with its check count at 0 (323); raises Reject."""
        header = ResumeCheckHalfMessageRequestHeader.decode(request.ext)
        _, phy_offset = message_id.parse_offset_id(header.msg_id)
        return self._store.cold_reader.prepare_and_apply(
            partial(_read_half, phy_offset, (HALF_TOPIC, CHECK_MAX_TIME_TOPIC)), self._resume
        )

    def _resume(self, half: StoredRecord) -> Reply:
        copy = copy_of(half, CHECK_TIMES, b"0")
        if self._store.put(copy).status is not PutStatus.PUT_OK:
            raise _wrong("Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed.")
        return Reply(durable=True)

    def _commit(self, half: StoredRecord) -> None:
        topic, queue_id = destination_of(half.properties)
        raw = without_destination(stored.shown_properties(half.properties))
        draft = MessageDraft.copy_of(half, topic, queue_id, raw)
        draft.sys_flag = half.sys_flag & ~sysflag.TRANSACTION_MASK | sysflag.TRANSACTION_COMMIT
        draft.prepared_offset = half.phy_offset
        self._timer_schedule.apply(draft)
        self._delayed_messages.schedule(draft)
        placed = self._store.put(draft)
        code = _END_STATUS_CODES[placed.status]
        if code:
            raise Reject(code, PUT_STATUS_REMARKS[placed.status])
        self._stats.count_put(topic, 1, placed.size)

    def _note_end(self, half: StoredRecord) -> None:
        """Put the op message that names all copies of the half message."""
        offsets = [half.queue_offset]
        while (copy := self._copies.pop(offsets[-1], None)) is not None:
            offsets.append(copy)
        now_ms = self._store.believed_ms()
        raw = properties.append(b"", b"TAGS", b"d")
        op = MessageDraft(
            OP_HALF_TOPIC,
            0,
            encode_op_body(offsets),
            raw,
            born_ms=now_ms,
            born_host=half.store_host,
        )
        placed = self._store.put(op)
        if placed.status is not PutStatus.PUT_OK:
            raise Reject(_END_STATUS_CODES[placed.status], PUT_STATUS_REMARKS[placed.status])
        self.ending.update(offsets)
        self._ended.update(dict.fromkeys(offsets))
        while len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        self._store.on_durable(partial(self._on_durable_done, offsets), local_only=True)

    def _on_durable_done(self, offsets: list[int], status: PutStatus) -> None:
        self.ending.difference_update(offsets)
        if status is PutStatus.SERVICE_NOT_AVAILABLE:  # nothing was kept: it may be ended again
            for offset in offsets:
                self._ended.pop(offset, None)


def _read_half(phy_offset: int, topics: tuple[str, ...], context: ReadContext) -> StoredRecord:
    """The message of one of these topics at a byte of the log; raises Reject."""
    record = context.record_at(phy_offset) if phy_offset >= 0 else None
    try:
        found = stored.decode(record) if record else None
    except ProtocolError:
        found = None
    if found is None or found.topic not in topics:
        raise _wrong("Find prepared transaction message failed")
    return found


def is_half_message(draft: MessageDraft) -> bool:
    """Whether a message is a half message; one that is sent back for a retry is not."""
    if (properties.find(draft.properties, b"TRAN_MSG") or b"").lower() != b"true":
        return False
    return draft.reconsume_times <= 0 or delay_level(draft.properties) <= 0


def copy_of(half: StoredRecord, key: bytes, value: bytes) -> MessageDraft:
    """A copy of a half message for the same queue, with one property set."""
    raw = properties.put(stored.shown_properties(half.properties), key, value)
    return MessageDraft.copy_of(half, HALF_TOPIC, 0, raw)


def _wrong(remark: str) -> Reject:
    return Reject(ResponseCode.SYSTEM_ERROR, remark)
