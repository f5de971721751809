"""Which queue a message goes to: by its key, by a function, else in turn, away from trouble.

Owns the turn of each topic and the queues that keys were given; refuses to know routes and errors
of sends. Invariant: with a sharding key and `hash` the choice depends on the key and the number of
queues only; with `balanced` a key stays where it was put as long as it is remembered; `strict`
keeps the queues of the first send and fails rather than choose among others.
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
    from cometmq.client.producer.latency_tracker import Faults

Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Chooses among a topic's queues: what `queue=` takes instead of a queue."""
KEYS_MAX = 100_000
"""So many keys of a topic have a balanced place; the one used longest ago is forgotten first."""
_CODES_MAX = 65_536


class ByHash:
    """A selector: the queue that Java's SelectMessageQueueByHash takes for the same argument."""

    def __init__(self, key: str | int, *, is_long: bool) -> None:
        self.key = key
        self._code = java_hash(key) if isinstance(key, str) else hash_of_number(key, is_long)

    def __call__(self, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        """The queue of the key."""
        del message
        return queues[queue_index(self._code, len(queues))]


def by_hash(key: str | int, *, is_long: bool = False) -> Selector:
    """A selector for `queue=`: the queue a Java producer chooses by hash for the same key.

    A number counts as Java's Integer, or as its Long with `is_long` or beyond 32 bits: the two
    differ for negative numbers. Sends of one key go one after the other. Raises ClientError for
    anything else.
    """
    if type(key) not in (str, int):
        raise ClientError(f"a key to hash is a text or a whole number, not {key!r:.80}")
    check_flag("is_long", is_long)
    return ByHash(key, is_long=is_long)


class _Balance:
    """Where the keys of one topic were put."""

    def __init__(self) -> None:
        self.places: OrderedDict[str, MessageQueue] = OrderedDict()
        self.keys: dict[MessageQueue, int] = {}
        self.sends: dict[MessageQueue, int] = {}


class QueueChoice:
    """Chooses queues for one producer; `first` is where every topic's turn begins."""

    def __init__(
        self,
        first: int,
        *,
        balanced: bool = False,
        strict: bool = False,
        faults: Faults | None = None,
    ) -> None:
        self._first, self._balanced, self._strict = first, balanced, strict
        self._faults = faults
        self.is_plain = not (balanced or strict)
        """Whether `index_of` is all there is to a key."""
        self._turns: dict[str, int] = {}
        self._codes: dict[str, int] = {}
        self._kept: dict[str, Sequence[MessageQueue]] = {}
        self._balances: dict[str, _Balance] = {}

    def by_key(self, queues: Sequence[MessageQueue], key: str) -> MessageQueue:
        """The queue of a sharding key; raises RouteNotFound when strict and it is gone."""
        present = queues
        if self._strict:
            queues = self._kept.setdefault(queues[0].topic, queues)
        if self._balanced:
            chosen = self._balance(queues, key)
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
        """The number of the topic's next turn."""
        turn = self._turns.get(topic, self._first)
        self._turns[topic] = turn + 1
        return turn

    def in_turn(
        self, topic: str, queues: Sequence[MessageQueue], avoid_broker: str | None = None
    ) -> MessageQueue:
        """The next queue, on another broker than the one to avoid if there is any."""
        turn = self._turns.get(topic, self._first)
        self._turns[topic] = turn + 1
        if self._faults is not None:
            return self._faults.choose(queues, turn, avoid_broker)
        for step in range(len(queues)):
            queue = queues[(turn + step) % len(queues)]
            if queue.broker_name != avoid_broker:
                self._turns[topic] = turn + step + 1
                return queue
        return queues[turn % len(queues)]

    def _balance(self, queues: Sequence[MessageQueue], key: str) -> MessageQueue:
        """Where the key is; a new one goes to the queue with the fewest keys, then sends."""
        topic = queues[0].topic
        balance = self._balances.setdefault(topic, _Balance())
        chosen = balance.places.get(key)
        if chosen is None or chosen not in queues:
            if chosen is not None:
                balance.keys[chosen] -= 1
            chosen = min(queues, key=lambda q: (balance.keys.get(q, 0), balance.sends.get(q, 0)))
            balance.places[key] = chosen
            balance.keys[chosen] = balance.keys.get(chosen, 0) + 1
            if len(balance.places) > KEYS_MAX:
                _, gone = balance.places.popitem(last=False)
                balance.keys[gone] -= 1
        balance.places.move_to_end(key)
        balance.sends[chosen] = balance.sends.get(chosen, 0) + 1
        return chosen
