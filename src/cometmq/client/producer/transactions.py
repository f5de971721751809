"""Transactions: half messages that nobody reads until their producer says so.

Owns the sending of half messages, their ends and the answers to a broker that asks; refuses to know
the user's own transaction. Invariant: a half message that was not ended here is one the broker
asks about; what was decided is answered from memory, the rest by the user's `check`.
Bounded: `CHECKS_MAX` questions wait, `ENDS_MAX` decisions are remembered.
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
from cometmq.client.producer.message_checks import check_kind, check_timeout
from cometmq.errors import (
    BrokerError,
    ClientError,
    CometError,
    InvalidMessage,
    RemotingError,
)
from cometmq.model.message import Property
from cometmq.model.results import SendStatus, TransactionState
from cometmq.rules.namespace import unwrap, wrap
from cometmq.wire import log_record as stored
from cometmq.wire import message_id as ids
from cometmq.wire import sysflag
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.headers.transaction import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from cometmq.client.producer.send_pipeline import Sends
    from cometmq.client.session.client_options import Check, ProducerOptions, Verdict
    from cometmq.model.message import Message, MessageExt
    from cometmq.model.results import SendResult
    from cometmq.net.channel import Channel
    from cometmq.wire.command import Command

log = logging.getLogger(__name__)

CHECKS_MAX = 2000
"""Questions of brokers that may wait for the user's check; more are dropped and come again."""
ENDS_MAX = 10_000
"""Decisions that are remembered, for a broker that asks because it did not hear them."""


def state_of(verdict: Verdict) -> TransactionState:
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


