"""Frames matched together say what each of them says alone, and end where they end."""

from hypothesis import given
from hypothesis import strategies as st

from cometmq.wire.frame import FrameDecoder, encode_frame
from cometmq.wire.send_template import SendFields, SendTemplates
from wire.test_send_template import KEY, assert_says_the_same, decoded, plain, send, sends

BODY_MAX = 1_000


def like(number, **more):
    """The header of one message of many."""
    extra = f"KEYS\x01order-{number:04}\x02"
    return send(
        queue_id=str(number % 10), opaque=100 + number, key=KEY % number, extra=extra, **more
    )


def ready(header):
    """Templates that have just matched this header."""
    templates = SendTemplates()
    templates.see(header)
    assert templates.match(header)
    return templates


def chunk_of(headers, bodies):
    return b"".join([encode_frame(*pair) for pair in zip(headers, bodies, strict=True)])


def assert_is_whole(run, chunk, at=0):
    """What the run says is what the decoders say of as many frames."""
    frames = FrameDecoder().feed(chunk[at:])[: len(run.ends)]
    assert len(frames) == len(run.bodies) == len(run.ends) >= 2
    texts = zip(*run.texts, strict=True)
    rows = zip(run.queue_ids, run.born, run.opaques, texts, strict=True)
    for frame, body, end, row in zip(frames, run.bodies, run.ends, rows, strict=True):
        at += 8 + len(frame.header) + len(frame.body)
        assert (frame.body, at) == (body, end)
        assert_says_the_same(SendFields(run.layout, *row), frame.header)


def test_frames_of_one_layout_are_taken_together_whatever_their_bodies():
    headers = [like(number) for number in range(20)]
    chunk = chunk_of(headers, [b"x" * (1 + 37 * number) for number in range(20)])
    run = ready(headers[0]).run_at(chunk, 0, BODY_MAX)
    assert len(run.ends) == 20
    assert_is_whole(run, chunk)


def test_what_has_another_layout_ends_them():
    headers = [like(number) for number in range(5)]
    for other in (send(tags="TagB"), like(5, tags="TagB"), like(5, flag=2), like(5, code=10)):
        bodies = [b"body"] * 7
        chunk = chunk_of([*headers, other, like(6)], bodies)
        run = ready(headers[0]).run_at(chunk, 0, BODY_MAX)
        assert len(run.ends) == 5
        assert_is_whole(run, chunk)


def test_a_body_that_is_empty_or_too_long_ends_them():
    headers = [like(number) for number in range(5)]
    for body in (b"", b"x" * (BODY_MAX + 1)):
        chunk = chunk_of(headers, [b"a", b"b", body, b"c", b"d"])
        run = ready(headers[0]).run_at(chunk, 0, BODY_MAX)
        assert run.bodies == [b"a", b"b"]


def test_a_frame_that_is_not_all_there_is_left():
    headers = [like(number) for number in range(4)]
    chunk = chunk_of(headers, [b"body"] * 4)
    size = len(chunk) // 4
    for missing in range(1, size + 1):
        run = ready(headers[0]).run_at(chunk[:-missing], 0, BODY_MAX)
        assert run.ends == [size, 2 * size, 3 * size]
    assert ready(headers[0]).run_at(chunk[: 2 * size - 1], 0, BODY_MAX) is None


def test_there_is_no_run_before_a_match_nor_after_all_was_forgotten():
    chunk = chunk_of([like(1), like(2)], [b"a", b"b"])
    assert SendTemplates().run_at(chunk, 0, BODY_MAX) is None
    templates = ready(like(1))
    templates.forget()
    assert templates.run_at(chunk, 0, BODY_MAX) is None


def test_no_damage_to_a_frame_is_taken_for_something_else():
    headers = [like(number) for number in range(3)]
    whole = chunk_of(headers, [b"body"] * 3)
    size = len(whole) // 3
    templates = ready(headers[0])
    for at in range(size, 2 * size):
        for byte in b'"\\0{}:,e\xff\x00':
            chunk = whole[:at] + bytes([byte]) + whole[at + 1 :]
            run = templates.run_at(chunk, 0, BODY_MAX)
            if run is not None:
                assert_is_whole(run, chunk)


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
        run = templates.run_at(chunk, at, BODY_MAX)
        if run is not None:
            assert_is_whole(run, chunk, at)
            assert [decoded(each.header) for each in FrameDecoder().feed(chunk[at : run.ends[-1]])]
        templates.see(frame.header)
        at += 8 + len(frame.header) + len(frame.body)


@given(
    st.lists(st.builds(like, st.integers(0, 99)) | sends, min_size=2, max_size=8),
    st.integers(0, 40),
    st.data(),
)
def test_frames_of_one_size_are_cut_by_one_call_to_the_same_end(headers, body_bytes, data):
    templates = ready(like(1))
    for _ in range(2):  # a size that comes again is cut so
        templates.run_at(chunk_of([like(1)] * 3, [bytes(body_bytes)] * 3), 0, BODY_MAX)
    chunk = bytearray(chunk_of(headers, [bytes(body_bytes)] * len(headers)))
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(chunk) - 1))
        chunk[at] = data.draw(st.sampled_from(b'"\\0123u{}:,-e \x01\xff'))
    del chunk[len(chunk) - data.draw(st.integers(0, 20)) :]
    frames = templates._last.frames
    cuts = [cut(bytes(chunk), 0, BODY_MAX) for cut in (frames._cut_alike, frames._cut)]
    run = templates.run_at(bytes(chunk), 0, BODY_MAX)
    if cuts[0] is not None:
        assert [list(part) for part in cuts[0]] == [list(part) for part in cuts[1]]
    if run is not None:
        assert_is_whole(run, bytes(chunk))


def test_a_window_of_one_size_is_cut_by_one_call():
    headers = [like(number) for number in range(64)]
    chunk, templates = chunk_of(headers, [b"body"] * 64), ready(headers[0])
    assert templates._last.frames._cut_alike(chunk, 0, BODY_MAX) is None  # not worth it yet
    assert templates._last.frames._cut_alike(chunk, 0, BODY_MAX) is not None
    run = templates.run_at(chunk, 0, BODY_MAX)
    assert len(run.ends) == 64
    assert_is_whole(run, chunk)
