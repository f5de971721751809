"""The parking queue of a group at one broker: reads it, follows it, and appends to it.

Owns how far it was read, the fold over it (`rules.failures.parked_keys`), and the topic's making;
knows nothing of handlers. Invariants: records are folded in the order of their positions, each
once; the checkpoint that is committed lies at or below every record that still counts.
Java: none.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import count
from typing import TYPE_CHECKING

from cometmq.client.consumer.pull_request import PullClient, PullRequest, TopicFilter
from cometmq.client.offsets.broker_offsets import BrokerOffsets
from cometmq.client.parking.parking_messages import read_record
from cometmq.errors import BrokerError, CometError, RemotingError, RemotingTimeout
from cometmq.model.parking import parking_topic_of
from cometmq.model.queue import MessageQueue
from cometmq.model.results import PullStatus
from cometmq.model.topic import DEFAULT_TOPIC, PERM_READ, PERM_WRITE
from cometmq.rules.failures.parked_keys import ParkedKeys
from cometmq.rules.failures.retry_policy import backoff_s
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request
from cometmq.wire.compression import BYTES_MAX
from cometmq.wire.headers.admin import CreateTopicRequestHeader

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.client.producer.prepared_message import PreparedMessage
    from cometmq.client.producer.retrying_sender import RetryingSender
    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.message import MessageExt
    from cometmq.model.parking import ParkedMessage, ParkingRecord

    Listener = Callable[[int, ParkingRecord, bool], None]

log = logging.getLogger(__name__)

PARKED, LETTERS = 0, 1
"""The queues of a parking topic at each broker."""
_PULL_COUNT = 1_024
"""How many are asked for; brokers give what their settings say, 32 by default."""
_SUSPEND_S = 15.0
_SEND_S = 3.0
_SHOWN_S = 15.0
"""How long a broker may take to show a record that it has stored."""
_CHECKPOINT_RECORDS = 64
"""Records between two commits of the checkpoint, at least."""
_PAUSE_FIRST_S, _PAUSE_MOST_S = 0.1, 2.0


class ParkingLog:
    """One parking queue. Belongs to its session's loop. Methods raise CometError of the broker."""

    def __init__(
        self,
        session: ClientSession,
        group: str,
        broker_name: str,
        sender: RetryingSender,
        queue_id: int = PARKED,
    ) -> None:
        """`queue_id`: PARKED, or LETTERS for the account of dead letters that were sent again."""
        self.group = group
        self.queue = MessageQueue(parking_topic_of(group), broker_name, queue_id)
        self.keys = ParkedKeys()
        self.next = -1
        """The position of the next record to read; -1: nothing was read."""
        self.listeners: list[Listener] = []
        """Called with the position of each record, the record, and whether it counts."""
        self.interruptions = 0
        """How often `follow` could not read: the broker may have been killed in between."""
        self._session = session
        self._sender = sender
        self._pulls = PullClient(session, group, BYTES_MAX)
        self._offsets = BrokerOffsets(session)
        self._grown = asyncio.Event()
        self._checkpoint = 0
        self._look_at = _CHECKPOINT_RECORDS
        """The position from which on a checkpoint is looked for again."""

    @property
    def topic(self) -> str:
        """The group's parking topic."""
        return self.queue.topic

    @property
    def stamp_ms(self) -> int:
        """The time by the session's clock, epoch ms."""
        return self._session.clock.now_ms()

    async def read_to_end(self, *, may_create: bool = False) -> bool:
        """Read all records there are; False where there is no topic and it may not be made.

        For who does not `follow`.
        """
        if not await self._begin(may_create=may_create):
            return False
        while await self._pull(0.0):
            pass
        return True

    async def follow(self) -> None:
        """Read what comes, for ever; errors are logged and tried again."""
        failures = 0
        while True:
            try:
                await self._begin(may_create=True)
                await self._pull(_SUSPEND_S)
                await self._commit_checkpoint()
                failures = 0
            except CometError as error:
                failures += 1
                self.interruptions += 1
                level = logging.WARNING if failures == 5 else logging.DEBUG
                log.log(level, "following %s fails, it is tried again: %s", self.queue, error)
                await asyncio.sleep(backoff_s(failures, _PAUSE_FIRST_S, _PAUSE_MOST_S))

    async def append(self, prepared: PreparedMessage) -> int:
        """Append a record; its position. A broker that fails is tried again for a while."""

        async def choose(failed_broker: str | None) -> MessageQueue:
            del failed_broker
            return self.queue

        deadline = asyncio.get_running_loop().time() + _SEND_S
        result = await self._sender.send(prepared, choose, 2, deadline)
        return result.queue_offset

    async def append_and_read(self, prepared: PreparedMessage) -> int:
        """Append a record and read up to it; its position. For who does not `follow`.

        Raises RemotingTimeout where the broker does not show it.
        """
        position = await self.append(prepared)
        await self.read_through(position)
        return position

    async def read_through(self, position: int) -> None:
        """Read up to a record that is stored; RemotingTimeout where the broker does not show it."""
        deadline = asyncio.get_running_loop().time() + _SHOWN_S
        while self.next <= position:  # Apache's brokers store first and show a moment later
            if asyncio.get_running_loop().time() >= deadline:
                raise RemotingTimeout(
                    f"{self.queue} does not show the record {position} that it has stored"
                )
            await self._pull(1.0)

    async def wait_for(self, position: int) -> None:
        """Wait until the record at a position was read by `follow`."""
        while self.next <= position:
            self._grown.clear()
            await self._grown.wait()

    async def record_at(self, position: int) -> MessageExt:
        """The message of the record at a position. Raises BrokerError when it is gone."""
        result = await self._pulls.pull(_request(self.queue, position, 1, 0.0))
        if not result.messages or result.messages[0].queue_offset != position:
            raise BrokerError(
                int(ResponseCode.PULL_OFFSET_MOVED),
                f"the record {position} of {self.queue} is gone: the broker kept it for too short",
                "",
            )
        return result.messages[0]

    async def committed_of_group(self, queue: MessageQueue) -> int | None:
        """The committed offset of the group in another queue of this broker, or None."""
        assert queue.broker_name == self.queue.broker_name, "both die with the same broker"
        return await self._offsets.committed(self.group, queue)

    def messages(self) -> list[ParkedMessage]:
        """The parked messages as far as was read, those of a key in their order."""
        found = list(self.keys.messages())
        for one in found:
            one.broker_name = self.queue.broker_name
        return found

    async def _begin(self, *, may_create: bool) -> bool:
        """Find where to begin, and make the topic."""
        if self.next >= 0:
            return True
        await self._session.routes.subscribe_queues(self.topic)
        try:
            start = await self._offsets.committed(self.group, self.queue) or 0
            await self._pulls.pull(_request(self.queue, start, 1, 0.0))
        except BrokerError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            if not may_create:
                return False
            await self._create_topic()
            start = 0
        self.next = self._checkpoint = start
        self._look_at = start + _CHECKPOINT_RECORDS
        return True

    async def _pull(self, suspend_s: float) -> bool:
        """Pull once and fold what came; whether there may be more."""
        result = await self._pulls.pull(_request(self.queue, self.next, _PULL_COUNT, suspend_s))
        for message in result.messages:
            if message.queue_offset < self.next:
                continue
            self.next = message.queue_offset + 1
            found = read_record(message)
            if found is None:
                log.warning("the record %d of %s says nothing", message.queue_offset, self.queue)
                continue
            counts = self.keys.apply(message.queue_offset, *found)
            for listener in tuple(self.listeners):
                listener(message.queue_offset, found[0], counts)
        if result.next_offset < self.next and result.status is PullStatus.OFFSET_ILLEGAL:
            log.error("%s is read anew: its records below %d are gone", self.queue, self.next)
            self.keys = ParkedKeys()
            self.next = 0
            return True
        has_more = result.next_offset > self.next or bool(result.messages)
        self.next = max(self.next, result.next_offset)
        self._grown.set()
        return has_more

    async def _commit_checkpoint(self) -> None:
        """Commit from where a reader must begin, now and then.

        All that is known is looked through for it, so as many records are read in between. A key
        that stays parked holds the checkpoint, and looking with each pull took 44 % of the CPU of a
        consumer with 19,000 parked messages (2026-11-28).
        """
        if self.next < self._look_at:
            return
        self._look_at = self.next + max(_CHECKPOINT_RECORDS, self.keys.size)
        needed = self.keys.needed_from(self.next)
        assert needed <= self.next, "a checkpoint lies at records that were read"
        if needed - self._checkpoint >= _CHECKPOINT_RECORDS:
            await self._offsets.commit(self.group, self.queue, needed)
            self._checkpoint = needed
            self.keys.forget_below(needed)

    async def _create_topic(self) -> None:
        header = CreateTopicRequestHeader(
            topic=self.topic,
            default_topic=DEFAULT_TOPIC,
            read_queue_nums=2,
            write_queue_nums=2,
            perm=PERM_READ | PERM_WRITE,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=False,
        )
        try:
            addr = self._session.routes.master_addr(self.queue.broker_name)
            command = request(RequestCode.UPDATE_AND_CREATE_TOPIC, 0, header)
            await self._session.call_checked(addr, command)
        except RemotingError:
            raise
        except BrokerError as error:
            raise BrokerError(
                error.code,
                f"{error.remark}: the topic {self.topic} is missing and cannot be made; make it "
                f"with two queues on each broker (cometmq topic create '{self.topic}' --queues 2)",
                error.addr,
            ) from error


def _request(queue: MessageQueue, offset: int, count: int, suspend_s: float) -> PullRequest:
    wanted = TopicFilter()
    return PullRequest(queue, offset, count, wanted, suspend_s=suspend_s, carries_filter=True)


class ParkingLogs:
    """The parking queues that one consumer follows, by broker. One loop owns it."""

    def __init__(self, session: ClientSession, group: str, sender: RetryingSender) -> None:
        self.sender = sender
        self._session = session
        self._group = group
        self._logs: dict[str, ParkingLog] = {}
        self._owners = count()

    def next_owner(self) -> str:
        """A name for an owner of a queue that no other has."""
        return f"{self._session.client_id}/{next(self._owners)}"

    def log_of(self, broker_name: str) -> ParkingLog:
        """The log of a broker, the same each time; it is followed from the first call on."""
        found = self._logs.get(broker_name)
        if found is None:
            found = ParkingLog(self._session, self._group, broker_name, self.sender)
            self._logs[broker_name] = found
            self._session.background.spawn(found.follow(), name=f"parking queue {broker_name}")
        return found
