"""Puts a polling consumer together: the order of start and stop, and the automatic commit.

Knows nothing of the public methods. Invariant: positions are noted before the next batch is handed
out, never with it, so a crash repeats the batch that was handed out last.
Java: DefaultLitePullConsumerImpl
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.client.consumer.broker_requests import BrokerRequestHandler
from cometmq.client.consumer.consumer_statistics import SAMPLE_S, ConsumerStatistics
from cometmq.client.consumer.pull_request import PullClient
from cometmq.client.consumer.queue_assignment import QueueAssignment
from cometmq.client.consumer.repeated_problem_log import ProblemLog
from cometmq.client.offsets.broker_offsets import BrokerOffsets
from cometmq.client.polling.lite_pull_loop import LitePullLoop
from cometmq.client.polling.lite_pull_offset_store import (
    LitePullLocalOffsetStore,
    LitePullOffsetStore,
)
from cometmq.client.polling.lite_pull_rebalance import LitePullRebalance
from cometmq.client.polling.poll_buffer import PollBuffer
from cometmq.errors import ClientError
from cometmq.model.subscription import ConsumerData, ConsumeType, MessageModel
from cometmq.runtime.background import BackgroundTasks
from cometmq.runtime.system_clock_and_files import SystemFiles, expand_user_path
from cometmq.wire.codes import RequestCode

if TYPE_CHECKING:
    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.consumer.consumer_options import ConsumerOptions
    from cometmq.client.polling.lite_pull_options import LitePullOptions
    from cometmq.client.polling.lite_pull_subscriptions import LitePullSubscriptions
    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.message import MessageExt
    from cometmq.model.queue import MessageQueue

_START_S = 10.0


class LitePullEngine:
    """One running lite pull consumer. Belongs to the loop it was made on."""

    def __init__(
        self,
        session: ClientSession,
        options: ConsumerOptions,
        lite: LitePullOptions,
        subscriptions: LitePullSubscriptions,
    ) -> None:
        self._options = options
        self._lite = lite
        self._subscriptions = subscriptions
        self.session = session
        subscriptions.freeze(session.clock.now_ms())
        self.pull_client = PullClient(session, options.group, options.inflated_bytes_max)
        self.buffer = PollBuffer()
        self.offsets = _offsets(session, options)
        self._broker_offsets = BrokerOffsets(session)
        self._stats = ConsumerStatistics(session.clock)
        problems = ProblemLog(options.group)
        self.assignment = QueueAssignment(options, self.offsets, None, session.background, problems)
        self.rebalance = LitePullRebalance(
            session, options, subscriptions, self.assignment, problems
        )
        pull_loop = LitePullLoop(
            session,
            options,
            subscriptions,
            self.offsets,
            self.buffer,
            self.assignment,
            self._stats,
            lite.cached_max,
        )
        self.assignment.connect(self.buffer, pull_loop)
        self._broker_requests = BrokerRequestHandler(
            session,
            options,
            subscriptions,
            self.rebalance,
            self.assignment,
            self._stats,
            self.buffer.running_info,
        )
        self._rounds = BackgroundTasks(f"{session.client_id} rebalance")
        self._commit_at = asyncio.get_running_loop().time() + lite.auto_commit_s
        self.is_stopped = False

    async def start(self) -> None:
        """Join the group; the first round of rebalance follows at once."""
        session = self.session
        session.register_consumer(self._consumer_data)
        self._broker_requests.register()
        del session.request_handlers[RequestCode.CONSUME_MESSAGE_DIRECTLY]  # there is no handler
        await session.heartbeat()
        session.start()
        session.background.every(SAMPLE_S, self._stats.sample, name="statistics")
        session.background.every(self._options.persist_s, self._persist, name="offsets")
        self.rebalance.wake()
        self._rounds.every(1.0, self.rebalance.run, name="rounds", first_s=0.0)

    async def stop(self, *, is_clean: bool) -> None:
        """Commit and leave; after a failure the messages handed out last are not committed."""
        self.is_stopped = True
        if self._lite.auto_commit:
            self.mark_all_consumed()
            if not is_clean and self.buffer.last_taken is not None:
                assigned, offset = self.buffer.last_taken
                if not assigned.is_dropped:
                    self.offsets.set_consumed(assigned.queue, offset)
        self.buffer.close()
        try:
            await self._rounds.stop()
            await self.assignment.stop()
        finally:
            await self.session.stop()

    def commit_if_due(self) -> None:
        """Note all positions when that is due; called before anything is handed out."""
        if not self._lite.auto_commit:
            return
        now = asyncio.get_running_loop().time()
        if now >= self._commit_at:
            self._commit_at = now + self._lite.auto_commit_s
            self.mark_all_consumed()

    def mark_all_consumed(self) -> None:
        """Note that everything handed out is consumed."""
        for queue, assigned in self.assignment.table.items():
            if not assigned.is_dropped:
                self.offsets.set_consumed(queue, assigned.window.commit_offset)

    async def poll(self, timeout_s: float, max_count: int) -> list[MessageExt]:
        """The next messages of one queue; none when none come in time or the consumer stops."""
        self.commit_if_due()
        loop, polls = asyncio.get_running_loop(), self.buffer
        deadline = loop.time() + timeout_s
        while not self.is_stopped:
            polls.changed.clear()
            if found := polls.take(max_count):
                return found
            if self._subscriptions.queues is None and not self._subscriptions.topics:
                raise ClientError(
                    "there is nothing to poll: subscribe to a topic before the start, or assign "
                    "queues"
                )
            try:
                async with asyncio.timeout_at(deadline):
                    await polls.changed.wait()
            except TimeoutError:
                return []
        return []

    def assigned(self, queue: MessageQueue) -> AssignedQueue:
        """A queue in work. Raises ClientError for another."""
        found = self.assignment.table.get(queue)
        if found is None:
            raise ClientError(f"{queue} is not assigned to this consumer now")
        return found

    async def wait_until_assigned(self, queue: MessageQueue) -> AssignedQueue:
        """A queue that was assigned by hand may not be in work yet: wait until it is."""
        if self._subscriptions.queues is not None and queue in self._subscriptions.queues:
            deadline = asyncio.get_running_loop().time() + _START_S
            while queue not in self.assignment.table:
                if asyncio.get_running_loop().time() > deadline:
                    raise ClientError(f"{queue} could not be started within {_START_S:g} s")
                await asyncio.sleep(0.01)
        return self.assigned(queue)

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset, and forget what was pulled of the queue."""
        assigned = await self.wait_until_assigned(queue)
        self.assignment.restart_queue(assigned)
        self.offsets.reset(queue, offset)
        deadline = asyncio.get_running_loop().time() + _START_S
        while self.assignment.table.get(queue) in (None, assigned):
            if self.is_stopped or asyncio.get_running_loop().time() > deadline:
                raise ClientError(f"{queue} could not be restarted at {offset}")
            await asyncio.sleep(0.002)

    async def commit(self, offsets: dict[MessageQueue, int] | None) -> None:
        """Commit the offsets given, or all positions, and wait until they are kept."""
        if offsets is None:
            self.mark_all_consumed()
            table = self.assignment.table
            offsets = {q: at for q in table if (at := self.offsets.consumed_offset(q)) is not None}
        for queue, offset in offsets.items():
            self.offsets.set_consumed(queue, offset)
        await asyncio.gather(*(self.offsets.commit(q, at) for q, at in offsets.items()))

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is still there."""
        await self._find_broker(queue)
        return await self._broker_offsets.min_offset(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        await self._find_broker(queue)
        return await self._broker_offsets.max_offset(queue)

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at a time or later."""
        await self._find_broker(queue)
        return await self._broker_offsets.offset_at(queue, timestamp_ms)

    async def _find_broker(self, queue: MessageQueue) -> None:
        """Have the address of a queue's broker known: the queue need not be assigned."""
        await self.session.routes.subscribe_queues(queue.topic)

    def _persist(self) -> None:
        self.offsets.persist(self.assignment.table)

    def _consumer_data(self) -> ConsumerData:
        broadcasting = self._options.broadcasting
        return ConsumerData(
            group_name=self._options.group,
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            message_model=MessageModel.BROADCASTING if broadcasting else MessageModel.CLUSTERING,
            subscriptions=self._subscriptions.data(),
        )


def _offsets(session: ClientSession, options: ConsumerOptions) -> LitePullOffsetStore:
    if options.broadcasting:
        folder = expand_user_path("offsets_dir", options.offsets_dir)
        return LitePullLocalOffsetStore(session, options, folder, SystemFiles())
    return LitePullOffsetStore(session, options)
