"""Ranges of offsets that a table holds."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq import MessageQueue
from cometmq.spark.tables.archived_ranges import ArchivedQueues, ArchivedRanges

QUEUE = MessageQueue("T", "broker-a", 3)


@given(st.integers(0, 9), st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=9))
def test_ranges_grow_at_their_end_and_count_every_offset_once(first, steps):
    one, offsets = ArchivedRanges(((first, first + 1),), 1, 0), {first}
    for gap, length in steps:
        begin = one.end + gap
        one = one.extended(begin, begin + length, length, 1)
        offsets |= set(range(begin, begin + length))
    assert one.offsets == one.rows == len(offsets)
    assert (one.begin, one.end - 1) == (min(offsets), max(offsets))
    assert one.misfits == len(steps)
    lost = {each for begin, end in one.holes for each in range(begin, end)}
    assert lost == set(range(one.begin, one.end)) - offsets
    assert all(
        end < begin for (_, end), (begin, _) in zip(one.ranges, one.ranges[1:], strict=False)
    )


def test_a_range_that_was_archived_already_is_refused():
    with pytest.raises(AssertionError):
        ArchivedRanges(((0, 5),)).extended(4, 6, 2, 0)


def test_queues_survive_json_and_keep_what_was_not_extended():
    other = MessageQueue("U", "b:c", 0)
    one = ArchivedQueues(
        {QUEUE: ArchivedRanges(((0, 5),), 5, 1), other: ArchivedRanges(((7, 8),))}, 9
    )
    more = one.extended({QUEUE: ArchivedRanges(((6, 7),), 1, 0)}, 4)
    assert more.queues[QUEUE] == ArchivedRanges(((0, 5), (6, 7)), 6, 1)
    assert more.queues[other] == one.queues[other]
    assert more.last_store_ms == 9, "it never goes back"
    assert ArchivedQueues.from_json(json.loads(json.dumps(more.as_json()))) == more
