"""Threads and tasks that run handlers: one that breaks holds up none of the others."""

import asyncio
import contextvars
import threading
import time

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


def test_jobs_that_never_wait_share_a_task_and_each_has_a_task(reported):
    async def scenario():
        tasks, seen = TaskPool(4), []

        async def work():
            seen.append(asyncio.current_task())

        for _ in range(30):
            tasks.submit(work())
        while len(seen) < 30:
            await asyncio.sleep(0)
        tasks.close()
        assert None not in seen
        assert len(set(seen)) == 1

    run(scenario, reported)


def test_while_one_job_waits_as_many_others_run_as_there_is_room_for(reported):
    async def scenario():
        tasks, begun, gate = TaskPool(20), [], asyncio.Event()

        async def work(number):
            begun.append(number)
            await gate.wait()

        for number in range(50):
            tasks.submit(work(number))
        while len(begun) < 20:
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert begun == list(range(20))
        assert tasks.busy == 20
        tasks.resize(25)
        while len(begun) < 25:
            await asyncio.sleep(0)
        gate.set()
        while len(begun) < 50 or tasks.busy:
            await asyncio.sleep(0)
        assert begun == list(range(50))

    run(scenario, reported)


def test_a_smaller_number_of_tasks_holds_once_those_that_ran_have_ended(reported):
    async def scenario():
        tasks, gates, running, most = TaskPool(5), [], set(), 0

        async def work(number):
            nonlocal most
            running.add(number)
            most = max(most, len(running) if number >= 5 else 0)
            gates.append(asyncio.Event())
            await gates[-1].wait()
            running.discard(number)

        for number in range(15):
            tasks.submit(work(number))
        while len(running) < 5:
            await asyncio.sleep(0)
        tasks.resize(2)
        done = 0
        while done < 15:
            while gates:
                gates.pop(0).set()
                done += 1
                for _ in range(10):
                    await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert most <= 5
        assert not running

    run(scenario, reported)


def test_what_a_job_sets_in_its_context_does_not_reach_the_next(reported):
    async def scenario():
        var, seen = contextvars.ContextVar("var", default="none"), []
        tasks = TaskPool(1)

        async def work(number):
            seen.append(var.get())
            token = var.set(f"of {number}")
            if number % 2:
                var.reset(token)

        for number in range(4):
            tasks.submit(work(number))
        while len(seen) < 4:
            await asyncio.sleep(0)
        assert seen == ["none"] * 4

    run(scenario, reported)


def test_a_job_that_cancels_its_own_task_takes_no_other_with_it(reported):
    async def scenario():
        tasks, ended = TaskPool(1), []

        async def work(number):
            if number == 1:
                asyncio.current_task().cancel()
            if number != 1:
                await asyncio.sleep(0)
            ended.append(number)

        for number in range(4):
            tasks.submit(work(number))
        while len(ended) < 4:
            await asyncio.sleep(0)
        assert ended == list(range(4))

    run(scenario, reported)


def test_timeouts_in_jobs_end_those_alone(reported):
    async def scenario():
        tasks, ended = TaskPool(2), []

        async def work(number):
            try:
                async with asyncio.timeout(0.01 if number % 2 else None):
                    await asyncio.sleep(0.05)
                ended.append((number, "done"))
            except TimeoutError:
                ended.append((number, "timeout"))

        for number in range(6):
            tasks.submit(work(number))
        while len(ended) < 6:
            await asyncio.sleep(0.01)
        assert sorted(ended) == [(n, "timeout" if n % 2 else "done") for n in range(6)]

    run(scenario, reported)


def test_jobs_that_never_wait_leave_the_loop_to_others_now_and_then(reported):
    async def scenario():
        tasks, ran = TaskPool(1), []

        async def work():
            time.sleep(0.004)
            ran.append(1)

        for _ in range(20):
            tasks.submit(work())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(ran) < 10
        while len(ran) < 20:
            await asyncio.sleep(0)

    run(scenario, reported)


def test_closing_cancels_what_runs_and_begins_nothing_more(reported):
    async def scenario():
        tasks, seen = TaskPool(2), []

        async def work():
            seen.append("begun")
            try:
                await asyncio.sleep(60)
            finally:
                seen.append("ended")

        for _ in range(5):
            tasks.submit(work())
        while len(seen) < 2:
            await asyncio.sleep(0)
        tasks.close()
        while tasks.busy:
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        assert seen == ["begun", "begun", "ended", "ended"]

    run(scenario, reported)
