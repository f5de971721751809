"""Bodies are inflated up to a bound, whatever they claim to be."""

import tracemalloc
import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import InvalidMessage
from cometmq.wire.compression import inflate

LIMIT = 1 << 20
_ZSTD = zstandard.ZstdCompressor()
WAYS = {0x301: zlib.compress, 0x101: lz4.frame.compress, 0x201: _ZSTD.compress}
each_way = pytest.mark.parametrize("sys_flag", WAYS)


@each_way
@given(body=st.binary(max_size=3000), limit=st.integers(1, 3000))
def test_what_fits_comes_out_and_what_does_not_is_refused(sys_flag, body, limit):
    packed = WAYS[sys_flag](body)
    if len(body) <= limit:
        assert inflate(packed, sys_flag, limit) == body
    else:
        with pytest.raises(InvalidMessage, match=f"larger than {limit} bytes"):
            inflate(packed, sys_flag, limit)


@each_way
def test_a_decompression_bomb_costs_no_more_memory_than_the_limit(sys_flag):
    packed = WAYS[sys_flag](b"\0" * (64 * LIMIT))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidMessage, match="larger than"):
            inflate(packed, sys_flag, LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 4 * LIMIT
    finally:
        tracemalloc.stop()


@each_way
@given(cut=st.integers(1, 20))
def test_a_body_that_is_cut_short_is_refused(sys_flag, cut):
    packed = WAYS[sys_flag](bytes(range(256)) * 20)
    with pytest.raises(InvalidMessage):
        inflate(packed[:-cut], sys_flag, LIMIT)


def test_a_zstandard_frame_that_claims_a_huge_window_is_refused():
    options = {"window_log": 27, "write_content_size": False}
    packer = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters.from_level(3, **options)
    ).compressobj()
    packed = packer.compress(b"small") + packer.flush()
    with pytest.raises(InvalidMessage):
        inflate(packed, 0x201, LIMIT)
