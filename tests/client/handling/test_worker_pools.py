"""Threads and tasks that run handlers: one that breaks holds up none of the others."""

import asyncio
import threading

import pytest

from cometmq.client.handling.worker_pools import TaskPool, ThreadPool


@pytest.fixture
def reported():
    return []


def run(scenario, reported):
    async def main():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(str(context["exception"])))
        async with asyncio.timeout(10):
            await scenario()

    asyncio.run(main())


def test_a_result_that_cannot_be_taken_does_not_hold_up_those_that_came_with_it(reported):
    async def scenario():
        threads, taken, gate = ThreadPool(1, "t"), [], threading.Event()

        def take(number):
            if number % 2 == 0:
                raise ValueError(f"number {number}")
            taken.append(number)

        threads.submit(lambda: gate.wait(10) and None, lambda: None)
        for number in range(5):
            threads.submit(lambda: None, lambda number=number: take(number))
        threads.submit(gate.clear, lambda: None)
        gate.set()
        while gate.is_set():
            pass  # the loop is held, so that all results wait for it together
        while len(taken) < 2 or len(reported) < 3:
            await asyncio.sleep(0.001)
        threads.close()
        assert taken == [1, 3]

    run(scenario, reported)
    assert reported == ["number 0", "number 2", "number 4"]


def test_a_task_that_breaks_makes_room_for_the_next(reported):
    async def scenario():
        tasks, ran = TaskPool(1), []

        async def work(number):
            if number == 0:
                raise ValueError("first")
            ran.append(number)

        for number in range(3):
            tasks.submit(work(number))
        while len(ran) < 2:
            await asyncio.sleep(0)
        tasks.close()

    run(scenario, reported)
    assert reported == ["first"]


def test_a_thread_that_cannot_be_started_leaves_its_place_to_another(reported, monkeypatch):
    async def scenario():
        threads, done = ThreadPool(1, "t"), asyncio.Event()

        def refuse(thread):
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError):
                threads.submit(lambda: None, lambda: None)
        threads.submit(lambda: None, done.set)
        await done.wait()
        threads.close()

    run(scenario, reported)
