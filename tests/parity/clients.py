"""What the tests of both implementations begin with: sending, reading, and members of groups."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from client.short_delay_cluster import until
from cometmq import (
    Admin,
    ConsumeFrom,
    LitePullConsumer,
    Message,
    Producer,
    PullStatus,
    PushConsumer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cometmq import MessageExt, MessageQueue, MessageSelector
    from parity.conftest import Cluster


def send(cluster: Cluster, topic: str, numbers: Iterable[int], **more: object) -> None:
    with Producer("parity", namesrv=cluster.namesrv) as producer:
        producer.send_many([Message(topic, str(n).encode(), **more) for n in numbers])


def send_around(cluster: Cluster, topic: str) -> int:
    """Send ten messages and ten more; a moment with a second to either side, epoch ms."""
    send(cluster, topic, range(10))
    time.sleep(1.1)
    middle_ms = int(time.time() * 1000)
    time.sleep(1.1)
    send(cluster, topic, range(10, 20))
    return middle_ms


def send_in_order(cluster: Cluster, topic: str, numbers: Iterable[int], keys: int = 5) -> None:
    with Producer("parity", namesrv=cluster.namesrv) as producer:
        producer.send_many(
            [Message(topic, str(n).encode(), sharding_key=f"key-{n % keys}") for n in numbers]
        )


def consumer(
    cluster: Cluster,
    group: str,
    topic: str,
    handler: Callable[[Sequence[MessageExt]], object],
    expression: str | MessageSelector = "*",
    **settings: object,
) -> PushConsumer:
    settings = {"consume_from": ConsumeFrom.FIRST, "rebalance_s": 1.0, **settings}
    made = PushConsumer(group, namesrv=cluster.namesrv, **settings)
    made.subscribe(topic, expression, handler)
    return made


def own(member: PushConsumer, topic: str) -> set[MessageQueue]:
    """The queues of a topic that a member works on."""
    return {queue for queue in member.assigned if queue.topic == topic}


class Seen:
    """A handler that keeps what it gets."""

    def __init__(self) -> None:
        self.messages: list[MessageExt] = []

    def __call__(self, messages: Sequence[MessageExt]) -> None:
        self.messages += messages

    @property
    def numbers(self) -> list[int]:
        return [int(message.body) for message in self.messages]

    def wait(self, count: int, timeout_s: float = 60) -> None:
        until(lambda: len(self.messages) >= count, timeout_s)


def lite(cluster: Cluster, group: str, **settings: object) -> LitePullConsumer:
    settings = {"consume_from": ConsumeFrom.FIRST, "rebalance_s": 1.0, **settings}
    return LitePullConsumer(group, namesrv=cluster.namesrv, **settings)


def polled(reader: LitePullConsumer, count: int) -> list[int]:
    found: list[int] = []
    end = time.monotonic() + 60
    while len(found) < count and time.monotonic() < end:
        found += [int(message.body) for message in reader.poll(1.0)]
    return found


def only_queue(cluster: Cluster, topic: str) -> MessageQueue:
    with Admin(namesrv=cluster.namesrv) as admin:
        (queue,) = admin.queues(topic)
    return queue


def stored(cluster: Cluster, topic: str, count: int, timeout_s: float = 60) -> list[MessageExt]:
    """Everything that lies in a topic, once it is so much: queue by queue, in its order."""
    found: list[MessageExt] = []
    with LitePullConsumer("parity-reader", namesrv=cluster.namesrv) as reader:
        offsets = dict.fromkeys(reader.fetch_message_queues(topic), 0)
        end = time.monotonic() + timeout_s
        while True:
            before = len(found)
            for queue, offset in offsets.items():
                got = reader.pull(queue, "*", offset)
                if got.status is not PullStatus.NO_NEW_MSG:
                    offsets[queue] = got.next_offset
                    found += got.messages
            if len(found) == before:
                if len(found) >= count:
                    return sorted(found, key=lambda m: (m.broker_name, m.queue_id, m.queue_offset))
                assert time.monotonic() < end, f"{len(found)} of {count} messages in {topic}"
                time.sleep(0.05)


def dead_letters(cluster: Cluster, group: str, count: int) -> list[bytes]:
    """The bodies of a group's dead letters, once there are so many."""
    topic = f"%DLQ%{group}"
    with Admin(namesrv=cluster.namesrv) as admin:
        until(lambda: topic in admin.topics(), 60)
    return sorted(message.body for message in stored(cluster, topic, count))


def committed(cluster: Cluster, group: str, topic: str) -> int:
    """How many messages of a topic a group is past."""
    with Admin(namesrv=cluster.namesrv) as admin:
        return sum(offset or 0 for offset in admin.group_offsets(group, topic).values())
