"""Transactions: half messages that consumers see only after their producer commits them.

Owns the sending of half messages, their ends and the answers to check-backs; refuses to know the
user's own transaction. Invariant: a broker checks back on every half message that was not ended
here; decisions made here are answered from memory, all others by the user's `check`.
Bounded: `CHECKS_MAX` check-backs wait, `ENDS_MAX` decisions are remembered.
Java: TransactionMQProducer, DefaultMQProducerImpl.sendMessageInTransaction, checkTransactionState
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any, Self

from cometmq.client.consumer.message_decoder import decode_message
from cometmq.client.producer.message_checks import check_timeout
from cometmq.errors import (
    BrokerError,
    ClientError,
    CometError,
    InvalidMessage,
    RemotingError,
)
from cometmq.model.message import Property
from cometmq.model.results import SendStatus, TransactionState
from cometmq.rules.namespace import with_namespace, without_namespace
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.headers.transaction import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import message_id as ids
from cometmq.wire.records import sysflag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from cometmq.client.producer.producer_options import (
        ProducerOptions,
        TransactionCheck,
        TransactionVerdict,
    )
    from cometmq.client.producer.send_pipeline import SendPipeline
    from cometmq.model.message import Message, MessageExt
    from cometmq.model.results import SendResult
    from cometmq.net.channel import Channel
    from cometmq.wire.command import Command

log = logging.getLogger(__name__)

CHECKS_MAX = 2000
"""Check-backs that may wait for the user's check; brokers repeat the dropped ones."""
ENDS_MAX = 10_000
"""Decisions that are remembered, for a broker that checks back because it missed them."""


def state_of(verdict: TransactionVerdict) -> TransactionState:
    """What a check or a local transaction says: True, False, None, or the state itself."""
    if isinstance(verdict, TransactionState):
        return verdict
    if verdict is None:
        return TransactionState.UNKNOWN
    if isinstance(verdict, bool):
        return TransactionState.COMMIT if verdict else TransactionState.ROLLBACK
    raise ClientError(
        f"a transaction ends with True (commit), False (roll back), None (ask again later) or a "
        f"TransactionState, not {verdict!r:.80}"
    )


