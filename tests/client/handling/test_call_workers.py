"""Workers make each call once, as many at once as there are places, and hold nothing back."""

import asyncio
import contextvars
import threading
import time

import pytest

from cometmq.client.consumer.assigned_queue import AssignedQueue
from cometmq.client.consumer.subscriptions import Subscriptions
from cometmq.client.handling.call_run import CallRun
from cometmq.client.handling.call_workers import TaskWorkers, ThreadWorkers
from cometmq.client.handling.worker_pools import TaskPool, ThreadPool
from cometmq.model.message import MessageExt
from cometmq.model.queue import MessageQueue
from cometmq.model.selector import MessageSelector


class Calls:
    """Workers with a handler, plain or async, and what was reported of its calls."""

    def __init__(self, handler, places=20):
        self.subscriptions = Subscriptions("g")
        for topic in ("T", "other"):
            self.subscriptions.add(topic, MessageSelector.by_tag("*"), handler)
        self.subscription = self.subscriptions.subscription_of("T")
        self.ended, self.failures, self.skipped = [], [], []
        pool, kind = (
            (TaskPool(places), TaskWorkers)
            if self.subscription.is_async
            else (ThreadPool(places, "t"), ThreadWorkers)
        )
        self.pool, self.workers = pool, kind(pool, self.take)
        self.assigned = AssignedQueue(MessageQueue("T", "b", 0), 0)
        self.offset = 0

    def take(self, run, ended):
        numbers = [run.messages[at].queue_offset for at in ended.places]
        self.ended += numbers
        self.failures += [run.messages[at].queue_offset for at in ended.failures]
        self.skipped += [run.messages[at].queue_offset for at in ended.skipped]

    def add(self, count, size=1, topic="T"):
        messages = []
        for _ in range(count):
            fields = (topic, 0, self.offset, b"%d" % self.offset, b"", 0, 0, 0, 0, 0)
            messages.append(MessageExt(*fields, b"", 0, b"", 0, "b"))
            self.offset += 1
        self.workers.add(CallRun(self.assigned, messages, size, self.subscription))

    async def wait(self, count):
        while len(self.ended) < count:
            await asyncio.sleep(0.001)


def run(scenario):
    reported = []

    async def main():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(str(context["exception"])))
        async with asyncio.timeout(20):
            await scenario()

    asyncio.run(main())
    return reported


def offset_of(messages):
    return messages[0].queue_offset


@pytest.fixture(params=["threads", "tasks"])
def both(request):
    """Makes of a plain function a handler that runs in threads, or as tasks."""

    def handler_of(work):
        if request.param == "threads":
            return work

        async def handle(messages):
            return work(messages)

        return handle

    return handler_of


def test_every_message_is_handled_once_and_reported_once(both):
    async def scenario():
        seen = []
        calls = Calls(both(lambda messages: seen.extend(one.queue_offset for one in messages)))
        for count, size in ((250, 1), (250, 32), (1, 1), (7, 3), (250, 1)) * 8:
            calls.add(count, size)
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        while calls.workers._runs:
            await asyncio.sleep(0.001)
        assert sorted(seen) == list(range(calls.offset))
        assert len(calls.ended) == len(set(calls.ended)) == 8 * (250 + 8 + 1 + 3 + 250)
        calls.pool.close()

    assert run(scenario) == []


def test_threads_that_wait_are_as_many_as_there_are_places_also_where_calls_were_quick():
    async def scenario():
        together, waits = threading.Barrier(20), []

        def handle(messages):
            if waits:
                together.wait(10)  # breaks unless twenty come

        calls = Calls(handle)
        for _ in range(20):
            calls.add(50)
        await calls.wait(1000)
        waits.append(True)
        calls.add(40)
        await calls.wait(1040)
        assert not calls.failures
        calls.pool.close()

    assert run(scenario) == []


def test_tasks_that_wait_are_as_many_as_there_are_places_also_where_calls_were_quick():
    async def scenario():
        waiting, gate = [], asyncio.Event()

        async def handle(messages):
            if offset_of(messages) >= 1000:
                waiting.append(offset_of(messages))
                await gate.wait()

        calls = Calls(handle)
        for _ in range(20):
            calls.add(50)
        await calls.wait(1000)
        calls.add(40)
        while len(waiting) < 20:
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert waiting == list(range(1000, 1020))
        assert calls.pool.busy == 20
        gate.set()
        await calls.wait(1040)
        calls.pool.close()

    assert run(scenario) == []


def test_a_call_that_goes_on_for_long_does_not_hold_up_quick_ones_of_another_topic():
    async def scenario():
        gate, begun = threading.Event(), []

        def wait(messages):
            if messages[0].topic == "other":
                begun.append(True)
                gate.wait(10)

        calls = Calls(wait)
        calls.add(50)
        await calls.wait(50)
        calls.add(1, topic="other")
        while not begun:
            await asyncio.sleep(0.001)
        for count in (100, 150):
            calls.add(50)
            await calls.wait(count)
        gate.set()
        await calls.wait(151)
        calls.pool.close()

    assert run(scenario) == []


def test_once_closed_no_call_begins():
    async def scenario():
        begun = []

        async def handle(messages):
            begun.append(offset_of(messages))
            await asyncio.sleep(3600)

        calls = Calls(handle, places=1)
        calls.add(3)
        while not begun:
            await asyncio.sleep(0)
        calls.workers.close()
        calls.pool.close()
        for _ in range(20):
            await asyncio.sleep(0)
        assert begun == [0]
        assert not calls.pool.busy

    assert run(scenario) == []


