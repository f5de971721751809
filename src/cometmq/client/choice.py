"""Which queue a message goes to: by its key's hash, else in turn, away from a broker that failed.

Owns the turn of each topic; refuses to know routes and errors. Invariant: with a sharding key the
choice depends on the key and the number of queues only.
Java: TopicPublishInfo.selectOneMessageQueue, SelectMessageQueueByHash
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.rules.key_hash import queue_index
from cometmq.wire.java_hash import java_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.model.queue import MessageQueue


class QueueChoice:
    """Chooses queues for one producer; `first` is where every topic's turn begins."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._turns: dict[str, int] = {}
        self._codes: dict[str, int] = {}

    def by_key(self, queues: Sequence[MessageQueue], key: str) -> MessageQueue:
        """The queue of a sharding key, the same in every RocketMQ client."""
        return queues[self.index_of(key, len(queues))]

    def index_of(self, key: str, count: int) -> int:
        """The index of a sharding key's queue among so many."""
        code = self._codes.get(key)
        if code is None:
            if len(self._codes) >= 65_536:
                self._codes.clear()
            code = self._codes[key] = java_hash(key)
        return queue_index(code, count)

    def next_turn(self, topic: str) -> int:
        """The number of the topic's next turn."""
        turn = self._turns.get(topic, self._first)
        self._turns[topic] = turn + 1
        return turn

    def in_turn(
        self, topic: str, queues: Sequence[MessageQueue], avoid_broker: str | None = None
    ) -> MessageQueue:
        """The next queue, on another broker than the one to avoid if there is any."""
        turn = self._turns.get(topic, self._first)
        for step in range(len(queues)):
            queue = queues[(turn + step) % len(queues)]
            if queue.broker_name != avoid_broker:
                self._turns[topic] = turn + step + 1
                return queue
        self._turns[topic] = turn + 1
        return queues[turn % len(queues)]
