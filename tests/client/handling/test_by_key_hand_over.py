"""What waits for a thread keeps no queue from its next owner, however long other queues take."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from client.short_delay_cluster import until
from cometmq import Message, MessageExt, Producer, PushConsumer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cometmq import MessageQueue
    from cometmq.testing.cluster import LocalCluster


class StuckHandler:
    """Keeps the first messages it gets until it is opened; knows the queues of all."""

    def __init__(self) -> None:
        self.queue_ids: list[int] = []
        self._is_open = threading.Event()

    def in_a_thread(self, messages: list[MessageExt]) -> None:
        self.queue_ids += [one.queue_id for one in messages]
        self._is_open.wait(60)

    async def in_a_task(self, messages: list[MessageExt]) -> None:
        self.queue_ids += [one.queue_id for one in messages]
        while not self._is_open.is_set():
            await asyncio.sleep(0.01)

    def open(self) -> None:
        self._is_open.set()


@pytest.mark.parametrize("kind", ["in_a_thread", "in_a_task"])
def test_a_queue_goes_to_its_next_owner_while_another_one_keeps_the_only_thread(
    cluster: LocalCluster,
    make_topic: Callable[..., str],
    by_key: Callable[..., PushConsumer],
    kind: str,
) -> None:
    topic, stuck, seen = make_topic(cluster, 2), StuckHandler(), list[int]()
    with Producer("senders", namesrv=cluster.namesrv) as producer:
        for queue in producer.queues(topic):
            producer.send(Message(topic, b"x", sharding_key="k"), queue=queue)

    def share(
        member: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """The first member keeps the queue that its handler has."""
        is_first = member == first.client_id
        if len(members) == 1 or queues[0].topic != topic:
            return list(queues) if is_first else []
        return [one for one in queues if (one.queue_id in stuck.queue_ids) == is_first]

    def in_flight() -> list[int]:
        return [one.in_flight for one in first.stats().queues if one.queue.topic == topic]

    settings: dict[str, Any] = {"allocate": share, "consume_threads": 1}
    first = by_key(topic, getattr(stuck, kind), instance_name="first", **settings)
    second = by_key(
        topic,
        lambda messages: seen.extend(one.queue_id for one in messages),
        instance_name="second",
        **settings,
    )
    with first:
        until(lambda: in_flight() == [1, 1])
        with second:
            until(lambda: seen == [1 - stuck.queue_ids[0]])
        stuck.open()
        until(lambda: in_flight() == [0, 0])
    assert len(stuck.queue_ids) == len(seen) == 1
