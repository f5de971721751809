"""Requests made from a form, and answers recognised by their shape."""

from concurrent.futures import Future

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.client.producer.prepared_message import PreparedMessage, send_request
from cometmq.model.queue import MessageQueue
from cometmq.wire.command import Command, response
from cometmq.wire.frame import FrameDecoder
from cometmq.wire.headers.send import SendMessageResponseHeader
from cometmq.wire.records import message_batch
from cometmq.wire.request_signature import Credentials, sign
from cometmq.wire.templates.send_request import (
    SendRequestTemplate,
    SignedSendRequestTemplate,
    batch_body,
)
from cometmq.wire.templates.send_response import LENGTHS_MAX, SendResponseLayouts

KEY = "A" * 32


text = st.text(min_size=1, max_size=20)
number = st.integers(0, 2**31 - 1)


def header_of(answer: Command) -> bytes:
    (frame,) = FrameDecoder().feed(answer.encode())
    return frame.header


@settings(max_examples=50)
@given(text, text, text, st.integers(0, 1000), number, number, st.binary(max_size=50))
def test_a_form_filled_in_decodes_to_the_request_built_field_by_field(
    group, topic, broker, queue_id, opaque, born_ms, body
):
    form = SendRequestTemplate(group, topic, broker, queue_id, 4)
    tail = b"WAIT\\u0001true\\u0002TAGS\\u0001t\\u0002"
    (frame,) = FrameDecoder().feed(form.frame(opaque, born_ms, KEY.encode(), tail, body))
    properties = f"UNIQ_KEY\x01{KEY}\x02WAIT\x01true\x02TAGS\x01t\x02"
    message = PreparedMessage(topic, body, 0, 0, properties, KEY, born_ms)
    slow = send_request(message, group, MessageQueue(topic, broker, queue_id), 4)
    slow.opaque = opaque
    (wanted,) = FrameDecoder().feed(slow.encode())
    found, expected = Command.decode(frame), Command.decode(wanted)
    for name in Command.__slots__:
        assert getattr(found, name) == getattr(expected, name), name


@settings(max_examples=50)
@given(text, text, text, st.none() | text, st.booleans(), st.binary(max_size=50))
def test_a_signed_form_filled_in_has_the_signature_of_its_fields(
    group, topic, access_key, token, batch, body
):
    keys = Credentials(access_key, "secret of %b", token)
    form = SignedSendRequestTemplate(group, topic, "b%d", 3, 4, credentials=keys, batch=batch)
    tail = b"WAIT\\u0001true\\u0002TAGS\\u0001%d\\u0002"
    (frame,) = FrameDecoder().feed(form.frame(17, 1_700, KEY.encode(), tail, body))
    found = Command.decode(frame)
    expected = dict(found.ext)
    assert expected.pop("Signature") == sign(expected, body, keys.secret_key)
    assert expected.get("SecurityToken") == token
    assert expected["AccessKey"] == access_key
    assert list(found.ext) == sorted(found.ext)
    plain = SendRequestTemplate(group, topic, "b%d", 3, 4, batch=batch)
    (frame,) = FrameDecoder().feed(plain.frame(17, 1_700, KEY.encode(), tail, body))
    unsigned = Command.decode(frame)
    assert {name: found.ext[name] for name in unsigned.ext} == unsigned.ext
    assert (found.code, found.opaque, found.body) == (unsigned.code, 17, body)


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.binary(min_size=1, max_size=40), st.binary(min_size=32, max_size=32)),
        min_size=1,
    )
)
def test_the_body_of_a_batch_is_what_the_codec_writes(messages):
    bodies, keys = [body for body, _ in messages], [key for _, key in messages]
    items = [
        message_batch.BatchItem(0, body, b"UNIQ_KEY\x01" + key + b"\x02WAIT\x01true\x02")
        for body, key in messages
    ]
    assert batch_body(bodies, keys, b"WAIT\x01true\x02") == message_batch.encode(items)


def answer(opaque, queue_id, offset, msg_id="7F" * 16, transaction_id=None, **ext):
    header = SendMessageResponseHeader(
        msg_id=msg_id, queue_id=queue_id, queue_offset=offset, transaction_id=transaction_id
    )
    return response(opaque, 0, header=header, ext={"TRACE_ON": "true", **ext})