class ProducerTransactions:
    """The transactions of one started producer. One loop owns it."""

    def __init__(self, pipeline: SendPipeline, options: ProducerOptions) -> None:
        self._pipeline = pipeline
        self._session = pipeline.session
        self._options = options
        self._decided: dict[str, TransactionState] = {}
        self._open: dict[str, None] = {}
        """Half messages whose transaction is still running."""
        self._ending: set[str] = set()
        """Half messages whose end is being sent to the broker."""
        self._checks = 0
        self._has_warned = False
        self._check_lock = asyncio.Lock()
        self._thread: ThreadPoolExecutor | None = None
        self._session.request_handlers[RequestCode.CHECK_TRANSACTION_STATE] = self._on_check

    def close(self) -> None:
        """Answer no more check-backs."""
        self._session.request_handlers.pop(RequestCode.CHECK_TRANSACTION_STATE, None)
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def send_half(self, message: Message, timeout_s: float) -> SendResult:
        """Store a message that consumers see only after it is committed."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        extra = {Property.TRAN_MSG: "true", Property.PGROUP: self._options.group}
        now_ms = self._session.clock.now_ms()
        msg_id = self._session.uniq_keys.next_key(now_ms)
        if len(self._open) >= ENDS_MAX:  # abandoned ones: the broker checks back on them
            del self._open[next(iter(self._open))]
        self._open[msg_id] = None

        async def send() -> SendResult:
            if message.delay_level or message.due is not None:
                raise InvalidMessage("a transactional message cannot be delayed")
            half = self._pipeline.prepare(message, msg_id, now_ms, extra)
            half = half._replace(sys_flag=half.sys_flag | sysflag.TRANSACTION_PREPARED)
            return await self._pipeline.send_prepared(half, message, deadline)

        is_stored = False
        try:
            result = await self._pipeline.with_hooks("half", message, send)
            is_stored = True
        finally:
            if not is_stored:  # the broker may have stored it all the same
                self.remember(msg_id, TransactionState.ROLLBACK)
        if result.status is SendStatus.SEND_OK:
            return result
        await self.end(message.topic, result, TransactionState.ROLLBACK, timeout_s)
        name = result.status.name
        raise BrokerError(
            result.status.value,
            f"the half message is not as safe as it should be ({name}); it was rolled back",
            result.queue.broker_name,
        )

    async def end(
        self, topic: str, half: SendResult, state: TransactionState, timeout_s: float
    ) -> None:
        """Commit or roll back a half message at its broker; UNKNOWN leaves it to the check-back.

        A broker that cannot be reached checks back later and is answered then. A broker that checks
        back while this request is under way is answered UNKNOWN: it would store the message twice
        if it got two commits. Raises BrokerError when it refuses.
        """
        self.remember(half.msg_id, state)
        if state is not TransactionState.UNKNOWN:
            with self.ending(half.msg_id):
                await self._send_end(topic, half, state, timeout_s)

    async def _send_end(
        self, topic: str, half: SendResult, state: TransactionState, timeout_s: float
    ) -> None:
        header = EndTransactionRequestHeader(
            topic=with_namespace(self._options.instance_id, topic),
            producer_group=self._options.group,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=ids.parse_offset_id(half.offset_msg_id)[1],
            commit_or_rollback=state.value,
            from_transaction_check=False,
            msg_id=half.msg_id,
            transaction_id=half.transaction_id or half.msg_id,
            broker_name=half.queue.broker_name,
        )
        if self._pipeline.hooks is not None:
            self._pipeline.hooks.transaction_ends(topic, half, state)
        try:
            addr = self._session.routes.master_addr(half.queue.broker_name)
            await self._session.call_checked(
                addr, request(RequestCode.END_TRANSACTION, 0, header), timeout_s
            )
        except RemotingError as error:
            log.warning("%s of %s did not reach the broker: %s", state.name, half.msg_id, error)

    @contextmanager
    def ending(self, *msg_ids: str) -> Iterator[None]:
        """While this lasts, check-backs on these messages are answered UNKNOWN."""
        self._ending.update(msg_ids)
        try:
            yield
        finally:
            self._ending.difference_update(msg_ids)

    def remember(self, msg_id: str, state: TransactionState) -> None:
        """Keep a decision for a broker that checks back; UNKNOWN leaves that to `check`."""
        self._open.pop(msg_id, None)
        if state is not TransactionState.UNKNOWN:
            if len(self._decided) >= ENDS_MAX:
                del self._decided[next(iter(self._decided))]
            self._decided[msg_id] = state

    def _on_check(self, command: Command, channel: Channel) -> None:
        """A broker checks back on a half message (called by the connection)."""
        if self._checks >= CHECKS_MAX:
            log.warning("%d check-backs wait; one was dropped", CHECKS_MAX)
            return
        try:
            header = CheckTransactionStateRequestHeader.decode(command.ext)
            message = decode_message(stored.decode(command.body), header.broker_name or "")
        except CometError as error:
            log.warning("a check-back of %s cannot be read: %s", channel.addr, error)
            return
        if message.properties.get(Property.PGROUP) != self._options.group:
            log.debug("%s checked back on a transaction of another group", channel.addr)
            return
        message.topic = without_namespace(self._options.instance_id, message.topic)
        self._checks += 1
        # Looked up now: the next frame may be the response to an end that is under way.
        known = self._known_state(message.msg_id)
        if known is None and message.unreadable:
            what = "the half message %s cannot be read, so nothing is decided on it: %s"
            log.warning(what, message.msg_id, message.unreadable)
            known = TransactionState.UNKNOWN
        job = self._answer(header, message, channel, known)
        self._session.background.spawn(job, name="check")

    async def _answer(
        self,
        header: CheckTransactionStateRequestHeader,
        message: MessageExt,
        channel: Channel,
        known: TransactionState | None,
    ) -> None:
        try:
            state = await self._checked_state(message) if known is None else known
        finally:
            self._checks -= 1
        end = EndTransactionRequestHeader(
            topic=with_namespace(self._options.instance_id, message.topic),
            producer_group=self._options.group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=state.value,
            from_transaction_check=True,
            msg_id=message.msg_id,
            transaction_id=header.transaction_id,
            broker_name=header.broker_name,
        )
        if channel.is_open:
            channel.oneway(request(RequestCode.END_TRANSACTION, 0, end, oneway=True))

    def _known_state(self, msg_id: str) -> TransactionState | None:
        """The state of a transaction that needs no call of the user's check, or None."""
        if msg_id in self._open or msg_id in self._ending:
            return TransactionState.UNKNOWN
        known = self._decided.get(msg_id)
        if known is None and self._options.check is None:
            self._warn_of_missing_check(msg_id)
            return TransactionState.UNKNOWN
        return known

    def _warn_of_missing_check(self, msg_id: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "a broker asks what became of the half message %s, and the producer of the group "
                "%s has no check: give it one; brokers discard a message after some questions",
                msg_id,
                self._options.group,
            )

    async def _checked_state(self, message: MessageExt) -> TransactionState:
        """The state that the user's check returns, or that was decided while this waited for it."""
        assert self._options.check is not None
        async with self._check_lock:
            known = self._decided.get(message.msg_id)
            if known is not None:
                return known
            state = state_of(await self._run_check(self._options.check, message))
        self.remember(message.msg_id, state)
        return state

    async def _run_check(self, check: TransactionCheck, message: MessageExt) -> TransactionVerdict:
        answer: Any
        if iscoroutinefunction(check):
            answer = check(message)
        else:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="cometmq-check")
            run: Callable[[MessageExt], Any] = check
            answer = await asyncio.get_running_loop().run_in_executor(self._thread, run, message)
        verdict: TransactionVerdict = await answer if isawaitable(answer) else answer
        return verdict


