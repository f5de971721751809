"""Records become messages: bodies, properties, tags, and what cannot be read."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.received_messages import received
from cometmq.client.consumer import message_decoder as decode
from cometmq.model.queue import MessageQueue
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import properties

HOST = b"\x0a\0\0\2\0\0\x2a\x9f"


def record(body=b"hello", topic="T1", sys_flag=0, pairs=None, offset=0):
    raw = properties.encode(pairs or {})
    return stored.encode(topic, 3, 9, offset, 1234, sys_flag, 17, HOST, 19, HOST, 1, 0, body, raw)


def message(**more):
    (found,), is_whole, _ = decode.decode_messages(record(**more), "b0")
    assert is_whole
    return found


def test_a_record_becomes_a_message_with_all_it_carries():
    found = message(pairs={"TAGS": "TagA", "KEYS": "a b", "UNIQ_KEY": "U", "colour": "grün"})
    assert (found.topic, found.queue_id, found.flag) == ("T1", 3, 9)
    assert (found.body, found.tags, found.keys, found.msg_id) == (b"hello", "TagA", ["a", "b"], "U")
    assert found.offset_msg_id == "0A00000200002A9F00000000000004D2"
    assert found.message_queue == MessageQueue("T1", "b0", 3)
    assert "__CRC32#" not in found.properties
    assert message().msg_id == message().offset_msg_id


@pytest.mark.parametrize("method", [0x000, 0x300])
def test_a_compressed_body_is_inflated(method):
    found = message(body=zlib.compress(b"a" * 100), sys_flag=0x1 | method)
    assert (found.body, found.sys_flag & 1) == (b"a" * 100, 0)


@pytest.mark.parametrize(("body", "method"), [(b"no zlib", 0x300), (b"lz4 frame", 0x100)])
def test_a_body_that_cannot_be_inflated_is_left_as_stored_and_says_so(body, method):
    found = message(body=body, sys_flag=0x1 | method)
    assert (found.body, found.sys_flag & 1) == (body, 1)
    assert found.unreadable


@pytest.mark.parametrize("sys_flag", [0, 0x1 | 0x300])
@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_body_whose_checksum_is_wrong_is_unreadable_and_the_others_are_not(position, sys_flag):
    body = zlib.compress(b"hello") if sys_flag else b"hello"
    whole = [record(body, sys_flag=sys_flag, offset=n) for n in range(3)]
    raw = bytearray(b"".join(whole))
    raw[position * len(whole[0]) + 88 + 2] ^= 4
    messages, is_whole, has_unreadable = decode.decode_messages(bytes(raw), "b0")
    assert is_whole
    assert has_unreadable
    assert ["checksum" in m.unreadable for m in messages] == [n == position for n in range(3)]
    assert [m.body for m in messages if not m.unreadable] == [b"hello", b"hello"]


@given(st.integers(0, 400))
def test_a_cut_answer_yields_the_whole_records_before_the_cut(size):
    whole = b"".join(record(offset=n) for n in range(3))
    messages, is_whole, _ = decode.decode_messages(whole[:size], "b0")
    each = len(whole) // 3
    assert [m.queue_offset for m in messages] == list(range(min(size, len(whole)) // each))
    assert is_whole == (size % each == 0 or size > len(whole))


text = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)


@given(st.dictionaries(text, text, max_size=5))
def test_properties_read_as_the_wire_reads_them(pairs):
    raw = properties.encode(pairs)
    found = received(raw_properties=raw).properties
    assert found == properties.decode(raw) == pairs


def test_only_exact_tags_pass_and_retried_messages_get_their_topic_back():
    (one,), (other,) = [
        decode.decode_messages(record(pairs={"TAGS": tag, "RETRY_TOPIC": "first"}), "b0")[0]
        for tag in ("Aa", "BB")
    ]
    assert decode.with_tags([one, other], {b"Aa"}) == [one]
    decode.restore_topics([one])
    assert one.topic == "first"


def test_a_pull_inflates_no_more_than_four_of_the_largest_bodies():
    bodies = [zlib.compress(b"a" * size) for size in (100, 101, 60, 60, 60, 60)]
    body = b"".join(record(body=one, sys_flag=1, offset=at) for at, one in enumerate(bodies))
    found = decode.decode_messages(body, "b0", inflated_bytes_max=100)
    assert [message.queue_offset for message in found.messages] == [0, 1, 2, 3]
    assert (found.is_whole, found.has_unreadable) == (False, True)
    assert [bool(message.unreadable) for message in found.messages] == [False, True, False, False]
