"""Parked keys against a real broker: their order, restarts, kills and bounds."""

import json
import signal
import subprocess
import sys

import pytest

from client.keyed_messages import Seen, committed, send
from client.parking import parking_process
from client.short_delay_cluster import until
from cometmq import Admin, OnFailure, PushConsumer, SettingsError
from cometmq.model.parking import parking_topic_of
from cometmq.rules.failures.parked_keys import ParkedKeys
from cometmq.testing import LocalCluster


def fails_on(seen, bad):
    """A handler that notes, and fails on the bodies in `bad`, a set that may change."""

    def handle(messages):
        if messages[0].body in bad:
            raise ValueError("no time in it")
        seen.note(messages)

    return handle


def parked_bodies(cluster, group):
    with Admin(namesrv=cluster.namesrv) as admin:
        found = admin.peek(parking_topic_of(group), 1000, oldest=True)
    return [one.body.decode() for one in found if one.properties.get("DLQ_ORIGIN_MESSAGE_ID")]


def test_a_key_that_fails_is_parked_with_all_that_follow_it_while_others_go_on(
    cluster, make_topic, by_key, group
):
    topic, seen = make_topic(cluster, 1), Seen()
    send(cluster, topic, *(f"{key}{step}" for step in range(4) for key in "abc"))
    with by_key(topic, fails_on(seen, {b"a1"}), on_failure=OnFailure.park()):
        until(lambda: committed(cluster, group, topic) == 12)
        send(cluster, topic, "a4", "b4")
        until(lambda: committed(cluster, group, topic) == 14)
    assert seen.by_key["a"] == ["a0"]
    assert seen.by_key["b"] == [f"b{step}" for step in range(5)]
    assert parked_bodies(cluster, group) == ["a1", "a2", "a3", "a4"]


def test_the_search_for_a_checkpoint_looks_through_no_more_than_was_read(
    cluster, make_topic, by_key, group, monkeypatch
):
    """However long the first parked message holds the checkpoint back."""
    topic, seen, looked, count = make_topic(cluster, 1), Seen(), [], 3_000
    needed_from = ParkedKeys.needed_from

    def noted(keys, end):
        looked.append(keys.size)
        return needed_from(keys, end)

    monkeypatch.setattr(ParkedKeys, "needed_from", noted)
    send(cluster, topic, *(f"a{number}" for number in range(count)))
    with by_key(topic, fails_on(seen, {b"a0"}), on_failure=OnFailure.park()):
        until(lambda: committed(cluster, group, topic) == count)
    assert max(looked) > count / 4, "it is looked for while many are parked"
    assert sum(looked) <= 2 * count


def test_a_parked_key_stays_parked_over_a_restart_on_another_disk(
    cluster, make_topic, by_key, group, tmp_path
):
    topic, seen = make_topic(cluster, 1), Seen()
    send(cluster, topic, "a0", "a1", "a2")
    handler = fails_on(seen, {b"a1"})
    with by_key(topic, handler, on_failure=OnFailure.park()):
        until(lambda: committed(cluster, group, topic) == 3)
    settings = {"on_failure": OnFailure.park(), "state_dir": tmp_path / "another"}
    with by_key(topic, handler, **settings):
        send(cluster, topic, "a3", "b0")
        until(lambda: committed(cluster, group, topic) == 5)
    assert seen.by_key == {"a": ["a0"], "b": ["b0"]}
    assert parked_bodies(cluster, group) == ["a1", "a2", "a3"]


def test_a_policy_that_parks_needs_keys(cluster, group):
    with pytest.raises(SettingsError, match="order='key'"):
        PushConsumer(group, namesrv=cluster.namesrv, order="queue", on_failure=OnFailure.park())
    consumer = PushConsumer(group, namesrv=cluster.namesrv)
    with pytest.raises(SettingsError, match="order='key'"):
        consumer.subscribe("anything", "*", print, on_failure=OnFailure.retry(1, OnFailure.park()))


@pytest.mark.parametrize("step", [pytest.param("open", marks=pytest.mark.slow), "park", "counts"])
def test_a_member_killed_between_parked_and_committed_loses_and_repeats_nothing(
    cluster, make_topic, tmp_path, group, step
):
    topic = make_topic(cluster, 1)
    send(cluster, topic, "a0", "a1", "b0", "a2", "b1")
    settings = {
        "group": group,
        "namesrv": cluster.namesrv,
        "topic": topic,
        "seen": str(tmp_path / "seen"),
        "bad": ["a1"],
    }

    def start(number, **more):
        argument = settings | {"state_dir": str(tmp_path / f"disk-{number}")} | more
        command = [sys.executable, parking_process.__file__, json.dumps(argument)]
        return subprocess.Popen(command, stdin=subprocess.PIPE)

    killed = start(0, die_at=step)
    assert killed.wait(60) == -signal.SIGKILL
    killed.stdin.close()
    with start(1) as heir:
        send(cluster, topic, "a3", "b2")
        until(lambda: committed(cluster, group, topic) == 7, 60)
        heir.stdin.close()
        assert heir.wait(60) == 0
    handled = (tmp_path / "seen").read_text().split()
    assert [one for one in handled if one[0] == "a"] in (["a0"], ["a0", "a0"])
    assert sorted(set(handled)) == ["a0", "b0", "b1", "b2"]
    assert parked_bodies(cluster, group) == ["a1", "a2", "a3"]


def test_a_broker_killed_before_it_saved_offsets_does_not_bring_parked_messages_back(tmp_path):
    """A member that came after they were dropped must not make the next one forget them."""
    settings = {"flushConsumerOffsetInterval": 3_600_000}
    with LocalCluster(tmp_path / "store", **settings) as cluster:
        with Admin(namesrv=cluster.namesrv) as admin:
            admin.create_topic("flown", queues=1)
        send(cluster, "flown", "a0", "a1", "b0", "a2", "b1")
        _live(cluster, tmp_path / "1", {b"a1"}, until_committed=5)
        with Admin(namesrv=cluster.namesrv) as admin:
            assert admin.drop_parked("loggers").done == 2
        send(cluster, "flown", "b2")
        _live(cluster, tmp_path / "2", set(), until_committed=6)
        cluster.kill()
        cluster.restart()
        send(cluster, "flown", "a3")
        seen = _live(cluster, tmp_path / "3", set(), until_committed=7)
    assert seen.by_key["b"] == ["b0", "b1", "b2"], "the broker forgot its offsets"
    assert seen.by_key["a"] == ["a3"], "a0 came before one that failed, so it was done"


def _live(cluster, state_dir, bad, until_committed):
    """The life of a member that parks, until the group has committed so many messages."""
    seen = Seen()
    consumer = PushConsumer(
        "loggers", namesrv=cluster.namesrv, consume_from="first", order="key", state_dir=state_dir
    )
    consumer.subscribe("flown", "*", fails_on(seen, bad), on_failure=OnFailure.park())
    with consumer:
        until(lambda: committed(cluster, "loggers", "flown") == until_committed)
    return seen
