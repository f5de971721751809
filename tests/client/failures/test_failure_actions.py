"""What becomes of messages that fail, by policy, against a real broker; poison and outage."""

import sqlite3
import threading
import time
from contextlib import closing

import pytest

from client.dead_letters import dead_letter_count
from client.failure_cases import four_kinds, table_at
from client.keyed_messages import Seen, committed, send
from client.received_messages import received
from client.short_delay_cluster import until
from cometmq import (
    BreakerLimits,
    ConsumeStatus,
    Message,
    OnFailure,
    Producer,
    RetryLater,
    SettingsError,
    TableSink,
)
from cometmq.client.handling.handler_call import FailureDetails

CALM = BreakerLimits(keys=100, results=100)


class Flaky:
    """A handler that raises what was set for a body, and counts its calls."""

    def __init__(self, errors):
        self.errors, self.calls, self.seen = errors, {}, Seen()

    def __call__(self, messages):
        body = messages[0].body.decode()
        self.calls[body] = self.calls.get(body, 0) + 1
        error = self.errors.get(body)
        if error is not None:
            if isinstance(error, ConsumeStatus):
                return error
            raise error
        self.seen.note(messages)
        return None


def test_policies_are_chosen_by_the_type_of_the_error(cluster, group, make_topic, by_key):
    topic = make_topic(cluster, 1)
    send(cluster, topic, "a-dead", "a1", "b-skip", "b1", "c-retried", "c1", "d-later", "d1")
    handle = Flaky(
        {
            "a-dead": ValueError("bad"),
            "b-skip": KeyError("unknown"),
            "c-retried": OSError("away"),
            "d-later": ConsumeStatus.RECONSUME_LATER,
        }
    )
    policy = {
        ValueError: OnFailure.dead_letter(),
        LookupError: OnFailure.skip(after=2),
        RetryLater: OnFailure.retry(1, OnFailure.skip()),
        Exception: OnFailure.retry(3, pause_ms=20),
    }
    with by_key(topic, handle, on_failure=policy, breaker=CALM):
        until(lambda: len(handle.seen.bodies) == 4)
    assert handle.calls == {
        "a-dead": 1,
        "b-skip": 2,
        "c-retried": 4,
        "d-later": 2,
        **dict.fromkeys(("a1", "b1", "c1", "d1"), 1),
    }
    assert dead_letter_count(cluster, group, 2) == 2
    assert committed(cluster, group, topic) == 8


def test_a_row_is_written_before_the_offset_moves(cluster, group, make_topic, by_key, tmp_path):
    topic, path, tries = make_topic(cluster, 1), tmp_path / "failed.db", []

    def connect():
        tries.append(len(handle.seen.bodies))
        return sqlite3.connect(path)

    sink = TableSink(connect, "failed")
    send(cluster, topic, "a-bad", "a1")
    handle = Flaky({"a-bad": ValueError("no such flight")})
    with by_key(topic, handle, on_failure=OnFailure.store(sink, after=2)):
        until(lambda: len(tries) == 3)  # there is no table yet: the sink fails, and all wait
        assert tries == [0, 0, 0]
        with closing(sqlite3.connect(path)) as database:
            database.execute(sink.schema())
        until(lambda: handle.seen.bodies == ["a1"])
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute(
            "SELECT topic, sharding_key, body, attempts, error_type FROM failed"
        )
        assert rows.fetchall() == [(topic, "a", b"a-bad", 2, "ValueError")]
    assert handle.calls["a-bad"] == 2
    assert committed(cluster, group, topic) == 2


def test_a_table_sink_writes_one_row_a_message(tmp_path):
    sink = table_at(tmp_path / "failed.db")
    failure = FailureDetails(3, ValueError, "ValueError: bad", 1_700_000_000_000)
    for at in (7, 8, 7):
        raw = b"KEYS\x01k1 k2\x02TAGS\x01A\x02"
        sink(received(at, queue_id=2, raw_properties=raw), failure)
    with closing(sqlite3.connect(tmp_path / "failed.db")) as database:
        rows = database.execute("SELECT * FROM failed ORDER BY queue_offset").fetchall()
    assert [row[:4] for row in rows] == [("T", "b", 2, 7), ("T", "b", 2, 8)]
    assert rows[0][5:9] == ('["k1", "k2"]', "A", None, b"x")
    assert rows[0][10:13] == (3, "ValueError", "ValueError: bad")


def test_a_table_sink_refuses_what_is_no_name():
    with pytest.raises(SettingsError):
        TableSink(sqlite3.connect, "failed; DROP TABLE users")
    with pytest.raises(SettingsError):
        TableSink(sqlite3.connect, "failed", paramstyle="numeric")


def test_a_policy_of_stopping_stops_before_the_message(cluster, group, make_topic, by_key):
    topic, handle = make_topic(cluster, 1), Flaky({"a-fatal": ValueError("stop the line")})
    send(cluster, topic, "a1", "a-fatal", "a2")
    consumer = by_key(topic, handle, on_failure={ValueError: OnFailure.stop()})
    consumer.start()
    until(lambda: handle.calls.get("a-fatal"))
    consumer.stop()  # beside the stop that the policy asks for
    assert consumer.wait(0)
    assert handle.seen.bodies == ["a1"]
    assert committed(cluster, group, topic) == 1
    again = Seen()
    with by_key(topic, again.note):
        until(lambda: len(again.bodies) == 2)
    assert again.bodies == ["a-fatal", "a2"]


