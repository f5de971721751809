"""Divides queues among the members of a group: RocketMQ's allocation strategies as pure functions.

Invariant: members that see the same queues and the same members compute the same allocation, and no
queue belongs to two of them. Queues are ordered by topic, broker and id, members by the UTF-16
order of their ids.
Java: org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueue*
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from cometmq.model.queue import MessageQueue

_VIRTUAL_NODES = 10


class Allocate(Protocol):
    """A strategy: the share of `client_id` among sorted `queues` and sorted `clients`."""

    def __call__(
        self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues that `client_id` gets; it is one of the clients."""
        ...


def share_of(
    strategy: Allocate, client_id: str, queues: Collection[MessageQueue], clients: Collection[str]
) -> list[MessageQueue]:
    """Sort queues and members as every client does, then ask the strategy; unknown member: none."""
    if client_id not in clients:
        return []
    # Java compares strings by UTF-16 units, not by code points (String.compareTo).
    members = sorted(set(clients), key=lambda client: client.encode("utf-16-be", "surrogatepass"))
    return strategy(client_id, sorted(queues), members)


def average(
    client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
) -> list[MessageQueue]:
    """AVG: neighbouring queues in equal runs, the first members one more (RocketMQ's default)."""
    index, members = clients.index(client_id), len(clients)
    size, rest = divmod(len(queues), members)
    start = index * size + min(index, rest)
    assert start + size + (index < rest) <= len(queues), "the runs end with the last queue"
    return list(queues[start : start + size + (index < rest)])


def average_by_circle(
    client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
) -> list[MessageQueue]:
    """AVG_BY_CIRCLE: queues dealt out round robin."""
    return list(queues[clients.index(client_id) :: len(clients)])


def consistent_hash(
    client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
) -> list[MessageQueue]:
    """CONSISTENT_HASH: a ring with ten points per member, so that a change moves few queues."""
    ring = sorted(
        (_md5(f"{client}-{n}"), client) for client in clients for n in range(_VIRTUAL_NODES)
    )
    places = [place for place, _ in ring]
    assert len(ring) == _VIRTUAL_NODES * len(set(clients)), "members come once each"
    return [
        queue
        for queue in queues
        if ring[bisect_left(places, _md5(_text(queue))) % len(ring)][1] == client_id
    ]


def configured(own: Collection[MessageQueue]) -> Allocate:
    """CONFIG: always the queues given here, whatever other members there are."""

    def allocate(
        client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]:
        del client_id, clients
        return [queue for queue in queues if queue in own]

    return allocate


def machine_room(rooms: Collection[str]) -> Allocate:
    """MACHINE_ROOM: only queues of brokers named `room@name` in one of these rooms."""

    def allocate(
        client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]:
        near = [queue for queue in queues if _room(queue.broker_name) in rooms]
        index, size = clients.index(client_id), len(near) // len(clients)
        rest = near[size * len(clients) :]
        return near[index * size : (index + 1) * size] + rest[index : index + 1]

    return allocate


def machine_room_nearby(
    inner: Allocate,
    room_of_broker: Callable[[str], str],
    room_of_client: Callable[[str], str],
) -> Allocate:
    """MACHINE_ROOM_NEARBY: `inner` within a member's own room; other rooms' queues go to all."""

    def allocate(
        client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]:
        here, rooms = room_of_client(client_id), {room_of_client(client) for client in clients}
        near = [queue for queue in queues if room_of_broker(queue.broker_name) == here]
        mates = [client for client in clients if room_of_client(client) == here]
        found = inner(client_id, near, mates)
        empty = {room_of_broker(queue.broker_name) for queue in queues} - rooms
        for room in sorted(empty):
            orphans = [queue for queue in queues if room_of_broker(queue.broker_name) == room]
            found += inner(client_id, orphans, clients)
        return found

    return allocate


STRATEGIES: dict[str, Allocate] = {
    "AVG": average,
    "AVG_BY_CIRCLE": average_by_circle,
    "CONSISTENT_HASH": consistent_hash,
}
"""The strategies that need no arguments, by RocketMQ's names."""


def _room(broker_name: str) -> str | None:
    """The room of a name like `room@name`; None for any other, one with two `@` included."""
    room, mark, name = broker_name.partition("@")
    return room if mark and name and "@" not in name else None


def _text(queue: MessageQueue) -> str:
    topic, broker, queue_id = queue
    return f"MessageQueue [topic={topic}, brokerName={broker}, queueId={queue_id}]"


def _md5(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4])
