"""The loop thread: one thread for all blocking clients of a process, forks included."""

import asyncio
import os
import signal
import threading
from contextlib import closing

import pytest

import cometmq
from client.scripted_broker import TOPIC, ScriptedBroker
from cometmq import Message
from cometmq.client.blocking import event_loop_thread
from cometmq.client.blocking.admin import Admin
from cometmq.client.blocking.bridge import BlockingBridge
from cometmq.client.blocking.event_loop_thread import EventLoopThread
from cometmq.client.blocking.producer import Producer
from cometmq.client.handling.worker_pools import TaskPool, ThreadPool
from cometmq.client.producer.async_producer import AsyncProducer
from cometmq.errors import ClientError, NotStarted, RemotingTimeout, TooManyRequests
from cometmq.net import channel_pool
from cometmq.wire.codes import RequestCode


def loop_threads():
    return [thread for thread in threading.enumerate() if thread.name == "cometmq-loop"]


def test_all_blocking_clients_share_one_thread_which_ends_with_the_last():
    assert loop_threads() == []
    with Producer("a", namesrv="127.0.0.1:1"), Admin(namesrv="127.0.0.1:1"):
        with Producer("b", namesrv="127.0.0.1:1"):
            assert len(loop_threads()) == 1
        assert len(loop_threads()) == 1
    assert loop_threads() == []


def test_a_client_stopped_twice_or_never_started_does_no_harm():
    producer = Producer("a", namesrv="127.0.0.1:1")
    producer.stop()
    producer.start()
    with pytest.raises(ClientError, match="started already"):
        producer.start()
    producer.stop()
    producer.stop()
    assert loop_threads() == []
    with pytest.raises(NotStarted):
        producer.queues("t")


def test_plain_calls_are_made_on_the_loop_while_a_client_starts_and_stops():
    """What a client keeps belongs to its loop: a resize amid a stop failed on another thread."""
    bridge, threads = BlockingBridge("client"), []

    async def ask():
        await asyncio.to_thread(bridge.run, note)
        bridge.run(note)  # on the loop itself

    def note():
        threads.append(threading.current_thread().name)

    bridge.start(ask())
    bridge.stop(ask())
    bridge.run(note)
    assert threads == ["cometmq-loop"] * 4 + [threading.current_thread().name]


