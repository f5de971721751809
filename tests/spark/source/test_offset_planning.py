"""Planning: how far a batch goes, and which ranges it has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cometmq.model.admin_stats import TopicOffset
from cometmq.model.queue import MessageQueue
from cometmq.spark.source.offset_planning import (
    BatchLimits,
    OffsetRange,
    fair_shares,
    plan_end,
    plan_ranges,
    shrunk_queues,
)
from cometmq.spark.source.planned_offsets import PlannedOffsets, QueueOffsets

QUEUES = [MessageQueue("T", broker, at) for broker in ("b0", "b1") for at in range(4)]
Q0, Q1, Q2, Q3 = QUEUES[:4]
OFFSETS = st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 50))


def positions(
    latest: QueueOffsets, earliest: QueueOffsets | None = None
) -> dict[MessageQueue, TopicOffset]:
    return {
        queue: TopicOffset(
            min_offset=(earliest or {}).get(queue, end // 2),
            max_offset=end,
            last_update_timestamp=1000 + end,
        )
        for queue, end in latest.items()
    }


@given(OFFSETS, OFFSETS, st.none() | st.integers(0, 60))
def test_a_batch_never_goes_back_never_drops_a_queue_and_obeys_its_limit(
    start: QueueOffsets, latest: QueueOffsets, limit: int | None
) -> None:
    planned = plan_end(PlannedOffsets(start, 7), positions(latest), BatchLimits(rows=limit))
    end = planned.queues
    assert end.keys() == start.keys() | latest.keys()
    for queue, hi in end.items():
        if queue in start:
            assert start[queue] <= hi <= max(start[queue], latest.get(queue, 0))
        else:
            assert hi == latest[queue] // 2
    rows = sum(one.end - one.begin for one in plan_ranges(start, end))
    available = sum(max(0, latest.get(queue, 0) - start[queue]) for queue in start)
    assert rows == (available if limit is None else min(limit, available))
    newest = max([7, *(1000 + hi for hi in latest.values())])
    assert planned.last_store_ms == (7 if end == start else newest)


@given(OFFSETS, OFFSETS, st.integers(1, 20))
def test_batches_reach_the_ends_and_then_read_nothing_more(
    start: QueueOffsets, latest: QueueOffsets, limit: int
) -> None:
    at = PlannedOffsets(start)
    for _ in range(1000):
        end = plan_end(at, positions(latest), BatchLimits(rows=limit))
        if end is at:
            break
        at = end
    assert all(at.queues[queue] == max(hi, start.get(queue, 0)) for queue, hi in latest.items())


def test_a_queue_that_appears_enters_at_its_beginning_and_is_read_next() -> None:
    start, latest = PlannedOffsets({Q0: 5}), positions({Q0: 9, Q1: 30}, {Q1: 10})
    first = plan_end(start, latest)
    assert first.queues == {Q0: 9, Q1: 10}
    assert plan_ranges(start.queues, first.queues) == [OffsetRange(Q0, 5, 9)]
    second = plan_end(first, latest)
    assert plan_ranges(first.queues, second.queues) == [OffsetRange(Q1, 10, 30)]


def test_a_queue_whose_broker_is_left_out_keeps_its_place() -> None:
    start = PlannedOffsets({Q0: 5, Q3: 7})
    assert plan_end(start, positions({Q0: 6})).queues == {Q0: 6, Q3: 7}


def test_a_limit_on_bytes_counts_messages_by_their_size_and_none_starves() -> None:
    start, latest = PlannedOffsets({Q0: 0, Q1: 0}), positions({Q0: 1000, Q1: 1000})
    sizes = {Q0: 100, Q1: 400}
    assert plan_end(start, latest, BatchLimits(bytes=80_000), sizes).queues == {Q0: 400, Q1: 100}
    assert plan_end(start, latest, BatchLimits(bytes=50), sizes).queues == {Q0: 1, Q1: 1}
    assert plan_end(start, latest, BatchLimits(bytes=1), sizes).queues == {Q0: 0, Q1: 1}
    both = plan_end(start, latest, BatchLimits(bytes=80_000, rows=50), sizes)
    assert both.queues == {Q0: 25, Q1: 25}


def test_small_queues_are_read_whole_and_none_starves_under_a_tiny_limit() -> None:
    assert fair_shares({Q0: 1, Q1: 100, Q2: 100}, 21) == {Q0: 1, Q1: 10, Q2: 10}
    backlog = {Q0: 3, Q1: 4, Q2: 5, Q3: 6}
    while any(backlog.values()):
        waiting = {queue: left for queue, left in backlog.items() if left}
        shares = fair_shares(waiting, 1)
        assert sum(shares.values()) == 1
        assert waiting[max(shares, key=shares.__getitem__)] == max(waiting.values())
        backlog = {queue: left - shares.get(queue, 0) for queue, left in backlog.items()}


def test_a_queue_that_ends_before_its_place_is_named() -> None:
    assert shrunk_queues({Q0: 5, Q2: 0}, positions({Q0: 5, Q1: 0})) == {}
    found = shrunk_queues({Q0: 5, Q1: 3}, positions({Q0: 4}))
    assert found.keys() == {Q0, Q1}
    assert "queue T@b0/0 ends at 4, but was read up to 5" in found[Q0]
    assert "queue T@b0/1 is no longer there, but was read up to 3" in found[Q1]
    assert "failOnDataLoss=false" in found[Q0]
