"""The lanes of a queue, as a state machine against the rule they promise."""

from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cometmq.rules.queues.key_lanes import BARRIER, KeyLanes


class Item(NamedTuple):
    queue_offset: int
    key: object
    body: bytes = b""


class Lanes(RuleBasedStateMachine):
    """The model is the list of unfinished messages: what may begin is read off it each time."""

    def __init__(self):
        super().__init__()
        self.lanes = KeyLanes()
        self.undone, self.in_hand, self.resting = [], [], {}
        self.offset, self.now = 0, 0.0

    def may_begin(self, item):
        before = [other for other in self.undone if other.queue_offset < item.queue_offset]
        if item.key is BARRIER:
            return not before
        return all(other.key not in (item.key, BARRIER) for other in before)

    @rule(key=st.sampled_from(["a", "b", "c", BARRIER]))
    def put(self, key):
        item = Item(self.offset, key)
        self.offset += 1
        self.lanes.put(key, item)
        self.undone.append(item)

    @rule(most=st.integers(1, 3))
    def take(self, most):
        lane = self.lanes.take(self.now)
        busy = {lane.key for lane, _ in self.in_hand}
        free = [
            item
            for item in self.undone
            if self.may_begin(item)
            and item.key not in busy
            and self.resting.get(item.key, 0.0) <= self.now
        ]
        if lane is None:
            assert not free, "something could be handled and was not offered"
            return
        head = lane.head(most)
        assert head[0] in free
        own = [item for item in self.undone if item.key == lane.key]
        assert head == own[: len(head)], "a key overtook itself"
        self.in_hand.append((lane, head))

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data(), rest=st.none() | st.integers(1, 5))
    def give_back(self, data, rest):
        lane, head = self.in_hand.pop(data.draw(st.integers(0, len(self.in_hand) - 1)))
        done = data.draw(st.integers(0, len(head)))
        self.lanes.finish(lane, done)
        for item in head[:done]:
            self.undone.remove(item)
        until = None if rest is None else self.now + rest
        self.lanes.release(lane, until)
        self.resting[lane.key] = until or 0.0 if lane.waiting else 0.0  # an empty one is gone

    @rule()
    def wait(self):
        self.now += 1

    @invariant()
    def the_next_wake_is_the_first_of_those_that_rest(self):
        assert self.lanes.count == len(self.undone)
        wake = self.lanes.next_wake_at()
        assert wake is None or wake in self.resting.values()


TestLanes = Lanes.TestCase
TestLanes.settings = settings(max_examples=100, stateful_step_count=50)


def test_a_paused_key_holds_up_no_other_key():
    lanes = KeyLanes()
    for offset in range(6):
        lanes.put("stuck" if offset % 3 == 0 else f"key-{offset}", Item(offset, None))
    stuck = lanes.take(0.0)
    lanes.release(stuck, rest_until=60.0)
    others = []
    while lane := lanes.take(1.0):
        others.append(lane.key)
        lanes.finish(lane, 1)
        lanes.release(lane)
    assert others == ["key-1", "key-2", "key-4", "key-5"]
    assert (lanes.next_wake_at(), lanes.count) == (60.0, 2)
    assert lanes.take(60.0) is stuck


def test_only_what_is_in_hand_can_be_finished():
    lanes = KeyLanes()
    lanes.put("a", Item(0, "a"))
    lane = lanes.take(0.0)
    with pytest.raises(AssertionError):
        lanes.finish(lane, 2)
    lanes.release(lane)
    with pytest.raises(AssertionError):
        lanes.finish(lane, 1)
