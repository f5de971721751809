"""Finished offsets as runs, against a plain set."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from cometmq.rules.queues import completed_offsets
from cometmq.rules.queues.completed_offsets import CompletedOffsets
from cometmq.rules.queues.offset_journal import JournalState, start_record

offsets = st.integers(0, 60)


@given(st.lists(st.tuples(st.sampled_from(["add", "advance"]), offsets, st.integers(0, 9))))
def test_completed_offsets_agree_with_a_set(steps):
    found, model, base = CompletedOffsets(5), set(range(5)), 5
    for step, at, length in steps:
        if step == "add":
            found.add(at, at + length)
            model |= set(range(at, at + length))
        else:
            found.advance(at)
            base = max(base, at)
            model |= set(range(base))
        assert {offset for offset in range(75) if offset in found} == model
        assert found.base == base
        runs = found.runs
        assert all(start < end for start, end in runs)
        assert all(one[1] < two[0] for one, two in pairwise(runs))


def test_completed_offsets_are_bounded_and_forget_the_highest_first():
    found = CompletedOffsets(0)
    for offset in range(1, 2 * completed_offsets.RUNS_MAX + 100, 2):
        found.add(offset, offset + 1)
    assert len(found.runs) == completed_offsets.RUNS_MAX
    assert found.runs[0] == (1, 2)
    assert len(start_record(JournalState("me", (0,), 0, found, {}))) < 65_535