def delivered(answers, data, *wanted):
    """The answers of those who wait for the opaques, and how many bytes were taken."""
    waiters = {opaque: Future() for opaque in wanted}
    taken = answers.tell(data, {opaque: (waiter, 0.0) for opaque, waiter in waiters.items()})
    return {opaque: w.result() for opaque, w in waiters.items() if w.done()}, taken


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(number, st.integers(0, 99) | st.just(3), st.integers(0, 2**60) | st.just(7)),
        min_size=2,
        max_size=12,
        unique_by=lambda one: one[0],
    ),
    st.sampled_from([None, "AC11" * 8]),
    st.booleans(),
)
def test_answers_cut_by_their_shape_say_what_the_decoder_says(values, transaction_id, learn):
    answers = SendResponseLayouts()
    commands = [answer(*one, transaction_id=transaction_id) for one in values]
    for command in commands[: len(commands) if learn else 1]:
        answers.learn(header_of(command), command)
    data = b"".join(command.encode() for command in commands)
    found, taken = delivered(answers, data, *(opaque for opaque, _, _ in values))
    for opaque, queue_id, offset in values[: len(found)]:
        assert found[opaque] == (queue_id, offset, "7F" * 16, transaction_id)
    assert taken == sum(len(command.encode()) for command in commands[: len(found)])
    if learn:
        assert len(found) == len(values)


def test_an_answer_that_came_alone_is_cut_and_anything_else_is_left_to_the_decoder():
    answers = SendResponseLayouts()
    one, other = answer(1, 2, 345), answer(2, 13, 45)
    assert answers.answer_in(one.encode(), 1) is None
    for command in (one, other):
        answers.learn(header_of(command), command)
    for _ in range(2):
        for command, said in ((one, (2, 345)), (other, (13, 45))):
            found = answers.answer_in(command.encode(), command.opaque)
            assert found == (*said, "7F" * 16, None)
    frame = one.encode()
    assert answers.answer_in(frame, 2) is None
    odd = frame.replace(b'"code":0', b'"code":1'), frame.replace(b'"opaque":1', b'"opaque":x')
    for data in (b"", frame[:-1], frame * 2, frame + other.encode(), *odd):
        assert answers.answer_in(data, 1) is None


@pytest.mark.parametrize("odd_at", [0, 5, 29])
def test_of_many_answers_those_before_an_odd_one_are_given(odd_at):
    answers = SendResponseLayouts()
    good = [answer(opaque, 2, 3) for opaque in range(100, 130)]
    answers.learn(header_of(good[0]), good[0])
    frames = [one.encode() for one in good]
    assert len(delivered(answers, b"".join(frames), *range(100, 130))[0]) == 30
    for before, after in ((b'"code":0', b'"code":1'), (b'"queueId":"2"', b'"queueId":"x"')):
        odd = frames.copy()
        odd[odd_at] = odd[odd_at].replace(before, after)
        found, taken = delivered(answers, b"".join(odd), *range(100, 130))
        assert len(found) in {0, odd_at}  # the decoder takes over wherever it stops
        assert taken == sum(map(len, frames[: len(found)]))
    assert len(delivered(answers, b"".join(frames), *range(100, 120))[0]) == 20


def test_what_is_not_a_plain_success_is_left_to_the_decoder():
    answers = SendResponseLayouts()
    plain = answer(1, 2, 3)
    answers.learn(header_of(plain), plain)
    frame = plain.encode()
    assert delivered(answers, frame, 1)[1] == len(frame)
    assert delivered(answers, frame, 2) == ({}, 0)  # nobody asked that
    assert delivered(answers, frame[:-1], 1) == ({}, 0)
    assert delivered(answers, frame.replace(b'"code":0', b'"code":1'), 1) == ({}, 0)
    assert delivered(answers, frame.replace(b'"opaque":1', b'"opaque":x'), 1) == ({}, 0)


@pytest.mark.parametrize(
    "odd",
    [
        response(1, 14, remark="full", ext={"queueId": "1", "queueOffset": "1", "msgId": "AA"}),
        response(1, 0, ext={"queueId": "1", "queueOffset": "1"}),
        response(1, 0, ext={"queueId": "1", "queueOffset": "1", "msgId": "AA", "recall": "x"}),
    ],
)
def test_an_answer_out_of_the_ordinary_is_not_learned(odd):
    answers = SendResponseLayouts()
    answers.learn(header_of(odd), odd)
    assert delivered(answers, odd.encode(), 1) == ({}, 0)


def test_layouts_of_one_length_live_side_by_side():
    answers = SendResponseLayouts()
    one, other = answer(1, 2, 345), answer(2, 13, 45)
    for command in (one, other):
        answers.learn(header_of(command), command)
    found, _ = delivered(answers, one.encode() + other.encode(), 1, 2)
    assert found.keys() == {1, 2}
    assert delivered(answers, one.encode() * 2, 1)[1] == len(one.encode())  # nobody waits twice


def test_so_many_layouts_are_kept_and_no_more():
    answers = SendResponseLayouts()
    for size in range(2 * LENGTHS_MAX):
        one = answer(1, 2, 3, msg_id="A" * (size + 1))
        answers.learn(header_of(one), one)
    assert len(answers._by_length) <= LENGTHS_MAX


def test_nothing_is_learned_from_a_broken_header():
    command = answer(1, 2, 3)
    answers = SendResponseLayouts()
    answers.learn(b"{}", command)
    assert delivered(answers, b"\0\0\0\6\0\0\0\2{}", 1) == ({}, 0)
