"""Stored records, queue entries, properties, ids and batches: documented bytes, and any bytes."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import ProtocolError
from cometmq.wire.records import consume_queue_entry, message_batch, message_id, properties, sysflag
from cometmq.wire.records import log_record as stored

VECTORS = [
    (
        "0000006cdaa320a73610a6860000000300000009000000000000000b00000000000004d20000000000000"
        "18bcfe568000a000001000013880000018bcfe5687b0a00000200002a9f0000000100000000000000000000"
        "000568656c6c6f025431000a54414753015461674102",
        {"topic": "T1", "queue_id": 3, "flag": 9, "queue_offset": 11, "phy_offset": 1234,
         "sys_flag": 0, "born_ms": 1700000000000, "born_host": b"\n\0\0\1\0\0\x13\x88",
         "store_ms": 1700000000123, "store_host": b"\n\0\0\2\0\0*\x9f", "reconsume_times": 1,
         "prepared_offset": 0, "body": b"hello", "properties": b"TAGS\x01TagA\x02"},
    ),
    (
        "0000006bdaa320a73610a6860000000300000000000000000000000700000000000004000000000000000"
        "18bcfe568007f000001000013880000018bcfe568017f00000100002a9f0000000000000000000000000000"
        "000568656c6c6f0154000a54414753015461674102",
        {"topic": "T", "queue_id": 3, "flag": 0, "queue_offset": 7, "phy_offset": 1024,
         "sys_flag": 0, "born_ms": 1700000000000, "born_host": b"\x7f\0\0\1\0\0\x13\x88",
         "store_ms": 1700000000001, "store_host": b"\x7f\0\0\1\0\0*\x9f", "reconsume_times": 0,
         "prepared_offset": 0, "body": b"hello", "properties": b"TAGS\x01TagA\x02"},
    ),
]  # fmt: skip

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
hosts = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))


@st.composite
def values(draw):
    born, store = draw(hosts), draw(hosts)
    return {
        "topic": draw(st.text("abc%_é", max_size=90).map(lambda t: t * draw(st.integers(1, 3)))),
        "queue_id": draw(int32),
        "flag": draw(int32),
        "queue_offset": draw(int64),
        "phy_offset": draw(int64),
        "sys_flag": sysflag.with_hosts(draw(st.integers(0, 0x7FF)), born, store),
        "born_ms": draw(int64),
        "born_host": born,
        "store_ms": draw(int64),
        "store_host": store,
        "reconsume_times": draw(int32),
        "prepared_offset": draw(int64),
        "body": draw(st.binary(max_size=300)),
        "properties": draw(st.binary(max_size=100)).replace(b"__CRC32#", b""),
    }


@pytest.mark.parametrize(("raw", "fields"), VECTORS)
def test_the_documented_records_are_encoded_and_decoded(raw, fields):
    raw = bytes.fromhex(raw)
    assert stored.encode(**fields, with_crc=False) == raw
    record = stored.decode(raw)
    assert record._asdict() | fields == record._asdict()
    assert record.body_crc == 907060870
    assert stored.is_whole(record, raw)


@given(values(), st.booleans(), st.binary(max_size=20))
def test_any_record_comes_back_from_any_place(fields, with_crc, before):
    raw = stored.encode(**fields, with_crc=with_crc)
    size = stored.size_of(
        fields["topic"], fields["body"], fields["properties"], fields["sys_flag"], with_crc
    )
    assert len(raw) == size
    buffer = before + raw + b"rest"
    record = stored.decode(buffer, len(before))
    got = record._asdict()
    want = dict(fields)
    if with_crc:
        assert record.properties[-20:-11] == b"__CRC32#\x01"
        got["properties"] = stored.shown_properties(record.properties)
        if want["properties"] and want["properties"][-1] != 2:
            want["properties"] += b"\x02"
    assert got | want == got
    assert (record.size, stored.is_whole(record, buffer, len(before))) == (size, True)


@given(values(), st.data())
def test_the_whole_record_checksum_notices_any_changed_byte(fields, data):
    raw = bytearray(stored.encode(**fields))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        record = stored.decode(bytes(raw))
    except ProtocolError:
        return
    if record.properties[-20:-11] == b"__CRC32#\x01":
        assert not stored.is_whole(record, bytes(raw))
    else:  # the change made it a record without one
        assert bytes(raw)[-20:-11] != b"__CRC32#\x01" or record.size != len(raw)


@given(st.lists(values(), max_size=4), st.integers(0, 2000))
def test_cut_anywhere_the_whole_records_before_the_cut_are_read(many, cut):
    parts = [stored.encode(**fields) for fields in many]
    buffer = b"".join(parts)[:cut]
    whole, length = 0, 0
    for part in parts:
        length += len(part)
        whole += length <= cut
    assert len(list(stored.iterate(buffer))) == whole


@given(st.binary(max_size=300))
def test_no_bytes_make_the_decoder_do_anything_but_answer_or_refuse(raw):
    for head in (b"", (len(raw) + 8).to_bytes(4) + stored.MAGIC_V1.to_bytes(4)):
        try:
            record = stored.decode(head + raw)
        except ProtocolError:
            continue
        assert record.size == len(head + raw)


def test_the_checksum_is_ten_digits_from_the_lowest_up():
    from zlib import crc32

    record = b"x" * 50
    want = str(crc32(record) & 0x7FFFFFFF).rjust(10, "0")[::-1]
    assert stored.checksum_property(record) == b"__CRC32#\x01" + want.encode() + b"\x02"
    assert (b"%010d" % 907060870)[::-1] == b"0780607090"


def test_queue_entries_are_twenty_bytes():
    raw = consume_queue_entry.encode(1024, 107, -5)
    assert raw.hex() == "00000000000004000000006bfffffffffffffffb"
    assert list(consume_queue_entry.iterate(raw * 2 + b"cut")) == [(1024, 107, -5)] * 2
    assert consume_queue_entry.FILLER.hex() == "00000000000000007fffffff0000000000000000"


texts = st.text(
    st.characters(blacklist_characters="\1\2", blacklist_categories=("Cs",)), max_size=9
)


@given(st.dictionaries(texts.filter(bool), texts))
def test_properties_come_back_without_the_empty_ones(pairs):
    raw = properties.encode(pairs)
    kept = {key: value for key, value in pairs.items() if value}
    assert properties.decode(raw) == properties.decode(raw.rstrip(b"\x02")) == kept
    for key in pairs:
        value = properties.find(raw, key.encode())
        assert (value and value.decode()) == (pairs[key] or None)


few_bytes = st.lists(st.sampled_from(b"\1\2?@x"), max_size=60).map(bytes)


@given(few_bytes, st.sampled_from([b"?", b"@", b"?@"]))
def test_find_agrees_with_decode_on_any_bytes(raw, key):
    found = properties.find(raw, key)
    assert (found.decode() if found else None) == properties.decode(raw).get(key.decode())
    assert properties.find(properties.remove(raw, key), key) is None
    grown = properties.append(raw, b"new", b"v")
    assert properties.decode(grown) == properties.decode(raw) | {"new": "v"}


def test_a_key_is_not_found_inside_another_or_inside_a_value():
    raw = b"XTAGS\x01a\x02K\x01TAGS\x01b\x02"
    assert properties.find(raw, b"TAGS") is None
    assert properties.find(raw + b"TAGS\x01c", b"TAGS") == b"c"
    assert properties.find(b"TAGS\x01c\x02TAGS\x01\x02", b"TAGS") == b"c"


def test_the_offset_id_is_the_documented_one():
    host = bytes((10, 0, 0, 2)) + (10911).to_bytes(4)
    text = message_id.offset_id(host, 1234)
    assert text == "0A00000200002A9F00000000000004D2"
    assert (
        message_id.parse_offset_id(text) == message_id.parse_offset_id(text.lower()) == (host, 1234)
    )
    assert len(message_id.offset_id(bytes(20), 1)) == 56


@pytest.mark.parametrize("text", ["", "0A", "zz" * 16, "00" * 17, " " + "0" * 31, "0 " * 32])
def test_what_is_no_message_id_is_refused(text):
    with pytest.raises(ProtocolError):
        message_id.parse_offset_id(text)


def test_unique_keys_are_unique_and_tell_host_pid_and_time_of_month():
    keys = message_id.UniqKeyGenerator(bytes((127, 0, 0, 1)), 0x12345, 0xABCDEF01)
    december = 1_701_388_800_000
    made = [keys.next_key(december + 5) for _ in range(70_000)]
    assert made[0] == "7F000001" + "2345" + "ABCDEF01" + "00000005" + "0000"
    assert {len(key) for key in made} == {32}
    assert len(set(made)) == 65_536
    assert keys.next_key(december - 1)[20:28] == f"{30 * 86_400_000 - 1:08X}"
    assert keys.next_key(december + 31 * 86_400_000)[20:28] == "00000000"
    assert len(message_id.UniqKeyGenerator(bytes(16), 1, 1).next_key(december)) == 56


@pytest.mark.parametrize("before", [0, 1, 0xFF0, 0x0FFF, 0x1000, 0xFFF8])
def test_keys_taken_together_are_those_that_would_be_taken_one_by_one(before, each_form):
    one, many = (message_id.UniqKeyGenerator(bytes((127, 0, 0, 1)), 7, 9) for _ in range(2))
    now_ms = 1_700_000_000_000
    for _ in range(before):
        assert one.next_key(now_ms) == many.next_key(now_ms)
    for count in (1, 32, 2):
        assert many.next_keys(now_ms, count) == [one.next_key(now_ms) for _ in range(count)]
    assert many.next_keys(now_ms + 1, 3) == [one.next_key(now_ms + 1) for _ in range(3)]
    for count in (1, 700, 5):
        joined = "".join(one.next_key(now_ms) for _ in range(count))
        assert many.joined_keys(now_ms, count) == joined.encode()


def test_the_batch_body_is_the_documented_one():
    item = message_batch.BatchItem(0, b"b1", b"WAIT\x01true\x02TAGS\x01TagA\x02")
    raw = message_batch.encode([item])
    assert raw.hex() == (
        "0000002c00000000000000000000000000000002623100145741495401747275650254414753015461674102"
    )
    assert message_batch.decode(raw * 3) == [item] * 3


items = st.builds(message_batch.BatchItem, int32, st.binary(max_size=50), st.binary(max_size=50))


@given(st.lists(items, max_size=5), st.integers(0, 400))
def test_a_batch_comes_back_whole_or_is_refused(many, cut):
    raw = message_batch.encode(many)
    assert message_batch.decode(raw) == many
    ends = {len(message_batch.encode(many[:count])): count for count in range(len(many) + 1)}
    if cut in ends:
        assert message_batch.decode(raw[:cut]) == many[: ends[cut]]
    elif cut < len(raw):
        with pytest.raises(ProtocolError, match="of the batch"):
            message_batch.decode(raw[:cut])


@given(st.binary(max_size=200))
def test_no_bytes_make_the_batch_decoder_do_anything_but_answer_or_refuse(raw):
    with contextlib.suppress(ProtocolError):
        assert message_batch.encode(message_batch.decode(raw))[4:8] in (b"", bytes(4))


def test_transaction_bits_decide_what_is_queued():
    assert [sysflag.is_queued(f) for f in (0, 4, 8, 12)] == [True, False, True, False]
    assert sysflag.transaction_of(0x301 | 8) == sysflag.TRANSACTION_COMMIT
    assert sysflag.with_hosts(0x331, bytes(8), bytes(20)) == 0x321
