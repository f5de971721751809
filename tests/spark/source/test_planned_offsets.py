"""The JSON of offsets: what checkpoints hold, of this version and of the first."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.model.queue import MessageQueue
from cometmq.spark.source.planned_offsets import PlannedOffsets, decode, encode

QUEUES = st.builds(
    MessageQueue, st.sampled_from(["T", "U", "version"]), st.sampled_from(["b", "b:1"]),
    st.integers(0, 12),
)  # fmt: skip
PLANNED = st.builds(
    PlannedOffsets, st.dictionaries(QUEUES, st.integers(0, 99)), st.integers(0, 2**50)
)


@given(PLANNED)
def test_what_is_written_is_read_and_equal_offsets_give_equal_text(planned: PlannedOffsets) -> None:
    text = json.dumps(encode(planned))
    assert decode(json.loads(text), "") == planned
    backwards = dict(reversed(planned.queues.items()))
    assert json.dumps(encode(PlannedOffsets(backwards, planned.last_store_ms))) == text


def test_offsets_are_written_with_their_version_and_time() -> None:
    queues = {MessageQueue("T", "b", 10): 4, MessageQueue("T", "b", 9): 3}
    assert json.dumps(encode(PlannedOffsets(queues, 17))) == (
        '{"version": 2, "lastStoreTime": 17, "topics": {"T": {"b:9": 3, "b:10": 4}}}'
    )


def test_the_first_version_is_read_by_a_query_over_one_topic() -> None:
    old = {"b:0": 3, "b:1": 0}
    assert decode(old, "T").queues == {MessageQueue("T", "b", 0): 3, MessageQueue("T", "b", 1): 0}
    assert decode({}, "") == PlannedOffsets()
    with pytest.raises(ValueError, match="for a read of one topic"):
        decode(old, "")


def test_a_later_version_is_refused_and_so_is_half_of_one() -> None:
    with pytest.raises(ValueError, match="version 3, written by another release"):
        decode({"version": 3, "topics": {}}, "T")
    for half in ({"version": 2}, {"version": 2, "topics": {}, "lastStoreTime": None}):
        with pytest.raises(ValueError, match="need topics, and a number as lastStoreTime"):
            decode(half, "T")


def test_a_log_entry_of_ten_thousand_queues_takes_twenty_bytes_a_queue() -> None:
    queues = {MessageQueue("T", "broker-a", at): 12_345 for at in range(10_000)}
    assert len(json.dumps(encode(PlannedOffsets(queues, 1_700_000_000_000)))) < 240_000
