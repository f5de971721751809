"""Check-back: asks producers about half messages that were neither committed nor rolled back.

Owns the rounds over the half queue, how far they have come (the offsets of CID_RMQ_SYS_TRANS in
both queues), the copy that is stored with every check, and the discarding of messages that were
checked too often. Does not end transactions (`transactions` does).
Invariants: an offset is committed only when the copies made before it are durable; a half message
is passed only if it has ended, or its copy lies further on, or it was discarded.
Java: TransactionalMessageServiceImpl.check, AbstractTransactionalMessageCheckListener.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from cometmq.broker.delivery.property_limit import fit_properties
from cometmq.broker.delivery.real_destination import destination_of
from cometmq.broker.delivery.transactions import CHECK_TIMES, IMMUNITY, copy_of
from cometmq.broker.groups.consumer_groups import TRANSACTION_GROUP
from cometmq.errors import ProtocolError
from cometmq.model.topic import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from cometmq.rules.half_message import CheckDecision, EndedHalfMessages, decide_check, parse_op_body
from cometmq.store.get_result import GetStatus
from cometmq.store.log.mapped_file_queue import NotInMemory
from cometmq.store.message_draft import MessageDraft
from cometmq.store.put_result import PutStatus
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.headers.transaction import CheckTransactionStateRequestHeader
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import message_id, properties

if TYPE_CHECKING:
    from cometmq.broker.cluster.topics import Topics
    from cometmq.broker.delivery.transactions import Transactions
    from cometmq.broker.groups.client_registry import ClientRegistry
    from cometmq.broker.groups.consumer_offsets import ConsumerOffsets
    from cometmq.net.admission import AskAdmission
    from cometmq.net.connection import Connection
    from cometmq.settings.broker import BrokerSettings
    from cometmq.settings.store import StoreSettings
    from cometmq.store.cold_read_context import ReadContext
    from cometmq.store.message_store import MessageStore
    from cometmq.store.put_result import PutResult
    from cometmq.wire.records.log_record import StoredRecord

log = logging.getLogger(__name__)

OPS_MAX = 500_000
"""Op messages read ahead of the first open half message. Beyond them ends are not seen, and a
producer may be asked about a message that has ended."""

LATE_MAX = 100_000
"""Ends remembered of half messages that were passed before their op message was read."""

ROUND_S = 60.0
"""Longest round; the next one goes on where it stopped."""

_STEP = 1024
"""Ended half messages passed in one step; an open one counts as `_STEPS_OF_OPEN`."""

_HOUR_MS = 3_600_000
_STEPS_OF_OPEN = 64
_PULL_COUNT, _PULL_BYTES = 32, 1 << 18
_ORIGINAL = b"TRAN_PREPARED_QUEUE_OFFSET"
_NEVER_ACCEPTED = frozenset({PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED})


class CopiedHalfMessage(NamedTuple):
    """A half message that was stored again: its properties, its place, and whether to ask."""

    half: StoredRecord
    raw: bytes
    placed: PutResult
    is_asked: bool


class CheckBack:
    """Asks producers. Belongs to the broker's loop; `run` is its task."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        offsets: ConsumerOffsets,
        clients: ClientRegistry,
        transactions: Transactions,
        settings: BrokerSettings,
        store_settings: StoreSettings,
        may_be_asked: AskAdmission,
    ) -> None:
        """`may_be_asked` decides which clients may see half messages of a topic."""
        self._store = store
        self._may_be_asked = may_be_asked
        self._topics = topics
        self._offsets = offsets
        self._clients = clients
        self._transactions = transactions
        self._settings = settings
        self.adjust_store(store_settings)
        self.asked = self.discarded = 0
        self._next_producer = 0
        self._has_copied = False
        self._rewind()

    def adjust(self, settings: BrokerSettings) -> None:
        """Work with these settings from now on."""
        self._settings = settings

    def adjust_store(self, settings: StoreSettings) -> None:
        """Discard from now on what is older than the log keeps by these settings."""
        self._reserved_ms = settings.file_reserved_hours * _HOUR_MS

    def _rewind(self) -> None:
        """Start again at the committed offsets."""
        self.half_offset = self._start_of(HALF_TOPIC)
        self.op_offset = self._start_of(OP_HALF_TOPIC)
        self._ops_read = self.op_offset
        self._highest: deque[int] = deque()
        """Of each op message read and not done: the last half offset it names."""
        self._ended = EndedHalfMessages(self.half_offset)
        self._late: dict[int, None] = {}
        self._committed = (self.half_offset, self.op_offset)

    def _start_of(self, topic: str) -> int:
        first = self._store.min_offset(topic, 0)
        last = self._store.max_offset(topic, 0)
        return min(max(self._offsets.committed(TRANSACTION_GROUP, topic, 0), first), last)

    async def run(self) -> None:
        """Do a round every transactionCheckInterval, for ever."""
        while True:
            await asyncio.sleep(self._settings.transaction_check_interval_ms / 1000)
            await self.check()

    async def check(self) -> None:
        """Do one round: over all half messages that are old enough, in small steps."""
        asked, discarded = self.asked, self.discarded
        self._catch_up(await self._store.cold_reader.run(_first_offsets))
        end = self._store.max_offset(HALF_TOPIC, 0)
        loop = asyncio.get_running_loop()
        until = loop.time() + ROUND_S
        is_going = True
        while is_going and loop.time() < until:
            try:
                is_going = self._step(end)
            except NotInMemory as missing:
                await self._store.cold_reader.fetch(missing)
            await asyncio.sleep(0)
        if self._has_copied:
            await self._save()
        if self.asked != asked:
            log.info("asked producers about %d half messages", self.asked - asked)
        if self.discarded != discarded:
            log.warning(
                "%d half messages were asked about too often or are too old; they went to %s",
                self.discarded - discarded,
                CHECK_MAX_TIME_TOPIC,
            )

    async def _save(self) -> None:
        """Write the offsets: after a kill the same messages would be checked twice."""
        self._has_copied = False
        safe = asyncio.get_running_loop().create_future()
        self._store.on_durable(safe.set_result, local_only=True)
        await asyncio.shield(safe)  # the store answers it, also when the broker stops meanwhile
        await self._offsets.save_in_thread()

    def _catch_up(self, first_offsets: tuple[int, int]) -> None:
        """Skip what retention deleted."""
        first, first_op = first_offsets
        if self.half_offset < first:
            self.half_offset = first
            self._ended.move_to(first)
        while self.op_offset < first_op and self._highest:
            self._highest.popleft()
            self.op_offset += 1
        self.op_offset = max(self.op_offset, first_op)
        self._ops_read = max(self._ops_read, first_op)

    def _step(self, end: int) -> bool:
        """Read ops, or else check some half messages; False when the round is over.

        NotInMemory: the next one must be fetched; those before it are done.
        """
        if self._read_ops():
            return True
        copies: list[CopiedHalfMessage] = []
        left, is_going = _STEP, True
        try:
            while left > 0 and is_going:
                is_ended = self.half_offset in self._ended
                is_going = self.half_offset < end and (
                    is_ended or self._pass_open(self.half_offset, copies)
                )
                if is_going:
                    self.half_offset += 1
                    left -= 1 if is_ended else _STEPS_OF_OPEN
        finally:
            self._move_on(copies)
        return is_going

    def _read_ops(self) -> bool:
        """Read the next op messages and note the ends they name; False when all were read."""
        if len(self._highest) >= OPS_MAX:
            return False
        context = self._store.cold_reader.cached
        got = context.get(OP_HALF_TOPIC, 0, self._ops_read, _PULL_COUNT, _PULL_BYTES)
        if got.status is not GetStatus.FOUND or got.next_offset <= self._ops_read:
            return False
        for record in stored.iterate(got.body):
            self._note(record)
        self._ops_read = got.next_offset
        unread = self._ops_read - self.op_offset - len(self._highest)
        self._highest.extend([-1] * unread)
        return True

    def _note(self, op: StoredRecord) -> None:
        is_end = properties.find(op.properties, b"TAGS") == b"d"
        found = parse_op_body(op.body) if is_end else []
        for offset in found:
            if offset >= self.half_offset:
                self._ended.add(offset)
            else:
                self._late[offset] = None
                if len(self._late) > LATE_MAX:
                    del self._late[next(iter(self._late))]
        self._highest.append(max(found, default=-1))

    def _pass_open(self, offset: int, copies: list[CopiedHalfMessage]) -> bool:
        """Check an open half message; False where the round must stop before it."""
        if offset in self._transactions.ending:
            return False
        context = self._store.cold_reader.cached
        entry = context.entry(HALF_TOPIC, 0, offset)
        if entry is None:
            return False
        record = context.record_at(entry[0])
        try:
            half = stored.decode(record) if record else None
        except ProtocolError as error:
            log.error("the half message at byte %d is skipped: %s", entry[0], error)
            return True
        if half is None:
            log.error(
                "the half message at byte %d is not asked about: its record is damaged", entry[0]
            )
        return half is None or self._check_one(half, copies)

    def _check_one(self, half: StoredRecord, copies: list[CopiedHalfMessage]) -> bool:
        raw, settings = half.properties, self._settings
        asked = _number(properties.find(raw, CHECK_TIMES), 0)
        decision = decide_check(
            age_ms=self._store.believed_ms() - half.born_ms,
            asked=asked,
            immunity=properties.find(raw, IMMUNITY),
            timeout_ms=settings.transaction_timeout_ms,
            checks_max=settings.transaction_check_max,
            reserved_ms=self._reserved_ms,
        )
        if decision is CheckDecision.TOO_YOUNG:
            return False
        if decision is CheckDecision.DISCARD:
            return self._discard(half)
        if decision is CheckDecision.ASK:
            return self._store_copy(half, copy_of(half, CHECK_TIMES, b"%d" % (asked + 1)), copies)
        first = _number(properties.find(raw, _ORIGINAL), half.queue_offset)
        if first in self._late or first in self._ended:
            return True
        return self._store_copy(half, copy_of(half, _ORIGINAL, b"%d" % first), copies, ask=False)

    def _store_copy(
        self,
        half: StoredRecord,
        draft: MessageDraft,
        copies: list[CopiedHalfMessage],
        *,
        ask: bool = True,
    ) -> bool:
        placed = self._store.put(draft)
        if placed.status in _NEVER_ACCEPTED:
            return self._discard(half)
        if placed.status is not PutStatus.PUT_OK:
            return False
        self._has_copied = True
        copies.append(CopiedHalfMessage(half, draft.properties, placed, ask))
        return True

    def _discard(self, half: StoredRecord) -> bool:
        self._topics.ensure(CHECK_MAX_TIME_TOPIC, 1)
        raw = fit_properties(stored.shown_properties(half.properties))[0]
        draft = MessageDraft.copy_of(half, CHECK_MAX_TIME_TOPIC, 0, raw)
        status = self._store.put(draft).status
        if status in _NEVER_ACCEPTED:
            log.error("the half message at byte %d is lost: %s", half.phy_offset, status)
        elif status is not PutStatus.PUT_OK:
            return False
        self.discarded += 1
        return True

    def _move_on(self, copies: list[CopiedHalfMessage]) -> None:
        """Forget what was passed; once the copies are durable, commit the offsets and ask."""
        self._ended.move_to(self.half_offset)
        while self._highest and self._highest[0] < self.half_offset:
            self._highest.popleft()
            self.op_offset += 1
        place = self.half_offset, self.op_offset
        if place != self._committed:
            self._committed = place
            self._store.on_durable(partial(self._on_durable_done, place, copies), local_only=True)

    def _on_durable_done(
        self, place: tuple[int, int], copies: list[CopiedHalfMessage], status: PutStatus
    ) -> None:
        if status is PutStatus.SERVICE_NOT_AVAILABLE:
            self._rewind()
            return
        for copy in copies:
            self._transactions.copied(copy.half.queue_offset, copy.placed.queue_offset)
            if copy.is_asked:
                self._ask(copy)
        if status is PutStatus.PUT_OK:
            commit = self._offsets.commit
            commit(TRANSACTION_GROUP, HALF_TOPIC, 0, place[0])
            commit(TRANSACTION_GROUP, OP_HALF_TOPIC, 0, place[1])

    def _ask(self, copy: CopiedHalfMessage) -> None:
        """Send the check (39) to one connected producer of the group, if there is one."""
        half, raw, placed, _ = copy
        group = (properties.find(raw, b"PGROUP") or b"").decode("utf-8", "replace")
        try:
            topic, queue_id = destination_of(half.properties)
        except ProtocolError as error:
            log.error("the half message at byte %d is not asked about: %s", half.phy_offset, error)
            return
        connection = self._producer_of(group, topic)
        if connection is None:
            return
        unique = (properties.find(raw, b"UNIQ_KEY") or b"").decode("utf-8", "replace") or None
        header = CheckTransactionStateRequestHeader(
            topic=HALF_TOPIC,
            tran_state_table_offset=placed.queue_offset,
            commit_log_offset=placed.phy_offset,
            msg_id=unique,
            transaction_id=unique,
            offset_msg_id=message_id.offset_id(half.store_host, placed.phy_offset),
            broker_name=self._settings.broker_name,
        )
        body = stored.encode(
            topic,
            queue_id,
            half.flag,
            placed.queue_offset,
            placed.phy_offset,
            half.sys_flag,
            half.born_ms,
            half.born_host,
            half.store_ms,
            half.store_host,
            half.reconsume_times,
            half.prepared_offset,
            half.body,
            raw,
            with_crc=False,
        )
        self.asked += 1
        code = RequestCode.CHECK_TRANSACTION_STATE
        connection.oneway(request(code, 0, header, body, oneway=True))

    def _producer_of(self, group: str, topic: str) -> Connection | None:
        """A connection of the group that can receive now and may send to the topic, round-robin."""
        connections = list(self._clients.producers.get(group, ()))
        self._next_producer += 1
        for number in range(len(connections)):
            connection = connections[(self._next_producer + number) % len(connections)]
            can_receive = not connection.is_closing and not connection.is_blocked
            if can_receive and self._may_be_asked(connection, topic):
                return connection
        return None


def _first_offsets(context: ReadContext) -> tuple[int, int]:
    """Where the half queue and the op queue begin."""
    return context.min_offset(HALF_TOPIC, 0), context.min_offset(OP_HALF_TOPIC, 0)


def _number(raw: bytes | None, otherwise: int) -> int:
    return int(raw) if raw and raw.isdigit() and len(raw) < 19 else otherwise
