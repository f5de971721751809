"""The window between pull and commit, as a state machine against a plain model."""

from itertools import cycle
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cometmq.rules.queues.flow_control import FlowLimits, limit_reached
from cometmq.rules.queues.process_queue import ProcessQueue


class Item(NamedTuple):
    queue_offset: int
    body: bytes


class Window(RuleBasedStateMachine):
    """Drives a window by random steps; the model knows the state of every offset."""

    def __init__(self):
        super().__init__()
        self.window = ProcessQueue(100)
        self.waiting, self.in_hand, self.undone = [], [], set()
        self.pulls = []
        self.next_offset = 100

    @rule(
        steps=st.lists(st.integers(1, 3), max_size=12),
        size=st.integers(0, 5),
        beyond=st.integers(0, 4),
    )
    def put(self, steps, size, beyond):
        items, at = [], self.next_offset - 1
        for step in steps:
            at += step
            items.append(Item(at, b"x" * size))
        self.next_offset = at + 1 + beyond
        assert self.window.put(items, self.next_offset) == items
        self.waiting += items
        self.undone.update(item.queue_offset for item in items)
        self.pulls.append(items)

    @rule(data=st.data())
    def done_as_it_came(self, data):
        self.take(len(self.waiting) + 1)
        whole = [pull for pull in self.pulls if pull and set(pull) <= set(self.in_hand)]
        if whole:
            items = list(data.draw(st.sampled_from(whole)))
            self.window.finish(items)
            self.in_hand = [item for item in self.in_hand if item not in items]
            self.undone -= {item.queue_offset for item in items}

    @rule(back=st.integers(1, 5))
    def put_again(self, back):
        stale = [Item(offset, b"") for offset in range(self.next_offset - back, self.next_offset)]
        top = max(self.undone | {self.window._top})
        fresh = [item for item in stale if item.queue_offset > top]
        assert self.window.put(stale, self.next_offset) == fresh
        self.waiting += fresh
        self.undone.update(item.queue_offset for item in fresh)

    @rule(count=st.integers(1, 8))
    def take(self, count):
        taken = self.window.take(count)
        assert taken == self.waiting[:count]
        del self.waiting[: len(taken)]
        self.in_hand += taken

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data())
    def done(self, data):
        items = data.draw(st.lists(st.sampled_from(self.in_hand), unique=True, max_size=5))
        self.window.finish(items)
        for item in items:
            self.in_hand.remove(item)
            self.undone.remove(item.queue_offset)

    @precondition(lambda self: self.in_hand)
    @rule()
    def put_back_all(self):
        items = sorted(self.in_hand)
        self.window.put_back(items)
        self.waiting, self.in_hand = items + self.waiting, []

    @invariant()
    def the_commit_offset_is_the_lowest_undone(self):
        expected = min(self.undone) if self.undone else self.next_offset
        assert self.window.commit_offset == expected

    @invariant()
    def the_counts_are_right(self):
        window = self.window
        items = self.waiting + self.in_hand
        assert window.count == len(items)
        assert window.size_bytes == sum(len(item.body) for item in items)
        assert window.next_offset == self.next_offset
        if self.undone:
            assert window.span >= max(self.undone) - min(self.undone)


TestWindow = Window.TestCase
TestWindow.settings = settings(max_examples=60, stateful_step_count=40)


@pytest.mark.parametrize("count", [3, 5])
def test_a_window_stays_right_when_a_handler_changes_the_bodies_of_its_messages(count):
    class Loose:
        def __init__(self, queue_offset):
            self.queue_offset, self.body = queue_offset, b"12345"

    window, messages = ProcessQueue(0), [Loose(offset) for offset in range(count)]
    window.put(messages, count)
    bodies = cycle([None, {"decoded": 1}, "longer than it was"])
    for message, body in zip(messages, bodies, strict=False):
        message.body = body
    window.finish(window.take(count)[1:])
    assert (window.count, window.size_bytes, window.commit_offset) == (1, 5, 0)
    window.finish(messages[:1])
    assert (window.count, window.size_bytes, window.commit_offset) == (0, 0, count)


def test_what_is_finished_as_it_came_leaves_at_once_and_what_is_not_one_by_one():
    window, offsets = ProcessQueue(0), iter(range(10_000))
    pulls = [[Item(next(offsets), b"12") for _ in range(10)] for _ in range(6)]
    for pull in pulls:
        window.put(pull, pull[-1].queue_offset + 1)
    window.take(60)
    window.finish(pulls[1])
    window.finish(pulls[3][4:])
    assert (window.count, window.size_bytes, window.commit_offset, window.span) == (44, 88, 0, 59)
    window.finish(pulls[0])
    assert (window.commit_offset, window.span) == (20, 39)
    window.finish(list(reversed(pulls[2])))
    assert (window.count, window.commit_offset) == (24, 30)
    window.finish(pulls[5] + pulls[3][:4])
    assert (window.count, window.size_bytes, window.commit_offset) == (10, 20, 40)
    window.finish(pulls[4])
    assert (window.count, window.size_bytes, window.commit_offset, window.span) == (0, 0, 60, 0)


def test_a_window_is_full_beyond_any_of_its_limits():
    limits = FlowLimits(count=10, size_mib=1, span=100)
    assert not limit_reached(limits, 10, 1_048_576, 100, orderly=False)
    assert limit_reached(limits, 11, 0, 0, orderly=False) == "count"
    assert limit_reached(limits, 0, 1_048_577, 0, orderly=False) == "size"
    assert limit_reached(limits, 0, 0, 101, orderly=False) == "span"
    assert not limit_reached(limits, 0, 0, 101, orderly=True)
