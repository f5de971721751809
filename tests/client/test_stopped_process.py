"""A member whose process stands still: its queues, its locks, and what its handler did."""

import signal
import time
from collections import defaultdict
from itertools import pairwise

import pytest

from client.served import until
from client.team import Source, audit, queues_of

PAUSE_S = 0.02
LOCK_VALID_S, LOCK_EXPIRE_S = 2.0, 3.0  # of the members and of the broker: 30 and 60 s in life

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
def load(served):
    started = []

    def start(topic):
        started.append(Source(served, topic, pause_s=0.3))
        started[-1].start()
        return started[-1]

    yield start
    for one in started:
        one.end()


def stand_still(member, seconds):
    member.process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    member.process.send_signal(signal.SIGCONT)


def runs(team):
    """The calls of the handlers by queue: when each began, and whose it was."""
    found = defaultdict(list)
    for who, member in enumerate(team):
        for began, queue_id, offset, _ in member.seen:
            found[queue_id].append((began, who, offset))
    return {queue_id: sorted(calls) for queue_id, calls in found.items()}


def test_after_short_pauses_no_queue_was_in_two_places(served, make_topic, group, members, load):
    topic = make_topic(served, 4)
    told = {"namesrv": served.namesrv, "topic": topic, "group": group, "pause_s": PAUSE_S}
    source = load(topic)
    one = members(**told)
    until(lambda: len(queues_of(one)) == 4)
    other = members(**told)
    until(lambda: len(queues_of(other)) == 2)
    for member in (one, other, one):
        stand_still(member, LOCK_VALID_S * 0.6)
        time.sleep(0.3)
    count = source.end()
    until(lambda: audit([one, other])[0] == count)
    assert one.stop() == other.stop() == 0
    assert audit([one, other]) == (count, 0)
    for calls in runs([one, other]).values():
        for (began, who, _), (then, whose, _) in pairwise(calls):
            assert who == whose or then >= began + PAUSE_S


def test_after_a_long_pause_nothing_is_begun_and_doubtful_results_are_counted(
    served, make_topic, group, members, load
):
    topic = make_topic(served, 4)
    told = {"namesrv": served.namesrv, "topic": topic, "group": group, "pause_s": 0.3}
    source = load(topic)
    until(lambda: source.count >= 160)
    count = source.end()
    first = members(instance_name="a", **told)
    stopped = members(instance_name="b", **told)
    until(lambda: queues_of(first) >= {0, 1} and queues_of(stopped) >= {2, 3})
    time.sleep(0.5)  # a round of rebalance may still be under way
    stopped.process.send_signal(signal.SIGSTOP)
    third = members(instance_name="c", **told)  # which shall have the queue 3
    until(lambda: queues_of(third) == {3})  # once the broker's lock has run out
    in_hand = [entry for entry in stopped.seen if entry[1] == 3][-1]
    resumed_at = time.time()
    stopped.process.send_signal(signal.SIGCONT)
    until(lambda: _different([first, stopped, third]) == count, 60)
    assert [entry for entry in stopped.seen if entry[1] == 3][-1] == in_hand
    assert any(entry[1] == 2 and entry[0] > resumed_at for entry in stopped.seen)
    assert in_hand[3] in {entry[3] for entry in third.seen}
    # of the two messages in its hands nobody else had that of queue 2
    assert (first.stop(), stopped.stop(), third.stop()) == (0, 1, 0)
    assert audit([first, stopped, third]) == (count, 1)


def _different(team):
    return len({entry[3] for member in team for entry in member.seen})
