"""Key lanes against a real broker: order, stuck keys, barriers, restarts, resets."""

import threading
import time

import pytest

from client.keyed_messages import Seen, committed, send
from client.short_delay_cluster import until
from cometmq import (
    Admin,
    MessageQueue,
    PushConsumer,
    RetryLater,
    SettingsError,
)


def test_keys_are_handled_in_parallel_and_each_in_its_order(cluster, make_topic, by_key):
    topic, seen = make_topic(cluster, 1), Seen()
    bodies = [f"{key}{step:02}" for step in range(20) for key in "abcdefgh"]
    send(cluster, topic, *bodies)
    running, most = 0, 0
    lock = threading.Lock()

    def handle(messages):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.005)
        seen.note(messages)
        with lock:
            running -= 1

    with by_key(topic, handle):
        until(lambda: len(seen.bodies) == len(bodies))
    assert most >= 4, "one queue, and its keys did not go side by side"
    assert all(own == sorted(own) for own in seen.by_key.values())


def test_a_stuck_key_delays_neither_other_keys_nor_later_pulls(cluster, make_topic, by_key):
    topic, seen, is_stuck = make_topic(cluster, 1), Seen(), [True]
    send(cluster, topic, *(f"{key}{step:02}" for step in range(50) for key in "abc"))

    def handle(messages):
        if messages[0].body == b"a10" and is_stuck:
            raise RetryLater("not yet")
        seen.note(messages)

    with by_key(topic, handle, pull_batch_size=8) as consumer:
        until(lambda: len(seen.by_key["b"]) == len(seen.by_key["c"]) == 50)
        assert seen.by_key["a"] == [f"a{step:02}" for step in range(10)]
        is_stuck.clear()
        until(lambda: len(seen.by_key["a"]) == 50)
        assert consumer.assigned
    assert all(own == sorted(own) and len(own) == 50 for own in seen.by_key.values())


def test_a_bad_message_uses_its_attempts_up_over_restarts(cluster, make_topic, by_key, group):
    """One that began anew at each restart would hold back its queue's commit for ever."""
    topic, seen, tries = make_topic(cluster, 1), Seen(), []
    send(cluster, topic, "a0", "bad", "a1")

    def handle(messages):
        if messages[0].body == b"bad":
            tries.append(messages[0].reconsume_times)
            raise RetryLater
        seen.note(messages)

    with by_key(topic, handle, suspend_ms=300, max_attempts=5):
        until(lambda: len(tries) >= 2 and len(seen.bodies) == 2)
    number = len(tries)
    with by_key(topic, handle, suspend_ms=10, max_attempts=5):
        until(lambda: committed(cluster, group, topic) == 3)
    assert tries == list(range(5)), f"{number} before the restart"
    assert sorted(seen.bodies) == ["a0", "a1"]


def test_a_message_without_key_overtakes_nothing_and_nothing_overtakes_it(
    cluster, make_topic, by_key
):
    topic, seen = make_topic(cluster, 1), Seen()
    send(cluster, topic, *(body for at in range(10) for body in (f"a{at}", f"b{at}", f"-{at}")))

    def handle(messages):
        time.sleep(0.002)
        seen.note(messages)

    with by_key(topic, handle):
        until(lambda: len(seen.bodies) == 30)
    for at in range(10):
        part = seen.bodies[at * 3 : at * 3 + 3]
        assert sorted(part[:2]) == [f"a{at}", f"b{at}"]
        assert part[2] == f"-{at}"


def test_messages_without_key_are_unordered_where_the_setting_says_so(cluster, make_topic, by_key):
    topic, seen = make_topic(cluster, 1), Seen()
    send(cluster, topic, "-stuck", *(f"-{at}" for at in range(9)))

    def handle(messages):
        if messages[0].body == b"-stuck" and len(seen.bodies) < 9:
            raise RetryLater
        seen.note(messages)

    with by_key(topic, handle, without_key="free"):
        until(lambda: len(seen.bodies) == 10)
    assert seen.bodies[-1] == "-stuck"


def test_the_key_is_a_property_or_a_function_and_a_function_that_fails_gives_no_key(
    cluster, make_topic, by_key
):
    topic, seen, keys = make_topic(cluster, 1), Seen(), []
    send(cluster, topic, "a1", "b1", "a2")

    def key(message):
        keys.append(message.body)
        if message.body == b"b1":
            raise ValueError("no key in here")
        return message.body[:1]

    with by_key(topic, seen.note, key=key):
        until(lambda: len(seen.bodies) == 3)
    assert seen.bodies == ["a1", "b1", "a2"]
    assert keys == [b"a1", b"b1", b"a2"]


def test_a_restart_on_the_same_disk_repeats_unfinished_messages_only(
    cluster, group, make_topic, by_key
):
    topic, seen = make_topic(cluster, 1), Seen()
    send(cluster, topic, *(f"{key}{step:02}" for step in range(20) for key in "abc"))

    with by_key(topic, seen.note_but(b"a05")):
        until(lambda: len(seen.bodies) == 45)
    assert committed(cluster, group, topic) == 15, "the lowest unfinished one is a05"
    again = Seen()
    with by_key(topic, again.note):
        until(lambda: len(again.bodies) >= 15)
        time.sleep(0.3)
    assert again.bodies == [f"a{step:02}" for step in range(5, 20)]
    assert committed(cluster, group, topic) == 60


def test_on_another_disk_what_is_above_the_committed_offset_comes_again(
    cluster, group, make_topic, by_key, tmp_path
):
    topic, seen = make_topic(cluster, 1), Seen()
    send(cluster, topic, "a1", "b1", "b2", "b3")

    with by_key(topic, seen.note_but(b"a1")):
        until(lambda: len(seen.bodies) == 3)
    moved = Seen()
    with by_key(topic, moved.note, state_dir=tmp_path / "another"):
        until(lambda: len(moved.bodies) == 4)
    assert moved.by_key == {"a": ["a1"], "b": ["b1", "b2", "b3"]}


@pytest.mark.parametrize("offset", [0, 2])
def test_a_reset_discards_what_was_noted_as_done(cluster, group, make_topic, by_key, offset):
    topic, seen = make_topic(cluster, 1), Seen()
    send(cluster, topic, "c1", "a1", "b1", "b2")

    with by_key(topic, seen.note_but(b"a1")):
        until(lambda: len(seen.bodies) == 3)
    with Admin(namesrv=cluster.namesrv) as admin:
        queue = MessageQueue(topic, admin.queues(topic)[0].broker_name, 0)
        admin.set_group_offsets(group, {queue: offset})
    again = Seen()
    with by_key(topic, again.note):
        until(lambda: len(again.bodies) >= 4 - offset)
    assert sorted(again.bodies) == sorted(["c1", "a1", "b1", "b2"][offset:])


def test_settings_that_contradict_each_other_are_refused(cluster):
    for wrong in (
        {"order": "sideways"},
        {"order": "key", "orderly": True},
        {"order": "queue", "orderly": False},
        {"order": "key", "broadcasting": True},
        {"key": "account"},
        {"order": "key", "key": 5},
        {"order": "key", "without_key": "lost"},
        {"on_failure": "retry"},
    ):
        with pytest.raises(SettingsError):
            PushConsumer("g", namesrv=cluster.namesrv, **wrong)


def test_a_delay_that_is_no_number_is_refused_where_it_is_made():
    for wrong in ({"delay_level": "3"}, {"delay_level": -2}, {"suspend_ms": 1.5}):
        with pytest.raises(SettingsError):
            RetryLater(**wrong)
