"""The quick way through a pull's body finds what the plain way finds, and stops where it must."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.client.consumer import message_decoder as decode
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import log_record_batch_decoder as stored_run
from cometmq.wire.records import properties

IPV4, IPV6 = b"\x7f\0\0\1\0\0\x2a\x9f", bytes(16) + b"\0\0\x2a\x9f"

records = st.builds(
    lambda topic, body, pairs, flags, with_crc, offset: stored.encode(
        topic,
        3,
        1,
        offset,
        offset * 7,
        flags,
        17,
        IPV6 if flags & 0x10 else IPV4,
        19,
        IPV6 if flags & 0x20 else IPV4,
        2,
        5,
        body,
        properties.encode(pairs),
        with_crc,
    ),
    st.sampled_from(["T", "Topic", "Topik", "t" * 130]),
    st.binary(max_size=40),
    st.dictionaries(st.sampled_from(["a", "TAGS", "k"]), st.text("xyz", min_size=1), max_size=2),
    st.sampled_from([0, 0, 0, 0x10, 0x20, 0x30, 4]),
    st.booleans(),
    st.integers(0, 1 << 40),
)


def fields(message):
    slots = [name for name in message.__slots__ if name not in ("parsed", "where")]
    places = ["phy_offset", "sys_flag", "born_ms", "born_host", "store_ms", "store_host"]
    return {name: getattr(message, name) for name in slots + places}


@given(st.lists(records, max_size=12), st.binary(max_size=12))
def test_every_mixture_of_records_reads_as_one_by_one(found, rest):
    body = b"".join(found) + rest
    expected = [decode.decode_message(one, "b") for one in stored.iterate(body)]
    messages, is_whole, _ = decode.decode_messages(body, "b")
    assert [fields(one) for one in messages] == [fields(one) for one in expected]
    assert is_whole == (sum(one.size for one in stored.iterate(body)) == len(body))


@given(st.lists(records, min_size=1, max_size=3), st.integers(0, 400), st.integers(0, 255))
def test_a_changed_byte_never_yields_more_records_than_the_plain_decoder(found, at, byte):
    body = bytearray(b"".join(found))
    body[at % len(body)] = byte
    expected = [decode.decode_message(one, "b") for one in stored.iterate(bytes(body))]
    messages, *_ = decode.decode_messages(bytes(body), "b")
    assert [fields(one) for one in messages] == [fields(one) for one in expected]


@pytest.mark.parametrize("cut", [0, 3, 50, 90, 100])
def test_what_is_cut_short_is_left_alone(cut):
    record = stored.encode("T", 0, 0, 0, 0, 0, 1, IPV4, 2, IPV4, 0, 0, b"x", b"")
    assert stored_run.messages(record[:cut], 0, "b") == ([], 0)
