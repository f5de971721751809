"""Key lanes and failure policies, on our broker and on Apache RocketMQ's: one sentence a test."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter, defaultdict
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from client.failure_cases import four_kinds
from client.short_delay_cluster import until
from cometmq import (
    BreakerLimits,
    Message,
    OnFailure,
    Producer,
    RetryLater,
    TableSink,
)
from parity.clients import committed, consumer, dead_letters, send, send_in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cometmq import MessageExt
    from parity.conftest import Cluster

    MakeTopic = Callable[[int], str]

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]
ORDERS = ("none", "queue", "key")


class Recorder:
    """A handler that raises the error given for a body, and keeps its calls in order."""

    def __init__(self, errors: dict[str, BaseException] | None = None) -> None:
        self.errors = errors or {}
        self.calls: list[str] = []
        self.done: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, messages: Sequence[MessageExt]) -> None:
        for message in messages:
            body = message.body.decode()
            with self._lock:
                self.calls.append(body)
            if body in self.errors:
                raise self.errors[body]
            with self._lock:
                self.done.append(body)

    def wait(self, count: int) -> None:
        until(lambda: len(self.done) >= count, 60)

    def by_key(self) -> dict[str, list[int]]:
        """The steps done of each key; a body is its key, a blank and its step."""
        found: dict[str, list[int]] = defaultdict(list)
        for body in self.done:
            key, step = body.split()
            found[key].append(int(step))
        return found


def tell(cluster: Cluster, topic: str, *bodies: str) -> None:
    """Send bodies, each with its first word as its sharding key."""
    with Producer("parity", namesrv=cluster.namesrv) as producer:
        producer.send_many(
            [Message(topic, body.encode(), sharding_key=body.split()[0]) for body in bodies]
        )


@pytest.mark.parametrize("order", ORDERS)
def test_the_end_of_a_message_is_chosen_by_the_type_of_its_error(
    cluster: Cluster, make_topic: MakeTopic, group: str, tmp_path: Path, order: str
) -> None:
    topic, path = make_topic(1), tmp_path / "failed.db"
    errors, policy = four_kinds("k ", path)
    handle = Recorder(errors)
    tell(cluster, topic, *errors, "k fine")
    settings = {"order": order, "on_failure": policy, "state_dir": tmp_path, "suspend_ms": 50}
    with consumer(cluster, group, topic, handle, **settings):
        until(lambda: handle.done == ["k fine"] and handle.calls.count("k retried") == 2, 60)
    assert Counter(handle.calls) == Counter(["k retried", *handle.errors, "k fine"])
    assert dead_letters(cluster, group, 1) == [b"k dead"]
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT body, error_type, attempts FROM failed").fetchall()
    assert rows == [(b"k stored", "OSError", 1)]
    assert committed(cluster, group, topic) == 5


@pytest.mark.parametrize("order", ORDERS)
def test_a_policy_of_stopping_stops_before_the_message(
    cluster: Cluster, make_topic: MakeTopic, group: str, tmp_path: Path, order: str
) -> None:
    topic, handle = make_topic(1), Recorder({"k fatal": ValueError("stop the line")})
    tell(cluster, topic, "k one", "k fatal", "k two")
    settings = {"order": order, "state_dir": tmp_path, "consume_threads": 1}
    stopping = {"on_failure": {ValueError: OnFailure.stop()}}
    with consumer(cluster, group, topic, handle, **settings, **stopping) as running:
        assert running.wait(60)
    assert handle.calls[:2] == ["k one", "k fatal"]
    assert committed(cluster, group, topic) == 1
    again = Recorder()
    with consumer(cluster, group, topic, again, **settings):
        again.wait(2)
    assert again.done == ["k fatal", "k two"]


@pytest.mark.parametrize("order", ["queue", "key"])
def test_a_blocked_message_is_tried_until_it_goes_well(
    cluster: Cluster, make_topic: MakeTopic, group: str, tmp_path: Path, order: str
) -> None:
    topic, handle = make_topic(1), Recorder({"k bad": ValueError("not yet")})
    tell(cluster, topic, "k bad", "k next")
    settings = {"order": order, "state_dir": tmp_path, "on_failure": OnFailure.block(pause_ms=20)}
    with consumer(cluster, group, topic, handle, **settings) as running:
        until(lambda: len(handle.calls) > 5, 60)
        assert not handle.done
        assert running.blocked
        handle.errors.clear()
        handle.wait(2)
    assert handle.done == ["k bad", "k next"]


def test_a_row_is_written_before_the_offset_moves(
    cluster: Cluster, make_topic: MakeTopic, group: str, tmp_path: Path
) -> None:
    topic, path = make_topic(1), tmp_path / "failed.db"
    sink = TableSink(lambda: sqlite3.connect(path), "failed")
    tell(cluster, topic, "k bad", "k next")
    handle = Recorder({"k bad": ValueError("bad")})
    settings = {"order": "key", "state_dir": tmp_path, "persist_s": 0.2}
    with consumer(cluster, group, topic, handle, on_failure=OnFailure.store(sink), **settings):
        until(lambda: handle.calls, 60)
        time.sleep(1.5)  # there is no table: the sink raises, and the message waits
        assert committed(cluster, group, topic) == 0
        assert not handle.done
        with closing(sqlite3.connect(path)) as database:
            database.execute(sink.schema())
        handle.wait(1)
    assert handle.calls == ["k bad", "k next"]
    assert committed(cluster, group, topic) == 2


def test_an_outage_is_not_answered_with_dead_letters(
    cluster: Cluster, topic: str, group: str, tmp_path: Path
) -> None:
    is_down, calls, handle = threading.Event(), [], Recorder()
    is_down.set()
    tell(cluster, topic, *(f"key-{key} {step}" for step in range(3) for key in range(20)))

    def work(messages: Sequence[MessageExt]) -> None:
        if is_down.is_set():
            calls.append(time.monotonic())
            raise ConnectionError("the database is away")
        handle(messages)

    limits = BreakerLimits(keys=3, results=10, pause_s=0.2, pause_most_s=0.5)
    settings = {"order": "key", "state_dir": tmp_path, "breaker": limits, "consume_threads": 4}
    with consumer(cluster, group, topic, work, on_failure=OnFailure.retry(2), **settings):
        until(lambda: len(calls) >= 10, 60)
        time.sleep(1.0)
        is_down.clear()
        handle.wait(60)
    assert len(calls) < 60, "it went on calling in the outage"
    assert handle.by_key() == {f"key-{key}": [0, 1, 2] for key in range(20)}


def test_a_stuck_key_holds_up_its_own_key_only(
    cluster: Cluster, make_topic: MakeTopic, group: str, tmp_path: Path
) -> None:
    topic, handle = (
        make_topic(1),
        Recorder({"stuck 0": RetryLater("closed", suspend_ms=50)}),
    )
    keys = ("stuck", "free", "other")
    tell(cluster, topic, *(f"{key} {step}" for step in range(20) for key in keys))
    with consumer(cluster, group, topic, handle, order="key", state_dir=tmp_path):
        handle.wait(40)
        assert handle.by_key() == {"free": list(range(20)), "other": list(range(20))}
        assert committed(cluster, group, topic) == 0
        handle.errors.clear()
        handle.wait(60)
    assert handle.by_key()["stuck"] == list(range(20))
    assert committed(cluster, group, topic) == 60


def test_a_restart_on_the_same_disk_repeats_what_was_unfinished_only(
    cluster: Cluster, make_topic: MakeTopic, group: str, tmp_path: Path
) -> None:
    topic, first = make_topic(1), Recorder({"stuck 0": RetryLater("closed", suspend_ms=50)})
    tell(cluster, topic, "stuck 0", *(f"free {step}" for step in range(30)))
    settings = {"order": "key", "state_dir": tmp_path / "disk"}
    with consumer(cluster, group, topic, first, **settings):
        first.wait(30)
    again = Recorder()
    with consumer(cluster, group, topic, again, **settings):
        again.wait(1)
        time.sleep(0.5)
    assert again.done == ["stuck 0"]


def test_members_by_key_share_the_queues_and_keep_each_key_in_order(
    cluster: Cluster, topic: str, group: str, tmp_path: Path
) -> None:
    seen: list[int] = []

    def note(messages: Sequence[MessageExt]) -> None:
        seen.extend(int(message.body) for message in messages)

    one = consumer(cluster, group, topic, note, order="key", state_dir=tmp_path / "one")
    other = consumer(cluster, group, topic, note, order="key", state_dir=tmp_path / "other")
    with one:
        send_in_order(cluster, topic, range(100), keys=10)
        until(lambda: len(seen) > 20, 60)
        with other:
            until(lambda: len(other.assigned) == 2, 60)
            send_in_order(cluster, topic, range(100, 200), keys=10)
            until(lambda: len(set(seen)) == 200, 60)
        send_in_order(cluster, topic, range(200, 300), keys=10)
        until(lambda: len(set(seen)) == 300, 60)
    assert len(seen) == 300, "a move in peace repeats nothing"
    assert all(seen_of == sorted(seen_of) for seen_of in _by_key(seen, 10))


def _by_key(numbers: list[int], keys: int) -> list[list[int]]:
    return [[n for n in numbers if n % keys == key] for key in range(keys)]


def test_a_message_without_key_is_a_barrier(
    cluster: Cluster, make_topic: MakeTopic, group: str, tmp_path: Path
) -> None:
    topic, handle = make_topic(1), Recorder()
    with Producer("parity", namesrv=cluster.namesrv) as producer:
        for n in range(30):
            key = None if n == 15 else f"key-{n % 5}"
            producer.send(Message(topic, b"all %d" % n, sharding_key=key))
    with consumer(cluster, group, topic, handle, order="key", state_dir=tmp_path):
        handle.wait(30)
    steps = handle.by_key()["all"]
    assert set(steps[:15]) == set(range(15))
    assert steps[15] == 15


def test_a_property_or_a_function_may_be_the_key(
    cluster: Cluster, make_topic: MakeTopic, group: str, tmp_path: Path
) -> None:
    topic, at_work, most = make_topic(1), Counter[str](), Counter[str]()
    lock, done = threading.Lock(), threading.Event()
    for n in range(30):
        send(cluster, topic, [n], properties={"account": f"a{n % 3}"})

    def work(messages: Sequence[MessageExt]) -> None:
        account = messages[0].properties["account"]
        with lock:
            at_work[account] += 1
            most[account] = max(most[account], at_work[account])
            most["together"] = max(most["together"], sum(at_work.values()))
        time.sleep(0.02)
        with lock:
            at_work[account] -= 1
            most["calls"] += 1
            if most["calls"] == 30:
                done.set()

    with consumer(cluster, group, topic, work, order="key", key="account", state_dir=tmp_path):
        assert done.wait(60)
    assert {most[f"a{n}"] for n in range(3)} == {1}
    assert most["together"] > 1
