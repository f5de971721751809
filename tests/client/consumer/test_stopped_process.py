"""A member whose process is suspended: its queues, its locks, and what its handler did.

The first test is the shortest such course. Each of the others runs twice: with short locks, and
with real ones, 30 s at a member and 60 s at the broker (`-k real`, some minutes).
"""

import signal
import time
from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

import pytest

from client.consumer_group import Source, audit, queues_of
from client.short_delay_cluster import until
from cometmq import Admin, Message, Producer
from cometmq.testing.cluster import LocalCluster


class Times(NamedTuple):
    """How long locks are trusted, and how often members look."""

    renew_s: float
    valid_s: float
    expire_s: float
    rebalance_s: float
    source_s: float
    """Between two parts of 40 messages."""

    def settings(self, cluster, topic, group, pause_s):
        return {
            "namesrv": cluster.namesrv,
            "topic": topic,
            "group": group,
            "pause_s": pause_s,
            "lock_renew_s": self.renew_s,
            "lock_valid_s": self.valid_s,
            "rebalance_s": self.rebalance_s,
        }


SHORT = Times(0.5, 2.0, 3.0, 2.0, 0.3)
REAL = Times(
    20.0, 30.0, 60.0, 20.0, 2.0
)  # what a consumer and a broker have unless settings otherwise
PAUSE_S = 0.02
WAIT_S = 120
COMMITTED_S = 2.0
"""A message that was begun longer ago is committed: four times as long as between two commits."""

LONG = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(
    params=[pytest.param(SHORT, id="short", marks=LONG), pytest.param(REAL, id="real", marks=LONG)]
)
def times(request):
    return request.param


@pytest.fixture
def timed_cluster(request, times, tmp_path):
    """A cluster whose locks last as `times` says."""
    if times is SHORT:
        yield request.getfixturevalue("cluster")
        return
    with LocalCluster(tmp_path / "store") as running:
        yield running


@pytest.fixture
def load(timed_cluster, times):
    started = []

    def start(topic):
        started.append(Source(timed_cluster, topic, pause_s=times.source_s))
        started[-1].start()
        return started[-1]

    yield start
    for one in started:
        one.end()


def suspend(member, seconds):
    member.process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    member.process.send_signal(signal.SIGCONT)


def runs(members):
    """The calls of the handlers by queue: when each began, and whose it was."""
    found = defaultdict(list)
    for who, member in enumerate(members):
        for began, queue_id, offset, _ in member.seen:
            found[queue_id].append((began, who, offset))
    return {queue_id: sorted(calls) for queue_id, calls in found.items()}


def never_in_two_places(members):
    """Fail unless whoever took over a queue began after the last call of who had it before."""
    for calls in runs(members).values():
        for (began, who, _), (then, whose, _) in pairwise(calls):
            assert who == whose or then >= began + PAUSE_S
    return True


def join_while_one_is_suspended(members, settings):
    """A member; a suspended one with the queues 2 and 3; one to have 3; since when."""
    first = members(instance_name="a", **settings)
    stopped = members(instance_name="b", **settings)
    until(lambda: queues_of(first) >= {0, 1} and queues_of(stopped) >= {2, 3}, WAIT_S)
    time.sleep(0.5)  # a round of rebalance may still be under way
    stopped.process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    return first, stopped, members(instance_name="c", **settings), began


def test_a_member_suspended_beyond_its_locks_begins_no_message(cluster, make_topic, group, members):
    topic = make_topic(cluster, 1)
    with Producer("producers", namesrv=cluster.namesrv) as producer:
        for number in range(40):
            producer.send(Message(topic, b"%d" % number))
    settings = SHORT.settings(cluster, topic, group, 0.1)
    stopped = members(instance_name="z", **settings)
    until(lambda: len(stopped.seen) >= 2)
    stopped.process.send_signal(signal.SIGSTOP)
    before = len(stopped.seen)
    other = members(instance_name="a", **settings)  # the only queue is for the first of the names
    until(lambda: len(other.seen) >= 2)
    stopped.process.send_signal(signal.SIGCONT)
    count = len(other.seen)
    until(lambda: len(other.seen) >= count + 5)
    assert len(stopped.seen) == before
    assert (stopped.stop(), other.stop()) == (1, 0)