def test_ended_calls_are_reported_while_others_of_their_run_go_on():
    async def scenario():
        gate = threading.Event()
        calls = Calls(lambda messages: gate.wait(10) and None if offset_of(messages) == 3 else None)
        calls.add(8)
        await calls.wait(7)
        assert sorted(calls.ended) == [0, 1, 2, 4, 5, 6, 7]
        assert [(run.call(at)[0].queue_offset) for run, at, _ in calls.workers.running] == [3]
        gate.set()
        await calls.wait(8)
        calls.pool.close()

    assert run(scenario) == []


def test_what_a_handler_fails_on_is_reported_beside_what_it_has_done(both):
    async def scenario():
        def work(messages):
            if offset_of(messages) % 4 == 2:
                raise ValueError(offset_of(messages))
            return "no status" if offset_of(messages) == 3 else None

        calls = Calls(both(work))
        calls.add(20)
        await calls.wait(20)
        assert sorted(calls.ended) == list(range(20))
        assert sorted(calls.failures) == [2, 3, 6, 10, 14, 18]
        calls.pool.close()

    assert run(scenario) == []


def test_calls_of_a_dropped_queue_that_nobody_has_begun_are_skipped_at_once():
    async def scenario():
        seen, gate = [], threading.Event()

        def handle(messages):
            seen.append(offset_of(messages))
            gate.wait(10)

        calls = Calls(handle, places=1)
        calls.add(3)
        calls.add(3)
        while not seen:
            await asyncio.sleep(0.001)
        calls.assigned.is_dropped = True
        calls.workers.skip_queue(calls.assigned)
        assert calls.skipped == calls.ended == [1, 2, 3, 4, 5]
        gate.set()
        await calls.wait(6)
        assert seen == [0]
        assert calls.skipped == [1, 2, 3, 4, 5]
        calls.pool.close()

    assert run(scenario) == []


def test_a_report_that_cannot_be_taken_does_not_hold_up_the_others(both):
    async def scenario():
        calls = Calls(both(lambda _: None))
        take = calls.workers._on_ended

        def refuse_first(run, ended):
            take(run, ended)
            if run.messages[0].queue_offset == 0:
                raise ValueError("first")

        calls.workers._on_ended = refuse_first
        for _ in range(5):
            calls.add(2)
        await calls.wait(10)
        calls.pool.close()

    assert run(scenario) == ["first"]


def test_a_call_that_cancels_its_own_task_has_failed_and_takes_no_other_with_it():
    async def scenario():
        async def handle(messages):
            if offset_of(messages) == 1:
                asyncio.current_task().cancel()
            if offset_of(messages) == 2:
                asyncio.current_task().cancel()
                await asyncio.sleep(0)

        calls = Calls(handle, places=1)
        calls.add(5)
        await calls.wait(5)
        assert sorted(calls.ended) == list(range(5))
        assert calls.failures == [2]
        calls.pool.close()

    assert run(scenario) == []


def test_what_a_call_sets_in_its_context_does_not_reach_the_next():
    async def scenario():
        var, seen = contextvars.ContextVar("var", default="none"), []

        async def handle(messages):
            seen.append(var.get())
            token = var.set("mine")
            if offset_of(messages) % 2:
                var.reset(token)

        calls = Calls(handle, places=1)
        calls.add(6)
        await calls.wait(6)
        assert seen == ["none"] * 6
        calls.pool.close()

    assert run(scenario) == []


def test_other_jobs_of_a_pool_have_their_turn_in_a_backlog():
    async def scenario():
        calls, done = Calls(lambda _: time.sleep(0.0002), places=1), asyncio.Event()
        calls.add(10_000)
        await calls.wait(1)
        calls.pool.submit(lambda: None, done.set)
        await done.wait()
        assert len(calls.ended) < 10_000
        calls.assigned.is_dropped = True
        calls.workers.skip_queue(calls.assigned)
        calls.pool.close()

    assert run(scenario) == []


def test_the_number_of_calls_at_once_follows_the_places():
    async def scenario():
        running, most, gate = set(), [0], threading.Semaphore(0)

        def handle(messages):
            running.add(offset_of(messages))
            most[0] = max(most[0], len(running))
            gate.acquire(timeout=10)
            running.discard(offset_of(messages))

        calls = Calls(handle, places=2)
        calls.add(60)
        while len(running) < 2:
            await asyncio.sleep(0.001)
        calls.pool.resize(5)
        calls.workers.start_workers()
        while len(running) < 5:
            await asyncio.sleep(0.001)
        calls.pool.resize(1)
        for _ in range(10):
            gate.release()
        await calls.wait(10)
        while len(running) > 1:
            gate.release()
            await asyncio.sleep(0.01)
        assert most[0] == 5
        gate.release(60)
        await calls.wait(60)
        calls.pool.close()

    assert run(scenario) == []


def test_a_call_of_a_task_that_fails_is_reported_before_what_its_end_lets_go_on():
    async def scenario():
        ends = asyncio.Event()

        async def handle(messages):
            if offset_of(messages) == 1:
                await asyncio.Event().wait()
            try:
                await ends.wait()
                raise ValueError("failed")
            finally:
                has_failed.set()

        has_failed = asyncio.Event()
        calls = Calls(handle, places=2)
        calls.add(2)
        await asyncio.sleep(0.01)
        ends.set()
        await has_failed.wait()
        assert calls.failures == [0]
        calls.pool.close()

    assert run(scenario) == []
