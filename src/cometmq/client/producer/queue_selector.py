"""Selects the queue of a message: by its key, by the user's function, else round-robin.

Owns the round-robin counter of each topic and the queues that keys were assigned; refuses to know
routes and errors. Invariants: with a sharding key and `hash` the queue depends only on the key and
the number of queues. With `balanced` a key stays at its queue as long as it is remembered. `strict`
keeps the queues of the first send, and fails rather than select among others.
Java: TopicPublishInfo.selectOneMessageQueue, MQFaultStrategy, SelectMessageQueueByHash
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cometmq.client.session.argument_checks import check_flag
from cometmq.errors import ClientError, RouteNotFound
from cometmq.model.message import Message
from cometmq.model.queue import MessageQueue
from cometmq.rules.key_hash import hash_of_number, queue_index
from cometmq.wire.java_hash import java_hash

if TYPE_CHECKING:
    from cometmq.client.producer.latency_tracker import LatencyTracker

SelectQueue = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Selects one of a topic's queues: what `queue=` takes instead of a queue."""
KEYS_MAX = 100_000
"""Balanced keys of one topic that are remembered; the least recently used one is forgotten."""
_CODES_MAX = 65_536
"""Keys whose hash codes are cached; one more empties the cache."""


class ByHash:
    """Selects the queue that Java's SelectMessageQueueByHash does for the same argument."""

    def __init__(self, key: str | int, *, is_long: bool) -> None:
        self.key = key
        self._code = java_hash(key) if isinstance(key, str) else hash_of_number(key, is_long)

    def __call__(self, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        """Return the queue of the key."""
        del message
        return queues[queue_index(self._code, len(queues))]


def by_hash(key: str | int, *, is_long: bool = False) -> SelectQueue:
    """A function for `queue=`: it selects the queue a Java producer does for the same key.

    A number counts as Java's Integer, or as its Long with `is_long` or beyond 32 bits: the two
    differ for negative numbers. Sends of one key go one after the other. Raises ClientError for
    anything else.
    """
    if type(key) not in (str, int):
        raise ClientError(f"a key to hash is a text or a whole number, not {key!r:.80}")
    check_flag("is_long", is_long)
    return ByHash(key, is_long=is_long)


class _KeyBalance:
    """The queues that the keys of one topic were assigned."""

    def __init__(self) -> None:
        self.queue_of: OrderedDict[str, MessageQueue] = OrderedDict()
        self.key_counts: dict[MessageQueue, int] = {}
        self.send_counts: dict[MessageQueue, int] = {}


class QueueSelector:
    """Selects queues for one producer; `first` is where the round-robin of every topic begins."""

    def __init__(
        self,
        first: int,
        *,
        balanced: bool = False,
        strict: bool = False,
        latency_tracker: LatencyTracker | None = None,
    ) -> None:
        self._first = first
        self._balanced = balanced
        self._strict = strict
        self._latency_tracker = latency_tracker
        self.is_hash_only = not (balanced or strict)
        """Whether `index_of` alone decides the queue of a key."""
        self._turns: dict[str, int] = {}
        self._codes: dict[str, int] = {}
        self._first_queues: dict[str, Sequence[MessageQueue]] = {}
        self._balances: dict[str, _KeyBalance] = {}

    def for_key(self, queues: Sequence[MessageQueue], key: str) -> MessageQueue:
        """The queue of a sharding key; raises RouteNotFound when strict and it is gone."""
        present = queues
        if self._strict:
            queues = self._first_queues.setdefault(queues[0].topic, queues)
        if self._balanced:
            chosen = self._balanced_queue(queues, key)
        else:
            chosen = queues[self.index_of(key, len(queues))]
        if self._strict and chosen not in present:
            raise RouteNotFound(
                f"queue {chosen.queue_id} of {chosen.topic} on {chosen.broker_name}, where the key "
                f"{key[:64]!r} belongs, is not in the route now; strict_order takes no other"
            )
        return chosen

    def index_of(self, key: str, count: int) -> int:
        """The index of a sharding key's queue among so many, the same in every RocketMQ client."""
        code = self._codes.get(key)
        if code is None:
            if len(self._codes) >= _CODES_MAX:
                self._codes.clear()
            code = self._codes[key] = java_hash(key)
        return queue_index(code, count)

    def next_turn(self, topic: str) -> int:
        """Advance the topic's round-robin and return its position."""
        turn = self._turns.get(topic, self._first)
        self._turns[topic] = turn + 1
        return turn

    def round_robin(
        self, topic: str, queues: Sequence[MessageQueue], avoid_broker: str | None = None
    ) -> MessageQueue:
        """The next queue, on another broker than the one to avoid where there is one."""
        turn = self.next_turn(topic)
        if self._latency_tracker is not None:
            return self._latency_tracker.choose(queues, turn, avoid_broker)
        for step in range(len(queues)):
            queue = queues[(turn + step) % len(queues)]
            if queue.broker_name != avoid_broker:
                self._turns[topic] = turn + step + 1
                return queue
        return queues[turn % len(queues)]

    def _balanced_queue(self, queues: Sequence[MessageQueue], key: str) -> MessageQueue:
        """The key's queue; a new key gets the queue with the fewest keys, then sends."""
        topic = queues[0].topic
        balance = self._balances.setdefault(topic, _KeyBalance())
        chosen = balance.queue_of.get(key)
        if chosen is None or chosen not in queues:
            if chosen is not None:
                balance.key_counts[chosen] -= 1
            chosen = min(
                queues, key=lambda q: (balance.key_counts.get(q, 0), balance.send_counts.get(q, 0))
            )
            balance.queue_of[key] = chosen
            balance.key_counts[chosen] = balance.key_counts.get(chosen, 0) + 1
            if len(balance.queue_of) > KEYS_MAX:
                _, forgotten = balance.queue_of.popitem(last=False)
                balance.key_counts[forgotten] -= 1
                assert balance.key_counts[forgotten] >= 0, "a key is counted where it is"
        balance.queue_of.move_to_end(key)
        balance.send_counts[chosen] = balance.send_counts.get(chosen, 0) + 1
        return chosen
