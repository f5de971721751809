"""Positions, offsets, iteration and the asyncio faces of consumers, on both implementations."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from client.short_delay_cluster import until
from cometmq import (
    Admin,
    AsyncAdmin,
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPushConsumer,
    ConsumeFrom,
    Message,
    MessageSelector,
    Producer,
    PullStatus,
)
from parity import process_work
from parity.clients import Seen, committed, consumer, lite, only_queue, polled, send, send_around

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cometmq import MessageExt
    from parity.conftest import Cluster

    MakeTopic = Callable[[int], str]

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


def test_operators_set_the_offset_of_a_group_that_rests(
    cluster: Cluster, make_topic: MakeTopic, group: str
) -> None:
    topic, first, again = make_topic(1), Seen(), Seen()
    send(cluster, topic, range(20))
    with consumer(cluster, group, topic, first):
        first.wait(20)
    assert committed(cluster, group, topic) == 20
    queue = only_queue(cluster, topic)
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.set_group_offsets(group, {queue: 15})
        stats = admin.consume_stats(group, topic)[queue]
    assert stats.broker_offset - stats.consumer_offset == 5
    with consumer(cluster, group, topic, again):
        again.wait(5)
    assert sorted(again.numbers) == list(range(15, 20))


def test_offsets_are_reported_while_a_group_works(
    cluster: Cluster, make_topic: MakeTopic, group: str
) -> None:
    topic, seen, go_on = make_topic(1), Seen(), threading.Event()
    send(cluster, topic, range(20))

    def work(messages: Sequence[MessageExt]) -> None:
        if int(messages[0].body) == 7:
            assert go_on.wait(60)
        seen(messages)

    with consumer(cluster, group, topic, work, persist_s=0.2):
        seen.wait(19)
        until(lambda: committed(cluster, group, topic) == 7)  # the lowest that is not finished
        go_on.set()
        until(lambda: committed(cluster, group, topic) == 20)


def test_async_handlers_run_as_tasks(cluster: Cluster, topic: str, group: str) -> None:
    async def scenario() -> tuple[set[int], int]:
        seen: set[int] = set()
        at_work, most, complete = 0, 0, asyncio.Event()

        async def handle(messages: Sequence[MessageExt]) -> None:
            nonlocal at_work, most
            at_work += 1
            most = max(most, at_work)
            await asyncio.sleep(0.02)
            at_work -= 1
            seen.update(int(message.body) for message in messages)
            if len(seen) == 60:
                complete.set()

        member = AsyncPushConsumer(
            group, namesrv=cluster.namesrv, consume_from=ConsumeFrom.FIRST, rebalance_s=1.0
        )
        member.subscribe(topic, "*", handle)
        async with AsyncProducer("parity", namesrv=cluster.namesrv) as producer:
            await producer.send_many([Message(topic, b"%d" % n) for n in range(60)])
        async with member, asyncio.timeout(60):
            await complete.wait()
        return seen, most

    seen, most = asyncio.run(scenario())
    assert seen == set(range(60))
    assert most > 1


def test_handlers_run_in_processes(
    cluster: Cluster, topic: str, group: str, tmp_path: Path
) -> None:
    place = tmp_path / "seen"
    send(cluster, topic, range(20), properties={"place": str(place)})
    settings = {"workers": "process", "consume_threads": 2}
    with consumer(cluster, group, topic, process_work.note, **settings):
        until(lambda: len(process_work.noted(place)) >= 20, 60)
    found = process_work.noted(place)
    assert sorted(number for _, number in found) == list(range(20))
    assert threading.get_native_id() not in {pid for pid, _ in found}


def test_a_batch_handler_gets_many_at_once(
    cluster: Cluster, make_topic: MakeTopic, group: str
) -> None:
    topic, sizes = make_topic(1), []
    send(cluster, topic, range(200))
    with consumer(cluster, group, topic, lambda m: sizes.append(len(m)), batch_size=16):
        until(lambda: sum(sizes) >= 200, 60)
    assert sum(sizes) == 200
    assert max(sizes) == 16


def test_a_lite_consumer_is_iterated(cluster: Cluster, topic: str, group: str) -> None:
    send(cluster, topic, range(20))
    reader, found = lite(cluster, group), []
    reader.subscribe(topic)
    with reader:
        for message in reader:
            found.append(int(message.body))
            if len(found) == 20:
                break
    assert sorted(found) == list(range(20))


def test_a_lite_consumer_is_iterated_on_asyncio(cluster: Cluster, topic: str, group: str) -> None:
    async def scenario() -> list[int]:
        reader = AsyncLitePullConsumer(
            group, namesrv=cluster.namesrv, consume_from=ConsumeFrom.FIRST, rebalance_s=1.0
        )
        reader.subscribe(topic, "keep")
        found: list[int] = []
        async with reader, asyncio.timeout(60):
            async for message in reader:
                found.append(int(message.body))
                if len(found) == 20:
                    break
        return found

    send(cluster, topic, range(20), tags="keep")
    send(cluster, topic, range(20, 30), tags="drop")
    assert sorted(asyncio.run(scenario())) == list(range(20))


def test_the_automatic_commit_leaves_out_the_last_batch(
    cluster: Cluster, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(1)
    send(cluster, topic, range(30))
    queue = only_queue(cluster, topic)
    reader = lite(cluster, group, auto_commit_s=0.2)
    reader.assign([queue])
    with suppress(ZeroDivisionError), reader:  # a block that ends by an error commits nothing
        assert [int(message.body) for message in reader.poll(5.0, 10)] == list(range(10))
        time.sleep(0.5)
        assert [int(message.body) for message in reader.poll(5.0, 10)] == list(range(10, 20))
        assert 1 / 0
    again = lite(cluster, group)
    again.assign([queue])
    with again:
        assert polled(again, 1)[0] == 10


def test_queues_are_paused_and_resumed_one_by_one(cluster: Cluster, topic: str, group: str) -> None:
    with Admin(namesrv=cluster.namesrv) as admin:
        queues = admin.queues(topic)
    reader = lite(cluster, group)
    reader.assign(queues)
    with reader:
        reader.pause(queues[:3])
        with Producer("parity", namesrv=cluster.namesrv) as producer:
            for n, queue in enumerate(queues):
                producer.send(Message(topic, b"%d" % n), queue=queue)
        assert polled(reader, 1) == [3]
        assert reader.poll(1.0) == []
        reader.resume(queues[:3])
        assert sorted(polled(reader, 3)) == [0, 1, 2]


def test_seeking_finds_the_ends_and_times(
    cluster: Cluster, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(1)
    middle_ms = send_around(cluster, topic)
    queue = only_queue(cluster, topic)
    reader = lite(cluster, group, auto_commit=False)
    reader.assign([queue])
    with reader:
        reader.seek(queue, reader.offset_for_timestamp(queue, middle_ms))
        assert polled(reader, 1)[0] == 10
        reader.seek_to_begin(queue)
        assert polled(reader, 1)[0] == 0
        reader.seek_to_end(queue)
        send(cluster, topic, [99])
        assert polled(reader, 1) == [99]


def test_a_lite_group_that_is_broadcast_to_keeps_its_own_positions(
    cluster: Cluster, topic: str, group: str, tmp_path: Path
) -> None:
    options = {"broadcasting": True, "offsets_dir": tmp_path}
    send(cluster, topic, range(20))
    for name in ("one", "other"):
        reader = lite(cluster, group, instance_name=name, **options)
        reader.subscribe(topic)
        with reader:
            assert sorted(polled(reader, 20)) == list(range(20))
    send(cluster, topic, [20])
    reader = lite(cluster, group, instance_name="one", **options)
    reader.subscribe(topic)
    with reader:
        assert polled(reader, 1) == [20]


def test_one_pull_by_condition_and_on_asyncio(
    cluster: Cluster, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(1)
    for n in range(10):
        send(cluster, topic, [n], tags="even" if n % 2 == 0 else "odd", properties={"n": str(n)})
    queue = only_queue(cluster, topic)

    async def scenario() -> list[list[int]]:
        found: list[list[int]] = []
        async with AsyncLitePullConsumer(group, namesrv=cluster.namesrv) as reader:
            for expression in ("odd", MessageSelector.by_sql("n > 6")):
                numbers, offset = [], 0
                while True:
                    result = await reader.pull(queue, expression, offset)
                    if result.status is PullStatus.NO_NEW_MSG:
                        break
                    numbers += [int(message.body) for message in result.messages]
                    offset = result.next_offset
                found.append(numbers)
        return found

    assert asyncio.run(scenario()) == [[1, 3, 5, 7, 9], [7, 8, 9]]


def test_the_blocking_and_the_asyncio_admin_see_the_same(
    cluster: Cluster, topic: str, group: str
) -> None:
    send(cluster, topic, range(8))

    async def scenario() -> tuple[object, ...]:
        async with AsyncAdmin(namesrv=cluster.namesrv) as admin:
            stats = await admin.topic_stats(topic)
            return await admin.topics(), await admin.queues(topic), stats

    with Admin(namesrv=cluster.namesrv) as admin:
        assert (admin.topics(), admin.queues(topic), admin.topic_stats(topic)) == asyncio.run(
            scenario()
        )
        assert sum(one.max_offset for one in admin.topic_stats(topic).values()) == 8
