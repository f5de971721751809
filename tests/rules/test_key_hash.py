"""From a sharding key's hash code to a queue."""

import pytest

from cometmq.rules.key_hash import long_hash, queue_index


@pytest.mark.parametrize(
    ("code", "count", "index"),
    [(-392_797_389, 4, 1), (-(2**31), 3, 2), (-(2**31), 16, 0), (7, 4, 3), (0, 1, 0)],
)
def test_a_hash_code_chooses_the_queue_that_java_chooses(code, count, index):
    assert queue_index(code, count) == index


@pytest.mark.parametrize(
    ("value", "code"),
    [(0, 0), (1, 1), (-1, 0), (2**32, 1), (2**63 - 1, -(2**31)), (-(2**63), -(2**31))],
)
def test_a_long_hashes_as_in_java(value, code):
    assert long_hash(value) == code
