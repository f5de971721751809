"""Offsets that are missing between records, found in vectors."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cometmq.model.queue import MessageQueue
from cometmq.spark.source.record_gaps import missing_offsets

QUEUES = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(3)]
answers = st.lists(
    st.tuples(st.sampled_from(QUEUES), st.sets(st.integers(0, 12)), st.integers(0, 4)), min_size=1
)


@given(answers)
def test_all_between_the_first_record_of_an_answer_and_the_next_answer_is_missing_or_there(
    given: list[tuple[MessageQueue, set[int], int]],
) -> None:
    nexts = [max(there, default=0) + 1 + more for _, there, more in given]
    answer_of = [at for at, (_, there, _) in enumerate(given) for _ in there]
    offsets = [offset for _, there, _ in given for offset in sorted(there)]
    found = missing_offsets(
        [queue for queue, _, _ in given],
        nexts,
        np.array(answer_of, np.int64),
        np.array(offsets, np.int64),
    )
    expected: dict[MessageQueue, list[int]] = {}
    for (queue, there, _), end in zip(given, nexts, strict=True):
        if missing := sorted(set(range(min(there), end)) - there) if there else []:
            expected.setdefault(queue, []).extend(missing)
    assert {q: [at for gap in gaps for at in gap] for q, gaps in found.items()} == expected