def test_max_attempts_makes_dead_letters_by_key_too(cluster, group, make_topic, by_key):
    topic, handle = make_topic(cluster, 1), Flaky({"a-bad": ValueError("bad")})
    send(cluster, topic, "a-bad", "a1")
    with by_key(topic, handle, max_attempts=3):
        until(lambda: handle.seen.bodies == ["a1"])
    assert handle.calls["a-bad"] == 3
    assert dead_letter_count(cluster, group, 1) == 1


@pytest.mark.parametrize("order", ["key", "queue", "none"])
def test_an_outage_is_not_answered_with_dead_letters(cluster, make_topic, by_key, order):
    topic, seen, is_down, calls = make_topic(cluster, 8), Seen(), threading.Event(), []
    is_down.set()
    keys = "abcdefghijklmnopqrst"
    send(cluster, topic, *(f"{key}{step}" for step in range(3) for key in keys))

    def handle(messages):
        if is_down.is_set():
            calls.append(time.monotonic())
            time.sleep(0.02)  # threads that fail at once are ahead of the loop that judges
            raise ConnectionError("the database is away")
        seen.note(messages)

    limits = BreakerLimits(keys=3, results=10, pause_s=0.2, pause_most_s=0.5)
    settings = {"on_failure": OnFailure.retry(2), "breaker": limits, "consume_threads": 4}
    settings["order"] = order
    with by_key(topic, handle, **settings):
        until(lambda: len(calls) >= 10)
        time.sleep(1.5)
        is_down.clear()
        until(lambda: len(seen.bodies) == 60)
    assert len(calls) < 60, "it went on calling in the outage"
    if order != "none":
        assert all(own == sorted(own) and len(own) == 3 for own in seen.by_key.values())


@pytest.mark.parametrize("order", ["key", "queue"])
def test_bad_messages_alone_do_not_hold_up_all_for_ever(cluster, group, make_topic, by_key, order):
    topic, keys = make_topic(cluster, 8), "abcdefgh"
    bad = {f"{key}-bad": ValueError("bad") for key in keys}
    with Producer("senders", namesrv=cluster.namesrv) as producer:
        for at, key in enumerate(keys):  # every key, and every queue, begins with a bad one
            queue = producer.queues(topic)[at]
            for body in (f"{key}-bad", f"{key}-good"):
                producer.send(Message(topic, body.encode(), sharding_key=key), queue=queue)
    handle = Flaky(bad)
    limits = BreakerLimits(
        keys=3, results=10, pause_s=0.05, pause_most_s=0.1, memory_s=9.0, outage_most_s=1.0
    )
    settings = {"on_failure": OnFailure.dead_letter(after=3), "breaker": limits, "order": order}
    with by_key(topic, handle, **settings):
        until(lambda: sorted(handle.seen.bodies) == [f"{key}-good" for key in keys])
        assert dead_letter_count(cluster, group, 8) == 8
    assert all(handle.calls[body] >= 3 for body in bad), "dead before its attempts were used"


@pytest.mark.parametrize("order", ["key", "queue"])
def test_what_has_not_failed_yet_is_tried_first(cluster, make_topic, by_key, order):
    topic, calls = make_topic(cluster, 8), []

    def handle(messages):
        calls.append(messages[0].body)
        if messages[0].body == b"bad":
            raise ValueError("bad")

    limits = BreakerLimits(keys=3, results=10, pause_s=0.3, pause_most_s=0.3)
    with Producer("senders", namesrv=cluster.namesrv) as producer:
        *others, last = producer.queues(topic)
        for queue in others:
            producer.send(Message(topic, b"bad"), queue=queue)
        with by_key(topic, handle, breaker=limits, order=order):
            until(lambda: len(calls) >= 12)
            producer.send(Message(topic, b"good"), queue=last)
            before = len(calls)
            until(lambda: b"good" in calls)
    assert calls.index(b"good") <= before + 4, "bad ones were tried again before it"


def test_one_bad_message_becomes_a_dead_letter_while_others_are_handled(
    cluster, group, make_topic, by_key
):
    topic, handle = make_topic(cluster, 1), Flaky({"a-bad": ValueError("bad")})
    send(cluster, topic, "a-bad", *(f"{key}{step}" for step in range(20) for key in "abc"))
    limits = BreakerLimits(keys=2, results=4)
    with by_key(topic, handle, on_failure=OnFailure.dead_letter(), breaker=limits):
        until(lambda: len(handle.seen.bodies) == 60)
    assert dead_letter_count(cluster, group, 1) == 1


@pytest.mark.parametrize("order", ["none", "queue"])
def test_policies_hold_in_the_other_orders_too(cluster, group, make_topic, by_key, tmp_path, order):
    topic, path = make_topic(cluster, 1), tmp_path / "failed.db"
    send(cluster, topic, "a-dead", "a-skipped", "a-stored", "a-retried", "a1")
    errors, policy = four_kinds("a-", path)
    handle = Flaky(errors)
    with by_key(topic, handle, order=order, on_failure=policy):
        until(lambda: handle.seen.bodies == ["a1"] and handle.calls.get("a-retried") == 2)
        assert dead_letter_count(cluster, group, 1) == 1
    assert handle.calls == {**dict.fromkeys(errors, 1), "a-retried": 2, "a1": 1}
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT body FROM failed").fetchall() == [(b"a-stored",)]
    assert committed(cluster, group, topic) == 5