def test_after_short_suspensions_no_queue_was_handled_by_two_members_at_once(
    timed_cluster, times, make_topic, group, members, load
):
    topic = make_topic(timed_cluster, 4)
    settings = times.settings(timed_cluster, topic, group, PAUSE_S)
    source = load(topic)
    one = members(**settings)
    until(lambda: len(queues_of(one)) == 4, WAIT_S)
    other = members(**settings)
    until(lambda: len(queues_of(other)) == 2, WAIT_S)
    for member, share in ((one, 0.6), (other, 0.6), (one, 0.9 if times is REAL else 0.6)):
        suspend(member, times.valid_s * share)
        time.sleep(0.3)
    count = source.end()
    until(lambda: audit([one, other])[0] == count, WAIT_S)
    assert one.stop() == other.stop() == 0
    assert audit([one, other]) == (count, 0)
    assert never_in_two_places([one, other])


def test_a_member_that_joins_waits_for_the_queues_of_a_suspended_one(
    timed_cluster, times, make_topic, group, members, load
):
    topic = make_topic(timed_cluster, 4)
    settings = times.settings(timed_cluster, topic, group, PAUSE_S)
    source = load(topic)
    first, stopped, third, began = join_while_one_is_suspended(members, settings)
    time.sleep(times.valid_s * 0.9 - (time.monotonic() - began))
    before = set(queues_of(third))
    stopped.process.send_signal(signal.SIGCONT)
    until(lambda: 3 in queues_of(third), WAIT_S)
    count = source.end()
    everyone = [first, stopped, third]
    until(lambda: audit(everyone)[0] == count, WAIT_S)
    assert before == set(), "it worked on a queue whose lock was another's"
    assert [one.stop() for one in everyone] == [0, 0, 0]
    assert audit(everyone) == (count, 0)
    assert never_in_two_places(everyone)


def test_after_a_long_suspension_no_message_is_begun_and_doubtful_results_are_counted(
    timed_cluster, times, make_topic, group, members, load
):
    topic = make_topic(timed_cluster, 4)
    settings = times.settings(timed_cluster, topic, group, 0.3)
    source = load(topic)
    until(lambda: source.count >= 160)
    count = source.end()
    first, stopped, third, began = join_while_one_is_suspended(members, settings)
    committed = _committed(timed_cluster, topic, group, 3)  # its last: it stands still
    until(lambda: queues_of(third) == {3}, WAIT_S)  # once the broker's lock has run out
    assert time.monotonic() - began > times.expire_s - times.renew_s - 1
    *done, in_hand = [entry for entry in stopped.seen if entry[1] == 3]
    resumed_at = time.time()
    stopped.process.send_signal(signal.SIGCONT)
    until(lambda: _different([first, stopped, third]) == count, WAIT_S)
    assert [entry for entry in stopped.seen if entry[1] == 3][-1] == in_hand
    assert any(entry[1] == 2 and entry[0] > resumed_at for entry in stopped.seen)
    # What comes again is what was not committed: the message in hand, and those done since the
    # last commit. Commits come every 0.5 s and a message takes 0.3 s, so when the process is
    # stopped between two commits up to two done messages are uncommitted, more under load.
    again = [entry[2] for entry in (*done, in_hand) if entry[2] >= committed]
    assert [entry[2] for entry in third.seen][: len(again)] == again
    assert all(in_hand[0] - entry[0] < COMMITTED_S for entry in done if entry[2] >= committed)
    # of the two messages in its hands nobody else had that of queue 2
    assert (first.stop(), stopped.stop(), third.stop()) == (0, 1, 0)
    assert audit([first, stopped, third]) == (count, len(again))


def _committed(cluster, topic, group, queue_id):
    with Admin(namesrv=cluster.namesrv) as admin:
        offsets = admin.group_offsets(group, topic)
    return next(offset or 0 for queue, offset in offsets.items() if queue.queue_id == queue_id)


def _different(members):
    return len({entry[3] for member in members for entry in member.seen})
