"""What a lite pull consumer has in place of handlers: batches that wait until somebody polls.

Owns the waiting batches, the positions that are committed, and queues assigned by hand; refuses to
know the public methods. Invariant: nothing is committed that was not handed out, and nothing that
was handed out last unless the user says so.
Java: DefaultLitePullConsumerImpl, AssignedMessageQueue, RebalanceLitePullImpl
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from cometmq.client.consumer.pull_loop import PullLoop
from cometmq.client.consumer.rebalance import Rebalance
from cometmq.client.consumer.subscriptions import Subscriptions
from cometmq.client.offsets.local_offset_store import LocalOffsetStore
from cometmq.client.offsets.offset_store import OffsetStore
from cometmq.model.subscription import TAG

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.consumer.consumer_options import ConsumerOptions
    from cometmq.client.consumer.pull_request import PullRequest
    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.message import MessageExt
    from cometmq.model.queue import MessageQueue
    from cometmq.model.results import BlockedQueue
    from cometmq.model.selector import MessageSelector
    from cometmq.runtime.ports import Files


class PollBuffer:
    """Batches that were pulled and wait for a poll. One loop owns it."""

    overlap_count = 0

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        """Set when there may be something to poll, or nothing will come any more."""
        self.paused: set[MessageQueue] = set()
        self.message_count = 0
        """Messages that wait."""
        self._batches: deque[tuple[AssignedQueue, deque[MessageExt]]] = deque()

    def start_queue(self, assigned: AssignedQueue) -> None:
        """Keep a queue paused that was paused before it was begun anew."""
        assigned.is_paused = assigned.queue in self.paused

    def add_messages(self, assigned: AssignedQueue, messages: list[MessageExt]) -> None:
        """Let newly pulled messages wait."""
        if messages:
            assigned.window.take(len(messages))
            self._batches.append((assigned, deque(messages)))
            self.message_count += len(messages)
            self.changed.set()

    def take(self, count: int) -> list[MessageExt]:
        """Hand out up to `count` messages of one queue, the oldest batch first."""
        for _ in range(len(self._batches)):
            assigned, waiting = self._batches[0]
            if assigned.is_dropped:
                self.message_count -= len(waiting)
                self._batches.popleft()
                continue
            if assigned.is_paused:
                self._batches.rotate(-1)
                continue
            if count < len(waiting):
                found = [waiting.popleft() for _ in range(count)]
            else:
                found = list(waiting)
                self._batches.popleft()
            self.message_count -= len(found)
            assigned.window.finish(found)
            return found
        return []

    async def drain_queue(self, assigned: AssignedQueue, timeout_s: float) -> bool:
        """Nothing is in the hands of a handler."""
        del assigned, timeout_s
        return True

    def blocked_queues(self) -> list[BlockedQueue]:
        """Nothing stands still but by the user's will."""
        return []

    def running_info(self) -> dict[str, str]:
        """That this consumer pulls by itself."""
        return {"PROP_CONSUME_TYPE": "CONSUME_ACTIVELY"}

    def close(self) -> None:
        """Let whoever polls go."""
        self._batches.clear()
        self.changed.set()


class LitePullOffsetStore(OffsetStore):
    """Offsets that only `set_consumed` moves: a message handed out is not done yet."""

    def __init__(self, session: ClientSession, options: ConsumerOptions) -> None:
        super().__init__(session, options.group, options.consume_from, options.consume_timestamp_ms)
        self._starts: dict[MessageQueue, int] = {}

    def set_consumed(self, queue: MessageQueue, offset: int) -> None:
        """Take everything below `offset` for done."""
        self._memory[queue] = offset

    def consumed_offset(self, queue: MessageQueue) -> int | None:
        """What was noted last here."""
        return self._memory.get(queue)

    def remember(self, queue: MessageQueue, offset: int) -> None:
        """Nothing: that a queue was read says nothing about what is done."""

    def reset(self, queue: MessageQueue, offset: int) -> None:
        """Begin there when the queue is begun next, without committing it."""
        self._starts[queue] = offset

    async def start_offset(self, queue: MessageQueue) -> int:
        """Where `reset` said, else as for every consumer."""
        found = self._starts.pop(queue, None)
        return await super().start_offset(queue) if found is None else found

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit what was noted, whatever was read; nothing when nothing was."""
        del offset
        noted = self._memory.get(queue)
        if noted is not None:
            await super().commit(queue, noted)


class LitePullLocalOffsetStore(LitePullOffsetStore, LocalOffsetStore):
    """The same in a file, for a group that is broadcast to."""

    def __init__(
        self, session: ClientSession, options: ConsumerOptions, folder: Path, files: Files
    ) -> None:
        LocalOffsetStore.__init__(self, session, options, folder, files)
        self._starts = {}


class LitePullSubscriptions(Subscriptions):
    """Topics to share out, or queues assigned by hand; no retry topic."""

    def __init__(self, group: str) -> None:
        super().__init__(group, broadcasting=True)
        self.queues: frozenset[MessageQueue] | None = None
        """The queues assigned by hand; None: queues of the topics are shared out."""
        self._leaving_topics: set[str] = set()

    def subscribe(self, topic: str, selector: MessageSelector) -> None:
        """Have messages of a topic."""
        self.add(topic, selector, _nobody)

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Have these queues, and no other."""
        self._leaving_topics |= {queue.topic for queue in self.queues or ()}
        self.queues = frozenset(queues)

    def freeze(self, version_ms: int) -> None:
        """Give the subscriptions their version; there may be none."""
        self._version = version_ms

    @property
    def topics(self) -> list[str]:
        """The topics to settle in a round."""
        if self.queues is None:
            return super().topics
        return sorted({queue.topic for queue in self.queues} | self._leaving_topics)


class LitePullRebalance(Rebalance):
    """Queues shared out among the members, or those assigned by hand."""

    _subscriptions: LitePullSubscriptions

    async def _topic_round(self, topic: str) -> bool:
        queues = self._subscriptions.queues
        if queues is None:
            return await super()._topic_round(topic)
        await self._session.routes.subscribe_queues(topic)  # for the brokers' addresses
        return await self._settle(topic, sorted(one for one in queues if one.topic == topic))


class LitePullLoop(PullLoop):
    """Pulls that say themselves what they want, up to a limit for all queues together."""

    cached_max = 10_000
    """How many messages of all queues together may wait."""
    _consume: PollBuffer

    def _is_full(self, assigned: AssignedQueue) -> bool:
        return self._consume.message_count > self.cached_max or super()._is_full(assigned)

    def _ask(self, assigned: AssignedQueue) -> PullRequest:
        ask = super()._ask(assigned)
        if ask.filter.expression_type == TAG:
            ask = ask._replace(filter=ask.filter._replace(version=0))
        return ask._replace(is_lite=True, carries_filter=True, commit_offset=None)


def _nobody(messages: Sequence[MessageExt]) -> None:
    """The handler of a consumer that has none."""
