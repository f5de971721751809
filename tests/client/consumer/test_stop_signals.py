"""Processes that consume and get a signal: how soon others go on, and what comes twice."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time

import pytest

from client import waiting_process
from client.conftest import new_topic
from client.short_delay_cluster import until
from cometmq import AsyncPushConsumer, Message, Producer, PushConsumer
from cometmq.client.consumer import lock_waits
from cometmq.testing.cluster import LocalCluster

AT_ONCE_S = 10.0
"""A process that begins takes a second of it; locks that expire would take 60."""


@pytest.fixture(scope="module")
def cluster_with_long_locks(tmp_path_factory):
    """A broker whose locks live as long as they do by default."""
    with LocalCluster(tmp_path_factory.mktemp("long-locks") / "store") as running:
        yield running


class Program:
    """One run of the program that consumes."""

    def __init__(self, cluster, place, topic, group, *, kind="run", pause_s=0.05, **options):
        self._seen, self.topic = place, topic
        given = {"orderly": True, "instance_name": place.name, "persist_s": 60.0}
        argument = {
            "namesrv": cluster.namesrv, "topic": topic, "group": group, "seen": str(place),
            "kind": kind, "pause_s": pause_s, "options": given | options,
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, waiting_process.__file__, json.dumps(argument)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def seen(self, what):
        """The places of the messages that were begun or done, and when."""
        if not self._seen.exists():
            return []
        lines = map(json.loads, self._seen.read_text().split("\n")[:-1])
        return [(at, queue_id, offset) for kind, at, queue_id, offset in lines if kind == what]

    def wait_for_line(self, text):
        """Wait until a line that it logs has a text in it."""
        while text not in (line := self.process.stderr.readline()):
            assert line, "it has ended"

    def tell(self, number, timeout_s=20):
        """Send a signal; how long it took to end, its standard output and what it logged."""
        began = time.monotonic()
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=timeout_s)
        return time.monotonic() - began, out, err


@pytest.fixture
def start(cluster_with_long_locks, tmp_path, group):
    """Starts programs of one group on one topic; what still runs at the end is killed."""
    topic, started = new_topic(cluster_with_long_locks), []
    with Producer("producers", namesrv=cluster_with_long_locks.namesrv) as producer:
        producer.send_many(
            [Message(topic, b"x", sharding_key=str(number)) for number in range(400)]
        )

    def begin(**options):
        place = tmp_path / f"program-{len(started)}"
        started.append(Program(cluster_with_long_locks, place, topic, group, **options))
        return started[-1]

    yield begin
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()


def places(entries):
    return sorted(entry[1:] for entry in entries)


def queues(entries):
    return {queue_id for _, queue_id, _ in entries}


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ("run", signal.SIGTERM),
        ("wait", signal.SIGINT),
        ("asyncio", signal.SIGTERM),
        ("asyncio", signal.SIGINT),
    ],
)
def test_a_process_that_gets_a_signal_releases_its_queues_at_once(start, kind, number):
    first = start(kind=kind)
    until(lambda: len(first.seen("done")) > 10 and len(queues(first.seen("done"))) == 4)
    took_s, out, err = first.tell(number)
    assert (first.process.returncode, out) == (0, "ended\n"), err
    assert took_s < AT_ONCE_S
    assert places(first.seen("begun")) == places(first.seen("done")), "it was not finished"
    began = time.time()
    second = start(kind=kind)
    until(lambda: len(queues(second.seen("begun"))) == 4)
    assert time.time() - began < AT_ONCE_S
    assert not {*places(first.seen("begun"))} & {*places(second.seen("begun"))}


def test_a_process_that_dies_is_replaced_at_once(start):
    first = start()
    until(lambda: len(queues(first.seen("done"))) == 4)
    first.tell(signal.SIGKILL)
    began = time.time()
    second = start()
    until(lambda: len(queues(second.seen("begun"))) == 4)
    assert time.time() - began < AT_ONCE_S


def test_a_member_goes_on_at_once_with_the_queues_of_one_that_dies(start):
    first, second = start(rebalance_s=30.0), start(rebalance_s=30.0)
    until(lambda: len(queues(first.seen("begun"))) >= 2 and len(queues(second.seen("begun"))) >= 2)
    until(lambda: len(queues(second.seen("begun")[-8:])) == 2)
    first.tell(signal.SIGKILL)
    began = time.time()
    until(lambda: len(queues(one for one in second.seen("begun") if one[0] > began)) == 4)
    assert time.time() - began < AT_ONCE_S


@pytest.mark.parametrize("kind", ["run", "asyncio"])
def test_a_second_interrupt_leaves_at_once_and_what_was_in_hand_comes_again(start, kind):
    first = start(kind=kind, pause_s=30.0)
    until(lambda: len(queues(first.seen("begun"))) == 4)
    first.process.send_signal(signal.SIGINT)
    first.wait_for_line("stops: SIGINT")
    time.sleep(0.2)  # the stop is under way
    took_s, out, err = first.tell(signal.SIGINT)
    assert took_s < AT_ONCE_S
    assert "ended" not in out
    assert "KeyboardInterrupt" in err
    began = time.time()
    second = start(kind=kind)
    until(lambda: len(queues(second.seen("begun"))) == 4)
    assert time.time() - began < AT_ONCE_S


def test_a_handler_that_does_not_end_holds_up_the_end_no_longer_than_the_limit(start):
    first = start(pause_s=30.0, stop_timeout_s=0.5)
    until(lambda: len(queues(first.seen("begun"))) == 4)
    took_s, out, err = first.tell(signal.SIGTERM)
    assert (first.process.returncode, out) == (0, "ended\n"), err
    assert 0.5 < took_s < AT_ONCE_S


def test_while_a_queue_waits_for_a_lock_the_log_says_whose_it_is(
    start, cluster_with_long_locks, group, monkeypatch, caplog
):
    holder = start(pause_s=30.0)
    until(lambda: len(queues(holder.seen("begun"))) == 4)
    monkeypatch.setattr(lock_waits, "LOG_AFTER_S", 0.01)
    waiting = PushConsumer(group, namesrv=cluster_with_long_locks.namesrv, orderly=True)
    waiting.subscribe(holder.topic, "*", lambda messages: None)
    with waiting:
        until(lambda: "has waited" in caplog.text)
    assert "@program-0 has held it for" in caplog.text


def wait_in_a_thread(consumer):
    waited = []
    thread = threading.Thread(target=lambda: waited.append(consumer.wait(30)))
    thread.start()
    return thread, waited


def test_waits_in_other_threads_end_with_the_consumer(cluster_with_long_locks, group):
    consumer = PushConsumer(group, namesrv=cluster_with_long_locks.namesrv)
    consumer.subscribe("nothing", "*", print)
    with consumer:
        threads = [wait_in_a_thread(consumer) for _ in range(5)]
        time.sleep(0.1)
    for thread, waited in threads:
        thread.join(5)
        assert waited == [True]


def test_a_handler_of_the_program_stays_in_charge(cluster_with_long_locks, group):
    consumer = PushConsumer(group, namesrv=cluster_with_long_locks.namesrv)
    consumer.subscribe("nothing", "*", print)
    numbers = []
    before = signal.signal(signal.SIGTERM, lambda number, _: numbers.append(number))
    try:
        with consumer:
            threading.Timer(0.1, signal.raise_signal, (signal.SIGTERM,)).start()
            while not numbers:
                assert consumer.wait(0.3) is False
    finally:
        signal.signal(signal.SIGTERM, before)
    assert numbers == [signal.SIGTERM]


def test_a_signal_stops_all_consumers_that_one_loop_waits_for(cluster_with_long_locks, group):
    async def main():
        consumers = [
            AsyncPushConsumer(f"{group}-{n}", namesrv=cluster_with_long_locks.namesrv)
            for n in range(2)
        ]
        for consumer in consumers:
            consumer.subscribe("nothing", "*", print)
        loop = asyncio.get_running_loop()
        loop.call_later(0.2, signal.raise_signal, signal.SIGTERM)
        async with asyncio.timeout(10):
            await asyncio.gather(*(consumer.run() for consumer in consumers))

    asyncio.run(main())
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