class Transactions:
    """The transactions of one started producer. One loop owns it."""

    def __init__(self, sends: Sends, options: ProducerOptions) -> None:
        self._sends, self._core, self._options = sends, sends.core, options
        self._ends: dict[str, TransactionState] = {}
        self._open: dict[str, None] = {}
        self._telling: set[str] = set()
        self._checks = 0
        self._one_at_a_time = asyncio.Lock()
        self._thread: ThreadPoolExecutor | None = None
        self._core.answers[RequestCode.CHECK_TRANSACTION_STATE] = self._asked

    def close(self) -> None:
        """Take no more questions."""
        self._core.answers.pop(RequestCode.CHECK_TRANSACTION_STATE, None)
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def send_half(self, message: Message, timeout_s: float) -> SendResult:
        """Store a message that nobody reads until it is committed."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        check_kind(message)
        if message.delay_level:
            raise InvalidMessage("a transactional message cannot have a delay level")
        extra = {Property.TRAN_MSG: "true", Property.PGROUP: self._options.group}
        now_ms = self._core.clock.now_ms()
        msg_id = self._core.uniq_keys.take(now_ms)
        if len(self._open) >= ENDS_MAX:  # some were begun and left: the broker may ask about them
            del self._open[next(iter(self._open))]
        self._open[msg_id] = None
        is_stored = False
        try:
            half = self._sends.prepared(message, msg_id, now_ms, extra)
            half = half._replace(sys_flag=half.sys_flag | sysflag.TRANSACTION_PREPARED)
            result = await self._sends.in_turn(half, message, deadline)
            is_stored = True
        finally:
            if not is_stored:  # it may be there all the same: then it shall go
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
        """Tell the broker how a half message ends; UNKNOWN leaves it to its questions.

        A broker that cannot be reached will ask, and is answered then; one that asks while this is
        under way is told nothing, lest it hears a commit twice and stores the message twice.
        Raises BrokerError when it refuses.
        """
        self.remember(half.msg_id, state)
        if state is not TransactionState.UNKNOWN:
            with self.telling(half.msg_id):
                await self._tell(topic, half, state, timeout_s)

    async def _tell(
        self, topic: str, half: SendResult, state: TransactionState, timeout_s: float
    ) -> None:
        header = EndTransactionRequestHeader(
            topic=wrap(self._options.instance_id, topic),
            producer_group=self._options.group,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=ids.parse_offset_id(half.offset_msg_id)[1],
            commit_or_rollback=state.value,
            from_transaction_check=False,
            msg_id=half.msg_id,
            transaction_id=half.transaction_id or half.msg_id,
            broker_name=half.queue.broker_name,
        )
        if self._sends.trace is not None:
            self._sends.trace.ended(topic, half, state, from_check=False)
        try:
            addr = self._core.routes.master(half.queue.broker_name)
            await self._core.ask(addr, request(RequestCode.END_TRANSACTION, 0, header), timeout_s)
        except RemotingError as error:
            log.warning("%s of %s was not heard: %s", state.name, half.msg_id, error)

    @contextmanager
    def telling(self, *msg_ids: str) -> Iterator[None]:
        """While this lasts brokers that ask about these hear that nothing is known yet."""
        self._telling.update(msg_ids)
        try:
            yield
        finally:
            self._telling.difference_update(msg_ids)

    def remember(self, msg_id: str, state: TransactionState) -> None:
        """Keep what was decided, for a broker that asks; UNKNOWN leaves that to `check`."""
        self._open.pop(msg_id, None)
        if state is not TransactionState.UNKNOWN:
            if len(self._ends) >= ENDS_MAX:
                del self._ends[next(iter(self._ends))]
            self._ends[msg_id] = state

    def _asked(self, command: Command, channel: Channel) -> None:
        """A broker asks what became of a half message (called by the connection)."""
        if self._checks >= CHECKS_MAX:
            log.warning("%d questions about transactions wait; one was dropped", CHECKS_MAX)
            return
        try:
            header = CheckTransactionStateRequestHeader.decode(command.ext)
            message = decode_message(stored.decode(command.body), header.broker_name or "")
        except CometError as error:
            log.warning("a question of %s cannot be read: %s", channel.addr, error)
            return
        if message.properties.get(Property.PGROUP) != self._options.group:
            log.debug("%s asked about a transaction of another group", channel.addr)
            return
        message.topic = unwrap(self._options.instance_id, message.topic)
        self._checks += 1
        # Looked up now: the answer to an end that is under way may stand right behind the question.
        known = self._known(message.msg_id)
        job = self._answer(header, message, channel, known)
        self._core.background.spawn(job, name="check")

    async def _answer(
        self,
        header: CheckTransactionStateRequestHeader,
        message: MessageExt,
        channel: Channel,
        known: TransactionState | None,
    ) -> None:
        try:
            state = await self._judged(message) if known is None else known
        finally:
            self._checks -= 1
        end = EndTransactionRequestHeader(
            topic=wrap(self._options.instance_id, message.topic),
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

    def _known(self, msg_id: str) -> TransactionState | None:
        """What is to be said of a transaction without the user's check, or None."""
        if msg_id in self._open or msg_id in self._telling:
            return TransactionState.UNKNOWN
        known = self._ends.get(msg_id)
        return TransactionState.UNKNOWN if known is None and self._options.check is None else known

    async def _judged(self, message: MessageExt) -> TransactionState:
        """What the user's check says, or what was told meanwhile; called where there is a check."""
        assert self._options.check is not None
        async with self._one_at_a_time:
            known = self._ends.get(message.msg_id)
            if known is not None:
                return known
            state = state_of(await self._run(self._options.check, message))
        self.remember(message.msg_id, state)
        return state

    async def _run(self, check: Check, message: MessageExt) -> Verdict:
        answer: Any
        if iscoroutinefunction(check):
            answer = check(message)
        else:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="cometmq-check")
            run: Callable[[MessageExt], Any] = check
            answer = await asyncio.get_running_loop().run_in_executor(self._thread, run, message)
        verdict: Verdict = await answer if isawaitable(answer) else answer
        return verdict


class AsyncTransaction:
    """Messages that become visible together with the end of a block, or not at all.

    Each is stored at its broker when it is sent, and committed when the block ends; an exception
    rolls all of them back. When the process dies in between, or a broker does not hear the end, the
    broker asks the producer's `check`. Several messages end one after the other: a crash between
    two ends leaves the others to `check`.
    """

    def __init__(self, find: Callable[[], Transactions]) -> None:
        self._find = find
        self._halves: list[tuple[str, SendResult]] = []
        self._state: TransactionState | None = None

    async def send(self, message: Message, timeout_s: float = 3.0) -> SendResult:
        """Store a message that nobody reads before the transaction is committed.

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

        Raises BrokerError when a broker refuses. A broker that cannot be reached asks later.
        """
        if self._state is not None:
            raise ClientError("this transaction has ended already")
        check_timeout(timeout_s)
        self._state = state_of(state)
        transactions = self._find()
        for _, half in self._halves:  # first of all: the answer to every broker that asks
            transactions.remember(half.msg_id, self._state)
        with transactions.telling(*(half.msg_id for _, half in self._halves)):
            await self._tell(transactions, self._state, timeout_s)

    async def _tell(
        self, transactions: Transactions, state: TransactionState, timeout_s: float
    ) -> None:
        deadline, refused = asyncio.get_running_loop().time() + timeout_s, None
        for topic, half in self._halves:
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0:
                log.warning("%s of %s is left to the broker's question", state, half.msg_id)
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
            log.warning("a roll-back was refused; it follows when the broker asks: %s", refusal)
