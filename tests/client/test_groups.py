"""Groups of several processes: sharing out, joining, dying, and a broker that dies under them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from client import member
from client.served import until
from cometmq import ConsumeFrom, Message, Producer, PushConsumer

if TYPE_CHECKING:
    from pathlib import Path

QUEUES, KEYS = 8, 40


class Member:
    """One member in its own process."""

    def __init__(self, seen: Path, **told):
        self._seen = seen
        options = {"orderly": True, "batch_size": 1, "pause_s": 0.0} | told
        argument = json.dumps(options | {"seen": str(seen)})
        self.process = subprocess.Popen(
            [sys.executable, member.__file__, argument],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def seen(self):
        """What its handler saw: time, queue id, offset, body."""
        if not self._seen.exists():
            return []
        lines = self._seen.read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines]

    def kill(self):
        self.process.kill()
        self._wait()

    def stop(self):
        """End it cleanly; how many messages it knows to have had beside another member."""
        self.process.stdin.close()
        overlaps = self.process.stdout.read()
        self._wait()
        assert self.process.returncode == 0
        return int(overlaps)

    def _wait(self):
        self.process.wait(30)
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def members(tmp_path):
    started = []

    def start(**told):
        started.append(Member(tmp_path / f"seen-{len(started)}", **told))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.kill()


class Source(threading.Thread):
    """Sends numbered messages of many keys, part by part, until it is told to stop."""

    def __init__(self, served, topic, pause_s=0.01):
        super().__init__()
        self._served, self._topic, self._pause_s = served, topic, pause_s
        self._ended = threading.Event()
        self.count = 0

    def run(self):
        with Producer("producers", namesrv=self._served.namesrv) as producer:
            while not self._ended.wait(self._pause_s):
                part = range(self.count, self.count + KEYS)
                producer.send_many(
                    [
                        Message(
                            self._topic,
                            b"%d %d" % (n % KEYS, n // KEYS),
                            sharding_key=str(n % KEYS),
                        )
                        for n in part
                    ],
                    timeout_s=30,
                )
                self.count += KEYS

    def end(self):
        self._ended.set()
        self.join(60)
        return self.count


def audit(members):
    """The steps of every key as its handlers saw them, in time; order and gaps are checked."""
    entries = sorted(entry for one in members for entry in one.seen)
    last, repeats = defaultdict(lambda: -1), 0
    for _, _, _, body in entries:
        key, step = map(int, body.split())
        assert step <= last[key] + 1, f"key {key}: step {step} after {last[key]}"
        repeats += step <= last[key]
        last[key] = max(last[key], step)
    return sum(step + 1 for step in last.values()), repeats


def queues_of(one, since=0):
    return {entry[1] for entry in one.seen[since:]}


def test_members_share_the_queues_and_hand_them_over_in_order(served, make_topic, group, members):
    topic = make_topic(served, QUEUES)
    told = {"namesrv": served.namesrv, "topic": topic, "group": group}
    source = Source(served, topic)
    source.start()
    first = members(**told)
    until(lambda: len(queues_of(first)) == QUEUES)
    second = members(**told)
    until(lambda: len(queues_of(second)) == QUEUES // 2)
    first.stop()
    at = len(second.seen)
    until(lambda: len(queues_of(second, at)) == QUEUES)
    count = source.end()
    until(lambda: audit([first, second])[0] == count)
    second.stop()
    total, repeats = audit([first, second])
    assert (total, repeats) == (count, 0)  # clean hand-overs repeat nothing


def test_a_member_killed_without_warning_is_replaced_once_its_locks_ran_out(
    served, make_topic, group, members
):
    topic = make_topic(served, QUEUES)
    told = {"namesrv": served.namesrv, "topic": topic, "group": group}
    source = Source(served, topic)
    source.start()
    first, second = members(**told), members(**told)
    until(lambda: queues_of(first) and queues_of(second))
    first.kill()
    at = len(second.seen)
    until(lambda: len(queues_of(second, at)) == QUEUES)
    count = source.end()
    until(lambda: audit([first, second])[0] == count)


@pytest.mark.parametrize("orderly", [True, False])
def test_a_broker_killed_and_started_again_stops_nobody(
    mortal, make_topic, group, members, orderly
):
    topic = make_topic(mortal, QUEUES)
    told = {"namesrv": mortal.namesrv, "topic": topic, "group": group, "orderly": orderly}
    source = Source(mortal, topic)
    source.start()
    two = [members(**told), members(**told)]
    until(lambda: queues_of(two[0]) and queues_of(two[1]))
    for _ in range(2):
        seen = [len(one.seen) for one in two]
        mortal.kill()
        mortal.restart()
        until(
            lambda before=seen: all(
                len(one.seen) > at + KEYS for one, at in zip(two, before, strict=True)
            )
        )
    count = source.end()
    if orderly:
        until(lambda: audit(two)[0] == count)
    else:
        until(lambda: len({entry[3] for one in two for entry in one.seen}) == count)
    for one in two:
        one.stop()


def test_two_members_in_one_process_share_as_well(served, make_topic, group):
    topic = make_topic(served, QUEUES)
    made = [
        PushConsumer(group, namesrv=served.namesrv, consume_from=ConsumeFrom.FIRST) for _ in "ab"
    ]
    for one in made:
        one.subscribe(topic, "*", lambda messages: None)
    with made[0], made[1]:
        assert made[0].client_id != made[1].client_id

        def shares():
            return [{q.queue_id for q in one.assigned if q.topic == topic} for one in made]

        until(lambda: [len(share) for share in shares()] == [4, 4])
        assert set.union(*shares()) == set(range(QUEUES))


def test_clients_may_be_started_before_their_name_server_and_outlive_it(mortal, make_topic, group):
    topic, seen = make_topic(mortal), []
    mortal.stop()
    consumer = PushConsumer(group, namesrv=mortal.namesrv, consume_from=ConsumeFrom.FIRST)
    consumer.subscribe(topic, "*", lambda messages: seen.extend(m.body for m in messages))
    with consumer, Producer("producers", namesrv=mortal.namesrv) as producer:
        mortal.start()
        producer.send_many([Message(topic, b"early")])
        until(lambda: seen == [b"early"])
        mortal._names.kill()
        producer.send(Message(topic, b"late"))
        until(lambda: seen == [b"early", b"late"])