class AsyncTransaction:
    """Messages that consumers see when a block ends, or never.

    Each is stored at its broker when it is sent, and committed when the block ends; an exception
    rolls all of them back. When the process dies before that, or the end does not reach a broker,
    the broker checks back by the producer's `check`. Several messages are ended one after the
    other: a crash in between leaves the rest to `check`.
    """

    def __init__(self, find: Callable[[], ProducerTransactions]) -> None:
        self._find = find
        self._halves: list[tuple[str, SendResult]] = []
        self._state: TransactionState | None = None

    async def send(self, message: Message, timeout_s: float = 3.0) -> SendResult:
        """Store a message that consumers see only after the commit.

        Raises what the producer's send raises, ClientError once the transaction has ended.
        """
        if self._state is not None:
            raise ClientError("this transaction has ended; nothing can be sent in it any more")
        check_timeout(timeout_s)
        result = await self._find().send_half(message, timeout_s)
        self._halves.append((message.topic, result))
        return result

    async def end(
        self, state: TransactionState | bool | None = True, timeout_s: float = 3.0
    ) -> None:
        """End it before the block does: True commits, False rolls back, None leaves it to `check`.

        Raises BrokerError when a broker refuses. A broker that cannot be reached checks back later.
        """
        if self._state is not None:
            raise ClientError("this transaction has ended already")
        check_timeout(timeout_s)
        self._state = state_of(state)
        transactions = self._find()
        for _, half in self._halves:  # first of all: brokers may check back from now on
            transactions.remember(half.msg_id, self._state)
        with transactions.ending(*(half.msg_id for _, half in self._halves)):
            await self._end_all(transactions, self._state, timeout_s)

    async def _end_all(
        self, transactions: ProducerTransactions, state: TransactionState, timeout_s: float
    ) -> None:
        deadline = asyncio.get_running_loop().time() + timeout_s
        refused: BrokerError | None = None
        for topic, half in self._halves:
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0:
                log.warning("%s of %s is left to the broker's check-back", state, half.msg_id)
                continue
            try:
                await transactions.end(topic, half, state, left_s)
            except BrokerError as error:
                refused = refused or error
        if refused is not None:
            raise refused

    async def __aenter__(self) -> Self:
        """Begin."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Commit, or roll back after an exception; nothing when it has ended."""
        if self._state is not None:
            return
        try:
            await self.end(kind is None)
        except BrokerError as refusal:
            if kind is None:
                raise
            log.warning("a rollback was refused; the broker will check back: %s", refusal)
