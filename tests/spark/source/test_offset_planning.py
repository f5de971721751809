"""Planning: how far a batch goes, which ranges it has, how they are packed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import QueueShrank
from cometmq.spark.source.offset_planning import (
    OffsetRange,
    fair_shares,
    offset_key,
    pack_partitions,
    parse_offset_key,
    plan_end,
    plan_ranges,
    require_no_loss,
)

KEYS = [offset_key(broker, at) for broker in ("b0", "b-1:x") for at in range(4)]
OFFSETS = st.dictionaries(st.sampled_from(KEYS), st.integers(0, 50))


def test_a_key_names_broker_and_queue_whatever_the_broker_is_called() -> None:
    assert parse_offset_key(offset_key("b-1:x", 12)) == ("b-1:x", 12)
    for wrong in ("b0", "b0:", ":3", "b0:-1", "b0:x"):
        with pytest.raises(ValueError, match="broker:queueId"):
            parse_offset_key(wrong)


@given(OFFSETS, OFFSETS, st.none() | st.integers(0, 60))
def test_a_batch_never_goes_back_never_drops_a_queue_and_obeys_its_limit(
    start: dict[str, int], latest_offsets: dict[str, int], limit: int | None
) -> None:
    earliest_offsets = {key: latest_offsets[key] // 2 for key in latest_offsets}
    end = plan_end(start, latest_offsets, earliest_offsets, limit)
    assert list(end) == sorted(start.keys() | latest_offsets.keys())
    for key, hi in end.items():
        if key in start:
            assert start[key] <= hi <= max(start[key], latest_offsets.get(key, 0))
        else:
            assert hi == earliest_offsets[key]
    rows = sum(one.end - one.begin for one in plan_ranges(start, end))
    available = sum(max(0, latest_offsets.get(key, 0) - start[key]) for key in start)
    assert rows == (available if limit is None else min(limit, available))


@given(OFFSETS, OFFSETS, st.integers(1, 20))
def test_batches_reach_the_heads_and_then_stand_still(
    start: dict[str, int], latest_offsets: dict[str, int], limit: int
) -> None:
    at = start
    for _ in range(1000):
        end = plan_end(at, latest_offsets, dict.fromkeys(latest_offsets, 0), limit)
        if end == at:
            break
        at = end
    assert all(at[key] == max(latest, start.get(key, 0)) for key, latest in latest_offsets.items())


def test_a_queue_that_appears_enters_at_its_beginning_and_is_read_next() -> None:
    start, latest_offsets, earliest_offsets = {"b0:0": 5}, {"b0:0": 9, "b0:1": 30}, {"b0:1": 10}
    first = plan_end(start, latest_offsets, earliest_offsets)
    assert first == {"b0:0": 9, "b0:1": 10}
    assert plan_ranges(start, first) == [OffsetRange("b0", 0, 5, 9)]
    second = plan_end(first, latest_offsets, {})
    assert plan_ranges(first, second) == [OffsetRange("b0", 1, 10, 30)]


def test_a_queue_whose_broker_is_away_keeps_its_place() -> None:
    assert plan_end({"b0:0": 5, "b1:0": 7}, {"b0:0": 6}, {}) == {"b0:0": 6, "b1:0": 7}


def test_small_queues_are_read_whole_and_none_starves_under_a_tiny_limit() -> None:
    assert fair_shares({"a": 1, "b": 100, "c": 100}, 21) == {"a": 1, "b": 10, "c": 10}
    backlog = {"a": 3, "b": 4, "c": 5, "d": 6}
    while any(backlog.values()):
        waiting = {key: left for key, left in backlog.items() if left}
        shares = fair_shares(waiting, 1)
        assert sum(shares.values()) == 1
        assert waiting[max(shares, key=shares.__getitem__)] == max(waiting.values())
        backlog = {key: left - shares.get(key, 0) for key, left in backlog.items()}


def test_a_queue_that_ends_before_its_place_is_an_error_that_names_it() -> None:
    require_no_loss("T", {"b0:0": 5}, {"b0:0": 5, "b0:1": 0})
    with pytest.raises(
        QueueShrank, match=r"queue b0:0 of topic T ends at 4.*up to 5.*failOnDataLo"
    ):
        require_no_loss("T", {"b0:0": 5}, {"b0:0": 4})


RANGES = st.lists(
    st.tuples(st.sampled_from(["b0", "b1"]), st.integers(0, 9), st.integers(0, 99)),
    unique_by=lambda one: one[:2],
).map(lambda drawn: [OffsetRange(b, q, 5, 6 + size) for b, q, size in drawn])


@given(RANGES, st.integers(1, 5))
def test_packing_keeps_every_range_once_and_no_partition_is_empty(
    ranges: list[OffsetRange], slots: int
) -> None:
    packed = pack_partitions(ranges, slots)
    assert sorted(one for part in packed for one in part) == sorted(ranges)
    assert len(packed) == min(slots, len(ranges))
    assert all(part and part == sorted(part) for part in packed)
    assert packed == pack_partitions(list(reversed(ranges)), slots)


def test_packing_balances_by_messages_not_by_queues() -> None:
    sizes = [60, 30, 20, 10]
    packed = pack_partitions([OffsetRange("b", at, 0, size) for at, size in enumerate(sizes)], 2)
    assert [[one.queue_id for one in part] for part in packed] == [[0], [1, 2, 3]]
