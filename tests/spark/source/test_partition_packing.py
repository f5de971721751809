"""Packing ranges into partitions: whole queues by default, cut ones on request."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cometmq.model.queue import MessageQueue
from cometmq.spark.source import source_options
from cometmq.spark.source.offset_planning import OffsetRange
from cometmq.spark.source.partition_packing import cut, pack, partitions_of

RANGES = st.lists(
    st.tuples(st.sampled_from(["b0", "b1"]), st.integers(0, 9), st.integers(0, 99)),
    unique_by=lambda one: one[:2],
).map(lambda drawn: [OffsetRange(MessageQueue("T", b, q), 5, 6 + size) for b, q, size in drawn])


def messages(ranges: list[OffsetRange]) -> list[tuple[MessageQueue, int]]:
    return [(one.queue, at) for one in ranges for at in range(one.begin, one.end)]


@given(RANGES, st.integers(1, 5))
def test_packing_keeps_every_range_once_and_no_partition_is_empty(
    ranges: list[OffsetRange], slots: int
) -> None:
    packed = pack(ranges, slots)
    assert sorted(one for part in packed for one in part) == sorted(ranges)
    assert len(packed) == min(slots, len(ranges))
    assert all(part and part == sorted(part) for part in packed)
    assert packed == pack(list(reversed(ranges)), slots)


def test_packing_balances_by_messages_not_by_queues() -> None:
    sizes = [60, 30, 20, 10]
    queues = [MessageQueue("T", "b", at) for at in range(4)]
    packed = pack([OffsetRange(*pair) for pair in zip(queues, [0] * 4, sizes, strict=True)], 2)
    assert [[one.queue.queue_id for one in part] for part in packed] == [[0], [1, 2, 3]]


@given(RANGES, st.integers(1, 30))
def test_cutting_keeps_every_message_once_in_parts_of_equal_size(
    ranges: list[OffsetRange], parts: int
) -> None:
    made = cut(ranges, parts)
    assert [one for part in made for one in messages(part)] == sorted(messages(ranges))
    sizes = [len(messages(part)) for part in made]
    assert len(made) == min(parts, len(messages(ranges)))
    assert not sizes or max(sizes) - min(sizes) <= 1


def test_a_hot_queue_is_split_only_on_request() -> None:
    hot = [OffsetRange(MessageQueue("T", "b", 0), 0, 1000)]

    def sizes(**more: str) -> list[int]:
        given = {"namesrv": "a:1", "topic": "T", "slots": "2", **more}
        return [len(messages(part)) for part in partitions_of(hot, source_options.parse(given))]

    assert sizes() == [1000]
    assert sizes(minPartitions="4") == [250] * 4
    assert sizes(maxRecordsPerPartition="400") == [333, 333, 334]
    assert sizes(minPartitions="2", maxRecordsPerPartition="1000") == [500, 500]
    assert partitions_of([], source_options.parse({"namesrv": "a:1", "topic": "T"})) == []


def test_queues_stay_whole_when_there_are_enough_of_them() -> None:
    ranges = [OffsetRange(MessageQueue("T", "b", at), 0, 10 * at + 1) for at in range(6)]
    given = {"namesrv": "a:1", "topic": "T", "slots": "2", "minPartitions": "6"}
    packed = partitions_of(ranges, source_options.parse(given))
    assert sorted(packed) == [[one] for one in ranges]
