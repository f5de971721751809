"""Two stories end to end, on a real broker: order with keys that fail, and dead letters repaired.

The third, a group that is too slow and learns why, is in admin/test_planted_bottlenecks.py.
"""

import sqlite3
import threading
from collections import defaultdict
from contextlib import closing

import pytest

from client.dead_letters import dead_letter_count
from client.keyed_messages import Seen
from client.short_delay_cluster import until
from cometmq import Admin, Message, OnFailure, Producer, PushConsumer, RepairTable, RetryLater


@pytest.fixture
def admin(cluster):
    with Admin(namesrv=cluster.namesrv) as running:
        yield running


@pytest.fixture
def table_of(tmp_path, group):
    def make(of):
        made = RepairTable(lambda: sqlite3.connect(tmp_path / "db", timeout=30), of, group, of=of)
        with closing(sqlite3.connect(tmp_path / "db")) as database:
            database.execute(made.schema())
        return made

    return make


def send_in_order(producer, topic, *bodies):
    """Send, and check that the broker has stored each key in one queue, in this order."""
    places = defaultdict(list)
    for body in bodies:
        result = producer.send(Message(topic, body.encode(), sharding_key=body[0]))
        places[body[0]].append((result.queue.queue_id, result.queue_offset))
    for own in places.values():
        assert len({queue for queue, _ in own}) == 1
        assert own == sorted(own)


def test_order_holds_in_three_stages_with_keys_skipped_parked_repaired_and_handled_elsewhere(
    cluster, make_topic, by_key, group, admin, table_of
):
    topic, elsewhere, seen = make_topic(cluster, 4), make_topic(cluster, 4), Seen()
    bad = {"a1", "b1", "e1"}

    def handle(messages):
        body = messages[0].body.decode()
        if body == "c1":
            raise LookupError("nobody needs it")
        if body in bad:
            raise ValueError("no time in it")
        seen.note(messages)

    others = PushConsumer(
        f"{group}-others", namesrv=cluster.namesrv, order="queue", consume_from="first",
        rebalance_s=1.0,
    )  # fmt: skip
    others.subscribe(elsewhere, "*", seen.note)
    policies = {LookupError: OnFailure.skip(), ValueError: OnFailure.park()}
    table = table_of("parked")
    with Producer("pilots", namesrv=cluster.namesrv) as producer:
        send_in_order(producer, topic, *(f"{key}{step}" for step in range(4) for key in "abcde"))
        with by_key(topic, handle, on_failure=policies), others:
            until(lambda: len(admin.parked(group)) == 9)
            until(lambda: seen.by_key["c"] == ["c0", "c2", "c3"] and len(seen.by_key["d"]) == 4)
            assert {key: seen.by_key[key] for key in "abe"} == {
                "a": ["a0"],
                "b": ["b0"],
                "e": ["e0"],
            }
            assert table.fill(admin) == 9
            first, *_ = table.take("a", "ann")
            assert table.repair(first, b"a1, at noon")
            send_in_order(producer, topic, "a4", "d4")
            until(lambda: len(admin.parked(group, key="a")) == 4)
            assert table.send_back(admin, "a", "ann").done == 4
            assert admin.redrive_parked(group, key="b", to=elsewhere).done == 3
            until(lambda: len(seen.by_key["b"]) == 4)
            bad.clear()
            assert admin.redrive_parked(group, key="e").done == 3
            send_in_order(producer, topic, *(f"{key}5" for key in "abcde"))
            until(lambda: all(seen.by_key[key][-1] == f"{key}5" for key in "abcde"))
    assert dict(seen.by_key) == {
        "a": ["a0", "a1, at noon", "a2", "a3", "a4", "a5"],
        "b": ["b0", "b1", "b2", "b3", "b5"],
        "c": ["c0", "c2", "c3", "c5"],
        "d": ["d0", "d1", "d2", "d3", "d4", "d5"],
        "e": ["e0", "e1", "e2", "e3", "e5"],
    }


def test_dead_letters_after_retries_are_repaired_in_a_table_by_two_and_sent_back_once_in_order(
    cluster, make_topic, group, admin, table_of
):
    topic, tried, seen = make_topic(cluster, 1), defaultdict(int), Seen()

    def pay(messages):
        body = messages[0].body.decode()
        tried[body] += 1
        if body.endswith("?"):
            raise RetryLater("no such account", delay_level=1)
        seen.note(messages)

    consumer = PushConsumer(group, namesrv=cluster.namesrv, max_attempts=2, consume_from="first")
    consumer.subscribe(topic, "*", pay)
    orders = [f"{key}{step}?" for step in range(3) for key in "abc"]
    table, reports = table_of("dead_letters"), []
    with Producer("sellers", namesrv=cluster.namesrv) as producer, consumer:
        for body in orders:
            producer.send(Message(topic, body.encode(), sharding_key=body[0]))
        dead_letter_count(cluster, group, 9)
        assert set(tried.values()) == {2}
        assert (table.fill(admin), table.fill(admin)) == (9, 0)
        operators = [
            threading.Thread(target=repair, args=(table, cluster, name, reports))
            for name in ("ann", "bob")
        ]
        for one in operators:
            one.start()
        for one in operators:
            one.join()
        until(lambda: len(seen.bodies) == 9)
        assert admin.open_dead_letters(group) == []
    assert sum(report.done for report in reports) == 9
    assert sorted(seen.bodies) == sorted(body.rstrip("?") for body in orders)
    assert {row.state for row in table.rows()} == {"sent"}
    sent = [one.body for one in admin.peek(f"%RETRY%{group}", 100, oldest=True)]
    for key in (b"a", b"b", b"c"):
        own = [body for body in sent if body.startswith(key) and not body.endswith(b"?")]
        assert own == [key + b"0", key + b"1", key + b"2"], "those of a key go in their order"


def repair(table, cluster, operator, reports):
    """What an operator does: take what nobody has, repair it, send it back."""
    with Admin(namesrv=cluster.namesrv) as admin:
        for key in "abc":
            rows = table.take(key, operator)
            for row in rows:
                assert table.repair(row, row.body.rstrip(b"?"))
            if rows:
                reports.append(table.send_back(admin, key, operator))


def test_a_redrive_of_dead_letters_that_was_interrupted_goes_on_where_it_was(
    cluster, make_topic, by_key, group, admin
):
    topic, other = make_topic(cluster, 1), make_topic(cluster, 1)

    def fail(_messages):
        raise ValueError("no such account")

    with Producer("sellers", namesrv=cluster.namesrv) as producer:
        for number in range(6):
            producer.send(Message(topic, f"a{number}".encode(), sharding_key="a"))
    with by_key(topic, fail, on_failure=OnFailure.dead_letter()):
        dead_letter_count(cluster, group, 6)

    def interrupt(done, _of):
        if done == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        admin.redrive_dead_letters(group, to=other, progress=interrupt)
    assert len(admin.open_dead_letters(group)) == 4
    report = admin.redrive_dead_letters(group, to=other)
    assert (report.asked, report.done) == (4, 4)
    assert [one.body for one in admin.peek(other, oldest=True)] == [b"a%d" % n for n in range(6)]
