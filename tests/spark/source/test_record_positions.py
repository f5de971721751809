"""Where records begin is found alike by all ways."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.errors import ProtocolError
from cometmq.spark.source import record_positions
from cometmq.spark.source.record_positions import record_heads
from spark.scripted import record

BODY = st.one_of(st.binary(max_size=20), st.just(b"\xda\xa3\x20\xa7" * 5), st.just(record(1, 1)))


@given(st.lists(BODY, min_size=1, max_size=9), st.sampled_from([3, 64, 131_072]))
@settings(max_examples=60)
def test_the_places_are_those_that_the_sizes_lead_to(bodies: list[bytes], part: int) -> None:
    records = [record(0, at, body=body) for at, body in enumerate(bodies)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_positions, "_PART_BYTES", part)
        starts, heads = record_heads(b"".join(records))
    sizes = [len(one) for one in records]
    assert starts.tolist() == [sum(sizes[:at]) for at in range(len(sizes))]
    assert heads["size"].tolist() == sizes
    assert heads["queue_offset"].tolist() == list(range(len(sizes)))
    assert heads["body_size"].tolist() == [len(body) for body in bodies]
    assert np.array_equal(starts, record_positions.record_starts(b"".join(records)))


def test_a_record_that_is_cut_short_is_refused() -> None:
    data = record(0, 0, body=b"a") + record(0, 1)
    for end in (1, 60, len(data) - 1):
        with pytest.raises(ProtocolError):
            record_heads(data[:end])
