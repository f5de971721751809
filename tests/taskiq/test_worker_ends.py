"""Taskiq's workers when they end, begin again or are forked."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from bounded_runs import run, until
from cometmq import Admin, AsyncPushConsumer, SettingsError
from cometmq.taskiq import CometTaskBroker
from cometmq.testing import LocalCluster
from taskiq import AckableMessage, BrokerMessage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.queues import Queue

_numbers = count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("workers"), apart=True) as running:
        yield running


@pytest.fixture
def topic(cluster: LocalCluster) -> str:
    name = f"work-{next(_numbers)}"
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic(name, 2)
    return name


async def kick(broker: CometTaskBroker, tasks: int) -> None:
    for number in range(tasks):
        await broker.kick(
            BrokerMessage(task_id=f"t{number}", task_name="t", message=b"%d" % number, labels={})
        )


async def take(broker: CometTaskBroker, found: list[AckableMessage]) -> None:
    async for one in broker.listen():
        assert isinstance(one, AckableMessage)
        found.append(one)


async def end(listening: asyncio.Task[None]) -> None:
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def started(cluster: LocalCluster, topic: str, **settings: Any) -> CometTaskBroker:
    broker = CometTaskBroker(cluster.namesrv, topic=topic, **settings)
    await broker.startup()
    return broker


def numbers(found: list[AckableMessage]) -> list[int]:
    return sorted(int(one.data) for one in found)


def work(broker: CometTaskBroker, runs: Queue[bytes], ready: Any, stop: Any) -> None:
    async def scenario() -> None:
        await broker.startup()
        found: list[AckableMessage] = []
        listening = asyncio.create_task(take(broker, found))
        await until(lambda: broker._consumer is not None and broker._consumer.assigned)
        ready.release()
        while not stop.is_set():
            await asyncio.sleep(0.01)
            while found:
                one = found.pop()
                runs.put(one.data)
                one.ack()
        await end(listening)
        await broker.shutdown()

    asyncio.run(scenario())


def test_workers_that_were_forked_share_the_tasks(cluster: LocalCluster, topic: str) -> None:
    broker, context = (
        CometTaskBroker(cluster.namesrv, topic=topic),
        multiprocessing.get_context("fork"),
    )
    runs: Queue[bytes] = context.Queue()
    ready, stop = context.Semaphore(0), context.Event()
    workers = [context.Process(target=work, args=(broker, runs, ready, stop)) for _ in range(2)]
    for one in workers:
        one.start()
    try:
        assert all(ready.acquire(timeout=60) for _ in workers)
        run(_kick_all(cluster, topic, 50))
        found = [runs.get(timeout=60) for _ in range(50)]
        stop.set()
        for one in workers:
            one.join(60)
        while not runs.empty():
            found.append(runs.get(timeout=60))
    finally:
        for one in workers:
            one.kill()
    assert [one.exitcode for one in workers] == [0, 0]
    assert set(Counter(found).values()) == {1}


async def _kick_all(cluster: LocalCluster, topic: str, tasks: int) -> None:
    kicker = await started(cluster, topic)
    await kick(kicker, tasks)
    await kicker.shutdown()


def test_a_worker_with_a_backlog_ends_at_once_and_keeps_what_was_acknowledged(
    cluster: LocalCluster, topic: str
) -> None:
    async def scenario() -> None:
        first = await started(cluster, topic, consume_threads=20, stop_timeout_s=600.0)
        await kick(first, 300)
        found: list[AckableMessage] = []
        listening = asyncio.create_task(take(first, found))
        await until(lambda: len(found) == 20)
        kept = found[0]
        for one in found[1:]:
            one.ack()
        await until(lambda: len(found) >= 39)
        done = [one for one in found if one is not kept]
        for one in done:
            one.ack()
        await end(listening)
        await first.shutdown()  # with stop_timeout_s of 10 min
        kept.ack()  # too late, and no error
        second = await started(cluster, topic)
        rest: list[AckableMessage] = []
        listening = asyncio.create_task(take(second, rest))
        acknowledged = 0
        while len({one.data for one in rest}) < 300 - len(done):
            await asyncio.sleep(0.01)
            for one in rest[acknowledged:]:
                one.ack()
                acknowledged += 1
        await end(listening)
        await second.shutdown()
        assert kept.data in {one.data for one in rest}
        assert not {one.data for one in done} & {one.data for one in rest}

    run(scenario(), bound_s=120)


def test_who_listens_again_gets_the_tasks_and_a_stop_reaches_every_consumer(
    cluster: LocalCluster, topic: str
) -> None:
    async def scenario() -> None:
        before = asyncio.all_tasks()
        broker, found = await started(cluster, topic), list[AckableMessage]()
        for expected in (1, 2, 3):
            listening = asyncio.create_task(take(broker, found))
            await kick(broker, 1)
            await until(lambda: len(found) == expected)  # noqa: B023
            found[-1].ack()
            await end(listening)
        assert numbers(found) == [0, 0, 0]
        await broker.startup()  # again: there is one connection all the same
        await broker.shutdown()
        await until(lambda: asyncio.all_tasks() == before)

    run(scenario(), bound_s=120)


def test_a_stop_that_is_given_up_leaves_at_once(
    cluster: LocalCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    stop = AsyncPushConsumer.stop

    async def slow(consumer: AsyncPushConsumer) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await stop(consumer)
            ended.append("consumer")

    async def scenario() -> None:
        broker, found = await started(cluster, topic), list[AckableMessage]()
        listening = asyncio.create_task(take(broker, found))
        await kick(broker, 1)
        await until(lambda: found)
        await end(listening)
        monkeypatch.setattr(AsyncPushConsumer, "stop", slow)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(broker.shutdown(), 0.2)
        assert ended == ["consumer"]

    run(scenario(), bound_s=120)


def test_settings_are_checked_when_the_broker_is_made() -> None:
    with pytest.raises(TypeError, match="consume_thread"):
        CometTaskBroker(topic="t", consume_thread=5)
    with pytest.raises(SettingsError, match="consume_threads is 0"):
        CometTaskBroker(topic="t", consume_threads=0)
    with pytest.raises(SettingsError, match="access_key"):  # both clients get it
        CometTaskBroker(topic="t", access_key="me")


def test_a_delay_that_is_no_number_is_refused(cluster: LocalCluster, topic: str) -> None:
    async def scenario() -> None:
        broker = await started(cluster, topic)
        for wrong in ("soon", object(), float("nan")):
            message = BrokerMessage(
                task_id="t", task_name="t", message=b"x", labels={"delay": wrong}
            )
            with pytest.raises(SettingsError, match="the label delay is"):
                await broker.kick(message)
        await broker.shutdown()

    run(scenario(), bound_s=120)
