"""Frames matched together say what each of them says alone, and end where they end."""

from hypothesis import given
from hypothesis import strategies as st

from cometmq.wire.frame import FrameDecoder, encode_frame
from cometmq.wire.templates.send_template import SendTemplates
from wire.templates.send_headers import (
    KEY,
    assert_says_the_same,
    decoded,
    match,
    plain,
    send,
    sends,
)

BODY_MAX = 1_000


def like(number, **more):
    """The header of one message of many."""
    extra = f"KEYS\x01order-{number:04}\x02"
    return send(
        queue_id=str(number % 10), opaque=100 + number, key=KEY % number, extra=extra, **more
    )


def ready(header):
    """Templates that know this header."""
    templates = SendTemplates()
    templates.match_or_learn(header)
    assert match(templates, header)
    return templates


def run_at(templates, chunk, at=0):
    """The run that begins with the frame at a place of the chunk, whose header must match."""
    length = int.from_bytes(chunk[at + 4 : at + 8], "big")
    found = templates.match_at(chunk, at + 8, at + 8 + length)
    if found is None:
        return None
    template, values = found
    return template.run_at(chunk, at, values, BODY_MAX)


def chunk_of(headers, bodies):
    return b"".join([encode_frame(*pair) for pair in zip(headers, bodies, strict=True)])


def assert_is_whole(templates, run, chunk, at=0):
    """What the run says is what the decoders say of as many frames."""
    frames = FrameDecoder().feed(chunk[at:])[: len(run.ends)]
    assert len(frames) == len(run.bodies) == len(run.ends) >= 2
    texts = zip(*run.texts, strict=True)
    rows = zip(run.queue_ids, run.born_ms, run.opaques, texts, strict=True)
    for frame, body, end, row in zip(frames, run.bodies, run.ends, rows, strict=True):
        at += 8 + len(frame.header) + len(frame.body)
        assert (frame.body, at) == (body, end)
        fields = match(templates, frame.header)
        assert_says_the_same(fields, frame.header)
        opaque = b"%d" % fields.opaque
        assert row == (fields.queue_id, fields.born_timestamp, opaque, fields.texts)


def test_frames_of_one_layout_are_taken_together_whatever_their_bodies():
    headers = [like(number) for number in range(20)]
    chunk = chunk_of(headers, [b"x" * (1 + 37 * number) for number in range(20)])
    templates = ready(headers[0])
    run = run_at(templates, chunk)
    assert len(run.ends) == 20
    assert_is_whole(templates, run, chunk)


def test_a_frame_of_another_layout_ends_the_batch():
    headers = [like(number) for number in range(5)]
    for other in (send(tags="TagB"), like(5, topic="T2"), like(5, flag=2), like(5, code=10)):
        bodies = [b"body"] * 7
        chunk = chunk_of([*headers, other, like(6)], bodies)
        templates = ready(headers[0])
        run = run_at(templates, chunk)
        assert len(run.ends) == 5
        assert_is_whole(templates, run, chunk)


def test_a_body_that_is_empty_or_too_long_ends_the_batch():
    headers = [like(number) for number in range(5)]
    for body in (b"", b"x" * (BODY_MAX + 1)):
        chunk = chunk_of(headers, [b"a", b"b", body, b"c", b"d"])
        templates = ready(headers[0])
        run = run_at(templates, chunk)
        assert len(run.ends) == 2
        assert_is_whole(templates, run, chunk)
        assert run_at(templates, chunk_of(headers, [body] * 5)) is None


def test_values_that_only_some_frames_share_are_not_confused():
    templates = ready(like(0))
    for tags in ("AABA", "ABAA", "AAAB", "BAAA", "ABBA"):
        headers = [like(number, tags=tag) for number, tag in enumerate(tags)]
        chunk = chunk_of(headers, [b"body"] * 4)
        run = run_at(ready(headers[0]), chunk)
        assert len(run.ends) == 4
        assert_is_whole(templates, run, chunk)


def test_an_incomplete_frame_is_left_for_later():
    headers = [like(number) for number in range(4)]
    chunk = chunk_of(headers, [b"body"] * 4)
    size = len(chunk) // 4
    for missing in range(1, size + 1):
        run = run_at(ready(headers[0]), chunk[:-missing])
        assert list(run.ends) == [size, 2 * size, 3 * size]
    assert run_at(ready(headers[0]), chunk[: 2 * size - 1]) is None


def test_no_damaged_frame_is_decoded_differently_than_by_the_decoder():
    headers = [like(number) for number in range(3)]
    whole = chunk_of(headers, [b"body"] * 3)
    size = len(whole) // 3
    templates = ready(headers[0])
    for at in range(size, 2 * size):
        for byte in b'"\\0{}:,e\xff\x00':
            chunk = whole[:at] + bytes([byte]) + whole[at + 1 :]
            run = run_at(templates, chunk)
            if run is not None:
                assert_is_whole(templates, run, chunk)


@given(
    st.lists(
        sends
        | st.builds(like, st.integers(0, 99), tags=st.sampled_from(["A", "B"]))
        | st.just(b""),
        min_size=2,
        max_size=12,
    ),
    st.lists(st.binary(max_size=9), min_size=12, max_size=12),
    plain,
)
def test_whatever_is_taken_together_says_what_the_decoder_says(headers, bodies, behind):
    templates = SendTemplates()
    chunk = chunk_of(headers, bodies[: len(headers)]) + behind.encode()
    at = 0
    for frame in FrameDecoder().feed(chunk):
        run = run_at(templates, chunk, at)
        if run is not None:
            assert_is_whole(templates, run, chunk, at)
            assert [decoded(each.header) for each in FrameDecoder().feed(chunk[at : run.ends[-1]])]
        templates.match_or_learn(frame.header)
        at += 8 + len(frame.header) + len(frame.body)


@given(
    st.lists(st.builds(like, st.integers(0, 99)) | sends, min_size=2, max_size=8),
    st.integers(0, 40),
    st.data(),
)
def test_no_damaged_chunk_is_decoded_differently_than_by_the_decoder(headers, body_bytes, data):
    templates = ready(like(1))
    chunk = bytearray(chunk_of([like(2), *headers], [bytes(body_bytes)] * (len(headers) + 1)))
    at = data.draw(st.integers(8, len(chunk) - 1))
    chunk[at] = data.draw(st.sampled_from(b'"\\0123u{}:,-e \x01\xff'))
    del chunk[len(chunk) - data.draw(st.integers(0, 20)) :]
    run = run_at(templates, bytes(chunk))
    if run is not None:
        assert_is_whole(templates, run, bytes(chunk))
