"""Operators' calls about parked keys and dead letters, with a member of the group beside them."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from client.dead_letters import dead_letter_count, dead_letters
from client.keyed_messages import Seen, committed, send
from client.short_delay_cluster import until
from cometmq import Admin, ClientError, OnFailure
from cometmq.client.admin import dead_letter_locks
from cometmq.errors import OperatorAtWork


class Faulty(Seen):
    """A handler that fails on some bodies, and notes the others."""

    def __init__(self, *bad):
        super().__init__()
        self.bad = set(bad)

    def __call__(self, messages):
        if messages[0].body.decode() in self.bad:
            raise ValueError("no time in it")
        self.note(messages)


@pytest.fixture
def admin(cluster):
    with Admin(namesrv=cluster.namesrv) as running:
        yield running


def parked(admin, group, count, **chosen):
    """The bodies of the parked messages, once there are so many."""
    until(lambda: len(admin.parked(group, **chosen)) == count)
    return [admin.parked_message(group, one).body for one in admin.parked(group, **chosen)]


def test_a_released_key_goes_first_and_later_messages_behind_it(
    cluster, make_topic, by_key, group, admin
):
    topic, seen = make_topic(cluster, 1), Faulty("a1")
    send(cluster, topic, "a0", "a1", "b0", "a2")
    with by_key(topic, seen, on_failure=OnFailure.park()):
        assert parked(admin, group, 2) == [b"a1", b"a2"]
        plan = admin.release_parked(group, key="a", dry_run=True)
        assert (plan.asked, plan.done, plan.is_dry_run) == (2, 0, True)
        again = admin.release_parked(group, key="a")
        assert (again.asked, again.done) == (2, 0)
        assert [one.why for one in again.refused] == ["it failed again: ValueError: no time in it"]
        seen.bad.clear()
        shown = []
        report = admin.release_parked(group, key="a", progress=lambda *now: shown.append(now))
        assert (report.asked, report.done, report.refused) == (2, 2, ())
        assert shown[-1] == (2, 2)
        send(cluster, topic, "a3")
        until(lambda: len(seen.by_key["a"]) == 4)
        assert admin.release_parked(group).asked == 0
    assert seen.by_key["a"] == ["a0", "a1", "a2", "a3"]


def test_a_repaired_message_is_handled_with_its_new_body(cluster, make_topic, by_key, group, admin):
    topic, seen = make_topic(cluster, 1), Faulty("a1")
    send(cluster, topic, "a0", "a1", "a2")
    with by_key(topic, seen, on_failure=OnFailure.park()):
        parked(admin, group, 2)
        first = admin.parked(group)[0]
        assert (first.key, first.attempts, first.has_failed) == ("a", 1, True)
        assert admin.repair_parked(group, first, b"a1, at noon")
        assert admin.release_parked(group, reason="no TIME").done == 2
        assert not admin.repair_parked(group, first, b"too late")
    assert seen.by_key["a"] == ["a0", "a1, at noon", "a2"]


def test_a_redriven_key_comes_to_all_groups_in_order_and_can_fail_again(
    cluster, make_topic, by_key, group, admin
):
    topic, seen = make_topic(cluster, 1), Faulty("a1")
    send(cluster, topic, "a0", "a1", "a2")
    with by_key(topic, seen, on_failure=OnFailure.park()):
        parked(admin, group, 2)
        report = admin.redrive_parked(group)
        assert report.asked == 2
        until(lambda: committed(cluster, group, topic) == 5)
        assert parked(admin, group, 2) == [b"a1", b"a2"]
        seen.bad.clear()
        assert admin.redrive_parked(group).done == 2
        send(cluster, topic, "a3")
        until(lambda: len(seen.by_key["a"]) == 4)
    assert seen.by_key["a"] == ["a0", "a1", "a2", "a3"]
    copies = [one for one in admin.peek(topic, 100, oldest=True) if one.body == b"a1"]
    assert len({one.msg_id for one in copies}) == 3, "a copy has an id of its own"


def test_parked_messages_are_sent_elsewhere_or_dropped(cluster, make_topic, by_key, group, admin):
    topic, other, seen = make_topic(cluster, 1), make_topic(cluster, 1), Faulty("a1", "b1")
    send(cluster, topic, "a1", "a2", "a3", "b1")
    with by_key(topic, seen, on_failure=OnFailure.park()):
        parked(admin, group, 4)
        middle = admin.parked(group, key="a")[1]
        assert admin.drop_parked(group, msg_id=middle.msg_id, dry_run=True).asked == 1
        assert admin.drop_parked(group, msg_id=middle.msg_id).done == 1
        assert admin.redrive_parked(group, to=other, key="a", rate=100).done == 2
        assert parked(admin, group, 1) == [b"b1"]
        assert admin.drop_parked(group).done == 1
        send(cluster, topic, "b2")
        until(lambda: seen.by_key["b"] == ["b2"])
    assert [one.body for one in admin.peek(other, oldest=True)] == [b"a1", b"a3"]


@pytest.mark.parametrize(("at_bound", "letters"), [("dead_letter", ["a1", "a2"]), ("block", [])])
def test_at_the_bound_of_parking_a_key_does_what_its_policy_says(
    cluster, make_topic, by_key, group, admin, at_bound, letters
):
    topic, seen = make_topic(cluster, 1), Faulty("a1")
    send(cluster, topic, "a1", "a2", "a3", "b0")
    policy = OnFailure.park(count=2, at_bound=at_bound)
    with by_key(topic, seen, on_failure=policy) as consumer:
        until(lambda: seen.by_key["b"] == ["b0"])
        if letters:
            found = dead_letters(cluster, group, 2)
            assert [one.body.decode() for one in found] == letters
            send(cluster, topic, "a4")
            until(lambda: seen.by_key["a"] == ["a3", "a4"])
        else:
            assert parked(admin, group, 2) == [b"a1", b"a2"]
            assert committed(cluster, group, topic) < 4
        assert consumer.assigned


def test_a_consumer_stops_at_the_bound_of_parking(cluster, make_topic, by_key, group):
    topic = make_topic(cluster, 1)
    send(cluster, topic, "a1", "a2", "a3")
    consumer = by_key(topic, Faulty("a1"), on_failure=OnFailure.park(count=1, at_bound="stop"))
    with consumer:
        assert consumer.wait(30)


def test_dead_letters_are_sent_again_once_in_order_and_can_die_again(
    cluster, make_topic, by_key, group, admin
):
    topic, seen = make_topic(cluster, 1), Faulty("a1", "a2")
    send(cluster, topic, "a1", "a2", "a3")
    with by_key(topic, seen, on_failure=OnFailure.dead_letter()):
        dead_letter_count(cluster, group, 2)
        assert admin.redrive_dead_letters(group, dry_run=True).asked == 2
        assert admin.redrive_dead_letters(group).done == 2
        dead_letter_count(cluster, group, 4)
        seen.bad.clear()
        assert admin.redrive_dead_letters(group, key="a").done == 2
        until(lambda: len(seen.by_key["a"]) == 3)
        assert admin.redrive_dead_letters(group).asked == 0
        assert admin.open_dead_letters(group) == []
    assert seen.by_key["a"] == ["a3", "a1", "a2"]


def test_one_operator_at_a_time_sends_dead_letters(
    cluster, make_topic, by_key, group, admin, monkeypatch
):
    monkeypatch.setattr(dead_letter_locks, "_WAIT_S", 0.5)
    topic, other = make_topic(cluster, 1), make_topic(cluster, 1)
    send(cluster, topic, "a1", "a2", "b1")
    with by_key(topic, Faulty("a1", "a2", "b1"), on_failure=OnFailure.dead_letter()):
        dead_letter_count(cluster, group, 3)
    letters = admin.open_dead_letters(group)
    places = {(one.broker_name, one.queue_id, one.queue_offset) for one in letters}
    at_work, may_end = threading.Event(), threading.Event()

    def fail(_left):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        admin.redrive_dead_letters_by(group, fail, places)

    def take(left):
        at_work.set()
        assert may_end.wait(30)
        assert left == places, "a call that failed has sent nothing"

    with ThreadPoolExecutor(1) as operators:
        first = operators.submit(admin.redrive_dead_letters_by, group, take, places)
        assert at_work.wait(30)
        for refused in (
            lambda: admin.redrive_dead_letters(group, to=other),
            lambda: admin.drop_dead_letters(group),
            lambda: admin.redrive_dead_letters_by(group, len, places),
        ):
            with pytest.raises(OperatorAtWork, match="another operator is sending or dropping"):
                refused()
        may_end.set()
        assert first.result(30) == 3
    assert admin.redrive_dead_letters(group, to=other).asked == 0
    assert admin.redrive_dead_letters_by(group, fail, places) == 0
    assert admin.peek(other) == []


def test_dead_letters_go_to_one_group_alone_or_are_dropped(
    cluster, make_topic, by_key, group, admin
):
    topic, seen = make_topic(cluster, 1), Faulty("a1", "b1")
    send(cluster, topic, "a1", "b1")
    with by_key(topic, seen, on_failure=OnFailure.dead_letter()):
        dead_letter_count(cluster, group, 2)
    seen.bad.clear()
    assert admin.drop_dead_letters(group, key="b").done == 1
    assert admin.redrive_dead_letters(group, to_group=True).done == 1
    with by_key(topic, seen):
        until(lambda: seen.bodies == ["a1"])
    assert len(admin.peek(topic)) == 2, "other groups see nothing again"
    with pytest.raises(ClientError, match="exclude"):
        admin.redrive_dead_letters(group, to=topic, to_group=True)
