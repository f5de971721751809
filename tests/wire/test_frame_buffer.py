"""The memory a socket reads into gives the frames that the decoder of chunks gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.wire import frame_buffer
from cometmq.wire.frame import FRAME_BYTES_MAX, FrameDecoder, encode_frame
from cometmq.wire.frame_buffer import FrameBuffer

frames = st.builds(encode_frame, st.binary(max_size=30), st.binary(max_size=200), st.integers(0, 1))
spoilt = st.builds(bytes.__add__, frames, st.binary(min_size=8, max_size=40))


def read(buffer, data, most):
    """What comes out when the socket gives at most so many bytes at a time."""
    found = []
    while data and not buffer.broken:
        room = buffer.room()
        assert len(room), "a socket must always have room"
        count = min(len(room), most, len(data))
        room[:count], data = data[:count], data[count:]
        buffer.came(count)
        while (frame := buffer.next()) is not None:
            found.append((frame.serialize_type, frame.header, bytes(frame.body)))
    return found


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Rooms so small that every frame is worth a move."""
    monkeypatch.setattr(frame_buffer, "LEAST_BYTES", 64)
    monkeypatch.setattr(frame_buffer, "KEPT_BYTES", 256)


@given(st.lists(frames | spoilt, max_size=12), st.integers(1, 500), st.sampled_from([100, 1 << 20]))
def test_however_a_stream_is_read_the_frames_are_the_same(found, most, bytes_max):
    stream = b"".join(found)
    buffer, decoder = FrameBuffer(bytes_max), FrameDecoder(bytes_max)
    expected = [tuple(frame) for frame in decoder.feed(stream)]
    assert read(buffer, stream, most) == expected
    assert str(buffer.broken) == str(decoder.broken)


@given(st.lists(frames, min_size=1, max_size=8), st.data())
def test_whole_frames_may_be_read_where_they_lie(found, data):
    count = data.draw(st.integers(0, len(found)))
    buffer = FrameBuffer()
    rest = stream = b"".join(found)
    while rest:
        room = buffer.room()
        part = rest[: min(40, len(room))]
        room[: len(part)], rest = part, rest[len(part) :]
        buffer.came(len(part))
    assert bytes(buffer.chunk()) == stream
    buffer.skip(sum(map(len, found[:count])))
    rest = []
    while (frame := buffer.next()) is not None:
        rest.append(encode_frame(frame.header, bytes(frame.body), frame.serialize_type))
    assert rest == found[count:]


def test_the_buffer_grows_with_received_bytes_and_not_with_the_announced_length():
    buffer = FrameBuffer()
    head = encode_frame(b"", bytes(FRAME_BYTES_MAX - 8))[:8]
    assert read(buffer, head, 8) == []
    assert len(buffer.room()) < 200


def test_a_large_buffer_is_released_once_its_frame_is_read():
    buffer = FrameBuffer()
    assert len(read(buffer, encode_frame(b"h", bytes(5000)), 100)) == 1
    assert len(buffer.room()) == 64
