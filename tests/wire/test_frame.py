"""Frames come out the same however the stream is cut; garbage comes out as `broken`."""

import tracemalloc
from itertools import pairwise
from struct import pack

from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import ProtocolError
from cometmq.wire.frame import FRAME_BYTES_MAX, Frame, FrameDecoder, encode_frame

frames = st.builds(Frame, st.integers(0, 1), st.binary(max_size=60), st.binary(max_size=200))


def encoded(frame):
    return encode_frame(frame.header, frame.body, frame.serialize_type)


def fed(chunks, decoder=None):
    decoder = decoder or FrameDecoder()
    return [frame for chunk in chunks for frame in decoder.feed(chunk)], decoder


@given(st.lists(frames, max_size=8), st.lists(st.integers(0, 2000)))
def test_any_cut_of_the_stream_gives_the_same_frames(sent, cuts):
    stream = b"".join(map(encoded, sent))
    edges = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    chunks = [stream[a:b] for a, b in pairwise(edges)]
    got, decoder = fed(chunks)
    assert got == sent
    assert decoder.broken is None


@given(st.lists(frames, max_size=5))
def test_a_stream_that_trickles_gives_the_same_frames(sent):
    stream = b"".join(map(encoded, sent))
    got, _ = fed([stream[at : at + 1] for at in range(len(stream))])
    assert got == sent


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_garbage_never_raises_and_nothing_comes_after_a_broken_frame(chunks):
    decoder = FrameDecoder(bytes_max=1000)
    for chunk in chunks:
        was_broken = decoder.broken
        got = decoder.feed(chunk)
        assert not (was_broken and got)
        if was_broken:
            assert decoder.broken is was_broken


def test_an_unfinished_frame_waits_and_then_comes_whole():
    data = encode_frame(b"{}", b"body")
    decoder = FrameDecoder()
    assert decoder.feed(data[:-1]) == []
    assert decoder.feed(b"") == []
    assert decoder.feed(data[-1:] + data[:3]) == [Frame(0, b"{}", b"body")]
    assert decoder.feed(data[3:]) == [Frame(0, b"{}", b"body")]


def test_many_small_pieces_of_one_frame_are_gathered():
    body = bytes(range(256)) * 40
    got, _ = fed([data[i : i + 1] for data in [encode_frame(b"h", body)] for i in range(len(data))])
    assert got == [Frame(0, b"h", body)]


def test_a_long_body_is_copied_once_when_its_frame_is_whole():
    body = bytes(8 << 20)
    chunk = encode_frame(b"h", body)
    decoder = FrameDecoder()
    for at in range(0, len(chunk) - 1, 1 << 16):
        assert decoder.feed(chunk[at : min(at + (1 << 16), len(chunk) - 1)]) == []
    tracemalloc.start()
    (frame,) = decoder.feed(chunk[-1:])
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert frame == Frame(0, b"h", body)
    assert most < len(body) * 5 // 4


def test_the_frame_before_a_broken_one_still_comes():
    good = encode_frame(b"{}", b"x")
    got, decoder = fed([good + pack(">II", 2, 0)])
    assert got == [Frame(0, b"{}", b"x")]
    assert isinstance(decoder.broken, ProtocolError)


def test_a_header_longer_than_its_frame_breaks_the_stream():
    _, decoder = fed([pack(">II", 10, 7)])
    assert "length 10" in str(decoder.broken)


def test_a_negative_length_breaks_the_stream():
    _, decoder = fed([pack(">iI", -5, 0)])
    assert decoder.broken


def test_the_largest_frame_passes_and_one_byte_more_does_not():
    header = b"{}"
    body = bytes(FRAME_BYTES_MAX - 8 - len(header))
    got, decoder = fed([encode_frame(header, body)])
    assert len(got[0].body) == len(body)
    assert decoder.broken is None
    _, decoder = fed([encode_frame(header, body + b"x")[:8]])
    assert decoder.broken


def test_a_tls_hello_is_no_frame():
    _, decoder = fed([bytes.fromhex("16030100f8010000f4")])
    assert decoder.broken