def test_a_forked_child_gets_a_loop_thread_of_its_own():
    with Admin(namesrv="127.0.0.1:1"):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                loop_thread = EventLoopThread.enter()
                code = 0 if loop_thread.call(asyncio.sleep(0, 42)) == 42 else 2
                loop_thread.leave()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_child_of_a_fork_begins_also_where_a_thread_of_its_parent_was_just_beginning():
    with (
        closing(ScriptedBroker()) as scripted_broker,
        event_loop_thread._lock,
        channel_pool._pools_lock,
    ):
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            code = 1
            try:
                with Producer("g", namesrv=scripted_broker.addr) as producer:
                    producer.send(Message(TOPIC, b"x"))
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_calls_from_many_threads_begin_in_their_order_and_share_wake_ups():
    loop_thread, begun, failed = EventLoopThread.enter(), [], []

    async def work(n):
        begun.append(n)
        return n

    def start(n):
        return lambda: asyncio.get_running_loop().create_task(work(n))

    def many(base):
        futures = [loop_thread.begin(start(base + n)) for n in range(1000)]
        if [future.result(90) for future in futures] != list(range(base, base + 1000)):
            failed.append(base)

    threads = [threading.Thread(target=many, args=(base,)) for base in range(0, 8000, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:  # eight that never rest, on a machine that may be busy as well
        thread.join(90)
    assert not any(thread.is_alive() for thread in threads)
    loop_thread.leave()
    assert failed == []
    for base in range(0, 8000, 1000):
        own = [n for n in begun if base <= n < base + 1000]
        assert own == sorted(own)
    assert len(begun) == 8000


def test_calls_that_the_loop_does_not_begin_are_bounded_and_the_next_one_fails(monkeypatch):
    monkeypatch.setattr("cometmq.client.blocking.event_loop_thread.CALLS_MAX", 100)
    still = threading.Event()
    with (
        closing(ScriptedBroker()) as scripted_broker,
        Producer("g", namesrv=scripted_broker.addr) as producer,
    ):
        producer._bridge.loop_thread._loop.call_soon_threadsafe(still.wait, 30)
        futures = [producer.send_async(Message(TOPIC, b"%d" % n)) for n in range(100)]
        with pytest.raises(TooManyRequests, match="100 calls wait"):
            producer.send_async(Message(TOPIC, b"one too many"))
        still.set()
        assert len({future.result(30).msg_id for future in futures}) == 100
        producer.send_async(Message(TOPIC, b"room again")).result(30)
        sent = [command.body for command in scripted_broker.requests(RequestCode.SEND_MESSAGE_V2)]
    assert sent == [*(b"%d" % n for n in range(100)), b"room again"]


def test_a_call_that_comes_after_the_end_of_its_loop_thread_fails_and_is_not_left_waiting():
    loop_thread, late, failed = EventLoopThread.enter(), [], []

    def call():
        try:
            loop_thread.call(asyncio.Event().wait())
        except NotStarted as error:
            failed.append(error)

    thread = threading.Thread(target=call, daemon=True)

    async def begin_at_the_end():
        try:
            await asyncio.Event().wait()
        finally:  # the thread ends: the last calls were begun already
            late.append(loop_thread.begin(asyncio.get_running_loop().create_future))
            thread.start()
            await asyncio.sleep(0.05)

    loop_thread.begin(lambda: asyncio.get_running_loop().create_task(begin_at_the_end()))
    loop_thread.run(lambda: None)
    loop_thread.leave()
    late.append(loop_thread.begin(lambda: None))
    for future in late:
        with pytest.raises(NotStarted, match="stopped"):
            future.result(5)
    thread.join(5)
    assert len(failed) == 1


def test_an_error_at_the_beginning_of_a_call_is_in_its_future_and_the_next_call_begins():
    loop_thread, still = EventLoopThread.enter(), threading.Event()

    def refuse():
        raise ValueError("nobody foresaw this")

    loop_thread._loop.call_soon_threadsafe(still.wait, 10)
    given_up = loop_thread.begin(refuse)
    given_up.cancel()
    broken = loop_thread.begin(refuse)
    fine = loop_thread.begin(lambda: asyncio.ensure_future(asyncio.sleep(0, 42)))
    still.set()
    with pytest.raises(ValueError, match="foresaw"):
        broken.result(5)
    assert fine.result(5) == 42
    loop_thread.leave()


def test_sends_in_flight_are_bounded_in_blocking_and_asyncio_clients():
    with closing(ScriptedBroker()) as scripted_broker:
        scripted_broker.answers[RequestCode.SEND_MESSAGE_V2] = lambda command: None
        with Producer("g", namesrv=scripted_broker.addr, pending_max=3) as producer:
            futures = [producer.send_async(Message(TOPIC, b"x"), 0.5) for _ in range(4)]
            kinds = [type(future.exception(30)) for future in futures]
        assert kinds == [RemotingTimeout] * 3 + [TooManyRequests]

        async def scenario():
            async with AsyncProducer("g", namesrv=scripted_broker.addr, pending_max=3) as producer:
                begun = [producer.send_async(Message(TOPIC, b"x"), 0.2) for _ in range(3)]
                with pytest.raises(TooManyRequests):
                    producer.send_async(Message(TOPIC, b"x"), 0.2)
                await asyncio.gather(*begun, return_exceptions=True)

        asyncio.run(scenario())


def test_threads_bring_every_result_back_exactly_once():
    async def scenario():
        threads, done, loop = ThreadPool(8, "test"), [], asyncio.get_running_loop()
        over = loop.create_future()

        def finish(n):
            done.append(n)
            if len(done) == 5000:
                over.set_result(None)

        for n in range(5000):
            threads.submit(lambda: None, lambda n=n: finish(n))
        async with asyncio.timeout(20):
            await over
        threads.close()
        await asyncio.sleep(0)
        assert sorted(done) == list(range(5000))

    asyncio.run(scenario())


def test_no_more_tasks_run_at_once_than_there_is_room_for():
    async def scenario():
        tasks, running, most, done = TaskPool(3), 0, 0, []

        async def job(n):
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            done.append(n)

        for n in range(50):
            tasks.submit(job(n))
        async with asyncio.timeout(10):
            while len(done) < 50:
                await asyncio.sleep(0)
        assert most == 3
        assert sorted(done) == list(range(50))
        tasks.close()

    asyncio.run(scenario())


def test_every_public_name_can_be_had_and_an_unknown_one_is_an_attribute_error():
    for name in cometmq.__all__:
        assert getattr(cometmq, name).__name__ == name
    assert set(cometmq.__all__) <= set(dir(cometmq))
    with pytest.raises(AttributeError, match="Konsumer"):
        cometmq.Konsumer  # noqa: B018
