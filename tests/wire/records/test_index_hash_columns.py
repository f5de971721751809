"""The hashes of a column of keys are those of each key alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cometmq.wire.java_hash import hash_from
from cometmq.wire.records.index_file_layout import stored_hash
from cometmq.wire.records.index_hash_columns import COUNT_MAX, LENGTH_MAX, stored_hashes


@given(
    st.integers(1, LENGTH_MAX),
    st.integers(1, COUNT_MAX),
    st.sampled_from([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]) | st.integers(0, 0xFFFFFFFF),
    st.randoms(use_true_random=False),
)
def test_a_column_has_the_hashes_of_its_keys(length, count, seed, random):
    keys = [bytes(random.choices(range(128), k=length)) for _ in range(count)]
    expected = [stored_hash(hash_from(seed, key)) for key in keys]
    assert list(stored_hashes(seed, keys, length)) == expected


def test_the_least_number_of_java_is_stored_as_zero():
    """Its hash has no counterpart above zero, so Java's `abs` leaves it and RocketMQ stores 0."""
    seed = 0x80000000 * pow(31, -1, 1 << 32) % (1 << 32)
    assert stored_hashes(seed, [b"\0", b"\1"], 1) == (0, 0x7FFFFFFF)
