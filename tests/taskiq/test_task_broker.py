"""Taskiq over a real cluster: tasks, retries, delays, and a worker that ends too early."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from taskiq.api import run_receiver_task
from taskiq.exceptions import SendTaskError

from bounded_runs import run, until
from cometmq import Admin, SettingsError
from cometmq.errors import NotStarted
from cometmq.taskiq import CometTaskBroker
from taskiq import AckableMessage, BrokerMessage, InMemoryBroker, SimpleRetryMiddleware

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from cometmq.testing import LocalCluster


@pytest.fixture
def topic(cometmq_make_topic: Callable[..., str]) -> str:
    return cometmq_make_topic(queues=2)


def made(cometmq_cluster: LocalCluster, topic: str, **settings: Any) -> CometTaskBroker:
    broker = CometTaskBroker(cometmq_cluster.namesrv, topic=topic, **settings)
    return broker.with_result_backend(InMemoryBroker().result_backend)


@asynccontextmanager
async def worker(broker: CometTaskBroker) -> AsyncIterator[None]:
    """A worker in this process, as Taskiq's own `run_receiver_task` has it."""
    await broker.startup()
    receiver = asyncio.create_task(run_receiver_task(broker))
    try:
        yield
    finally:
        receiver.cancel()
        await asyncio.gather(receiver, return_exceptions=True)
        await broker.shutdown()


def waiting(cometmq_cluster: LocalCluster, topic: str) -> int:
    with Admin(namesrv=cometmq_cluster.namesrv) as admin:
        return sum(one.lag or 0 for one in admin.group_lag(topic) if one.queue.topic == topic)


def test_a_task_runs_and_its_result_comes_back(cometmq_cluster: LocalCluster, topic: str) -> None:
    broker = made(cometmq_cluster, topic)

    @broker.task
    async def add(a: int, b: int) -> int:
        return a + b

    async def scenario() -> None:
        async with worker(broker):
            tasks = [await add.kiq(one, 1) for one in range(20)]
            results = [await one.wait_result(timeout=30) for one in tasks]
            assert [one.return_value for one in results] == list(range(1, 21))

    run(scenario())
    assert waiting(cometmq_cluster, topic) == 0


def test_a_task_that_fails_is_tried_again_by_taskiqs_middleware(
    cometmq_cluster: LocalCluster, topic: str
) -> None:
    broker, calls = made(cometmq_cluster, topic), list[int]()
    broker.add_middlewares(SimpleRetryMiddleware(default_retry_count=5))

    @broker.task(retry_on_error=True)
    async def fail_twice() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise ZeroDivisionError
        return "done"

    async def scenario() -> None:
        async with worker(broker):
            await fail_twice.kiq()
            await until(lambda: len(calls) == 3)

    run(scenario())


def test_a_delay_holds_a_task_back(cometmq_cluster: LocalCluster, topic: str) -> None:
    broker, ran = made(cometmq_cluster, topic), list[float]()

    @broker.task
    async def note() -> None:
        ran.append(time.monotonic())

    async def scenario() -> None:
        async with worker(broker):
            begun = time.monotonic()
            await note.kicker().with_labels(delay=2).kiq()
            await until(lambda: ran)
            assert ran[0] - begun >= 1.9
            with pytest.raises(SendTaskError) as caught:
                await note.kicker().with_labels(delay=-1).kiq()
            assert isinstance(caught.value.__cause__, SettingsError)
            assert "the label delay is -1.0" in str(caught.value.__cause__)

    run(scenario())


def test_a_task_that_was_not_acknowledged_goes_to_another_worker(
    cometmq_cluster: LocalCluster, topic: str
) -> None:
    async def next_task(broker: CometTaskBroker) -> AckableMessage:
        found = await anext(broker.listen())
        assert isinstance(found, AckableMessage)
        return found

    async def scenario() -> None:
        brokers = [made(cometmq_cluster, topic, order="queue", suspend_ms=10) for _ in range(2)]
        for one in brokers:
            one.is_worker_process = True
            await one.startup()
        await brokers[0].kick(
            BrokerMessage(task_id="t", task_name="long", message=b"work", labels={})
        )
        assert (await next_task(brokers[0])).data == b"work"
        await brokers[0].shutdown()
        again = await next_task(brokers[1])
        assert again.data == b"work"
        again.ack()
        await brokers[1].shutdown()

    run(scenario())
    assert waiting(cometmq_cluster, topic) == 0


def test_a_broker_that_is_not_running_says_so(cometmq_cluster: LocalCluster, topic: str) -> None:
    broker = made(cometmq_cluster, topic)

    @broker.task
    async def nothing() -> None: ...

    async def scenario() -> None:
        with pytest.raises(SendTaskError) as caught:
            await nothing.kiq()
        assert isinstance(caught.value.__cause__, NotStarted)

    run(scenario())


def test_without_taskiq_the_import_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules.update(taskiq=None)\n"
        "try: import cometmq.taskiq\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "cometmq.taskiq needs Taskiq: pip install 'cometmq[taskiq]'"
