"""`resize` changes how many handlers of a running consumer run at once."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from client.short_delay_cluster import until
from cometmq import (
    Admin,
    AsyncPushConsumer,
    ClientError,
    ConsumeFrom,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    SettingsError,
)

if TYPE_CHECKING:
    from cometmq.testing.cluster import LocalCluster

MESSAGES = 200


class Gate:
    """A handler that waits until it may end, and knows how many wait."""

    def __init__(self) -> None:
        self.inside = self.done = 0
        self.most = self._alone = 0
        self._lock, self._places = threading.Lock(), threading.Semaphore(0)

    def __call__(self, messages: list[MessageExt]) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self._places.acquire(timeout=60)
        with self._lock:
            self.inside -= 1
            self.done += len(messages)

    async def in_a_task(self, messages: list[MessageExt]) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        while not self._places.acquire(blocking=False):
            await asyncio.sleep(0.005)
        self.inside -= 1
        self.done += len(messages)

    def is_down_to_one(self) -> bool:
        """Let one more end, unless a single one has been inside for 50 looks (0.5 s).

        A run that has begun goes on for 0.1 s with further messages of its queue.
        """
        self._alone = self._alone + 1 if self.inside == 1 else 0
        if not self._alone:
            self.open(1)
        return self._alone >= 50

    def open(self, places: int) -> None:
        self._places.release(places)


def fill(cluster: LocalCluster, topic: str) -> None:
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic(topic, 8)
    with Producer("senders", namesrv=cluster.namesrv) as producer:
        producer.send_many(
            [Message(topic, b"%d" % one, sharding_key=f"k{one}") for one in range(MESSAGES)]
        )


@pytest.mark.parametrize("order", ["none", "queue", "key"])
@pytest.mark.parametrize("kind", ["thread", "task"])
def test_a_running_consumer_gets_more_threads_and_fewer(
    cluster: LocalCluster, group: str, topic: str, tmp_path, order, kind
) -> None:
    fill(cluster, f"{topic}-8")
    gate = Gate()
    handler = gate if kind == "thread" else gate.in_a_task
    consumer = PushConsumer(
        group,
        namesrv=cluster.namesrv,
        consume_from=ConsumeFrom.FIRST,
        consume_threads=2,
        order=order,
        state_dir=tmp_path,
    )
    consumer.subscribe(f"{topic}-8", "*", handler)
    with consumer:
        until(lambda: gate.inside == 2)
        consumer.resize(6)
        until(lambda: gate.inside == 6)
        with Admin(namesrv=cluster.namesrv) as admin:
            (member,) = admin.group_members(group).members
        assert member.info is not None
        assert member.info.properties["PROP_THREADPOOL_CORE_SIZE"] == "6"
        consumer.resize(1)
        until(gate.is_down_to_one)
        gate.most, done = 0, gate.done
        gate.open(20)
        until(lambda: gate.done >= done + 20)
        assert gate.most <= 1
        consumer.resize(6)
        gate.open(MESSAGES)
        until(lambda: gate.done == MESSAGES)
    assert gate.most <= 6


def test_threads_that_are_too_many_end(cluster: LocalCluster, group: str, topic: str) -> None:
    fill(cluster, f"{topic}-8")
    gate = Gate()
    consumer = PushConsumer(
        group, namesrv=cluster.namesrv, consume_from="first", consume_threads=12
    )
    consumer.subscribe(f"{topic}-8", "*", gate)

    def threads() -> int:
        return sum(one.name.startswith(f"cometmq-{group}-") for one in threading.enumerate())

    with consumer:
        until(lambda: gate.inside == 12)
        gate.open(MESSAGES)
        until(lambda: gate.done == MESSAGES)
        consumer.resize(3)  # all of them wait for work
        until(lambda: threads() == 3)
    until(lambda: threads() == 0)


def test_what_cannot_be_resized_is_said(topic: str) -> None:
    consumer = PushConsumer("g", namesrv="127.0.0.1:1")
    for wrong in (0, 1001, 2.0, True):
        with pytest.raises(SettingsError, match="threads is"):
            consumer.resize(wrong)  # type: ignore[arg-type]
    consumer.resize(7)  # before the start: its consume_threads
    assert consumer._inner._options.consume_threads == 7
    processes = AsyncPushConsumer("g", namesrv="127.0.0.1:1", workers="process")
    with pytest.raises(ClientError, match="worker processes is fixed"):
        processes.resize(3)
