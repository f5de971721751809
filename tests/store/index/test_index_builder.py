"""The hashes of a message's keys are those of RocketMQ, whatever is remembered of earlier ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.store.index.index_builder import KeyedRecordReader, LogByteReader
from cometmq.store.index.key_hashes import KeyHashes
from cometmq.wire.records import log_record, properties, sysflag
from cometmq.wire.records.index_file_layout import key_hash

if TYPE_CHECKING:
    from cometmq.store.index.index_entries import IndexEntries

HEADS = ("", "7F00000100002A9F0000", "7F00000100002A9F00000000ABCD", "ü" * 20)
IDS = st.tuples(st.sampled_from(HEADS), st.text("0AÜ", max_size=12)).map("".join)
PAIRS = st.fixed_dictionaries(
    {},
    optional={
        "UNIQ_KEY": IDS,
        "KEYS": st.sampled_from(["k", "a b", "ü", "KEYS"]),
        "XKEYS": st.just("no"),
        "XTAGS": st.just("no"),
    },
)


@given(st.lists(st.tuples(st.sampled_from(["T", "U"]), PAIRS), max_size=20))
def test_the_hashes_of_keys_are_those_of_each_key_alone(
    messages: list[tuple[str, dict[str, str]]],
) -> None:
    hashes = KeyHashes()
    for topic, pairs in messages:
        keys = [pairs.get("UNIQ_KEY", ""), *pairs.get("KEYS", "").split()]
        found = hashes.of(topic.encode(), properties.encode(pairs))
        assert found == [key_hash(topic, key) for key in keys if key]


USUAL = b"7F00000112672A9F00AB00CD0000"
ENTRIES = st.sampled_from(
    [
        *(b"UNIQ_KEY\x01%b%b\x02" % (USUAL, last) for last in (b"00AB", b"00AC", b"ab", b"")),
        b"UNIQ_KEY\x01%bABC\xc3\x9c\x02" % USUAL[:-1],
        b"UNIQ_KEY\x01%b00A\x03\x02" % USUAL,
        b"UNIQ_KEY\x01\xc3\x9c%b00\x02" % USUAL,
        b"UNIQ_KEY\x01\x02",
        b"XUNIQ_KEY\x01%b0001\x02" % USUAL,
        b"KEYS\x01a b\x02",
        b"KEYS\x01%b\x02" % (b"k" * 700),
        b"TAGS\x01t\x02",
        b"__SHARDINGKEY\x01s\x02",
        b"XKEYS\x01no\x02",
        b"WAIT\x01true\x02",
        b"\x02",
        b"loose",
        b"UNIQ_KEY\x01%b0001" % USUAL,
    ]
)
RECORDS = st.tuples(
    st.sampled_from(["T", "T", "T", "Topic", "ÜT", "L" * 200]),
    st.lists(ENTRIES, max_size=4).map(b"".join),
    st.sampled_from([0, 0, 0, 0x10, 0x20, 0x30, 0x4, 0xC, 0x8, 0x1]),
    st.sampled_from([b"", b"body", b"UNIQ_KEY\x01no\x02KEYS\x01no\x02"]),
)


class LogInMemory:
    """The bytes of some records, as the index reads them."""

    first = 0

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, at: int, length: int, cached_only: bool = False) -> bytes:
        del cached_only
        return self.data[at : at + length]


def rows(entries: IndexEntries) -> list[tuple[int, int, int]]:
    return list(zip(entries.hashes, entries.phy_offsets, entries.store_times, strict=True))


@pytest.mark.parametrize("digits", [31, 32, 33, 40])
def test_a_record_with_no_key_but_an_id_is_filed_under_all_of_it(digits: int) -> None:
    unique = "7F00000112672A9F00AB00CD000000AB12345678"[:digits]
    raw = properties.encode({"UNIQ_KEY": unique, "WAIT": "true"})
    fields = ("T", 1, 0, 0, 0, 0, 5, bytes(8), 1_000, bytes(8), 0, 0)
    data = log_record.encode(*fields, b"x", raw)
    reader = KeyedRecordReader(cast("LogByteReader", LogInMemory(data)), 1 << 20)
    found, at = reader.read(0, len(data), 1)
    assert (rows(found), at) == ([(key_hash("T", unique), 0, 1_000)], len(data))


@pytest.mark.parametrize("flag", [0, 0x10], ids=["usual", "long address"])
def test_a_read_ends_behind_a_record_with_long_keys_and_brings_many_of_others(flag: int) -> None:
    born = bytes(20 if flag else 8)
    data = b""
    for number, key in enumerate([b"k" * 30_000] * 3 + [b"k" * 100] * 60):
        fields = ("T", 1, 0, number, len(data), flag, 5, born, 1_000, bytes(8), 0, 0)
        data += log_record.encode(*fields, b"x", b"UNIQ_KEY\x01u\x02KEYS\x01%b\x02" % key)
    reader = KeyedRecordReader(cast("LogByteReader", LogInMemory(data)), 1 << 20)
    at, records_a_read = 0, []
    while at < len(data):
        found, at = reader.read(at, len(data), 256)
        records_a_read.append(found.count // 2)
    assert records_a_read == [1, 1, 1, 60]


@given(st.lists(RECORDS, max_size=12), st.integers(1, 12), st.booleans(), st.integers(0, 40))
def test_the_entries_of_records_in_a_row_are_those_of_each_record_alone(
    records: list[tuple[str, bytes, int, bytes]], count: int, with_crc: bool, cut: int
) -> None:
    data, wanted = b"", []
    hashes = KeyHashes()
    for number, (topic, raw, flag, body) in enumerate(records):
        born, host = bytes(20 if flag & 0x10 else 8), bytes(20 if flag & 0x20 else 8)
        fields = (topic, 1, 0, number, len(data), flag, 5, born, 1_000 + number, host, 0, 0)
        made = log_record.encode(*fields, body, raw, with_crc)
        pairs = log_record.decode(made).properties
        if sysflag.transaction_of(flag) != sysflag.TRANSACTION_ROLLBACK:
            of_record = hashes.of(topic.encode(), pairs)
            wanted += [(hashed, len(data), 1_000 + number) for hashed in of_record]
        data += made
    end = max(0, len(data) - cut)  # a batch of records may end anywhere
    reader = KeyedRecordReader(cast("LogByteReader", LogInMemory(data)), 1 << 20)
    found, at = [], 0
    while at < end:
        some, after = reader.read(at, end, count)
        assert len(set(some.phy_offsets)) <= count
        assert after > at
        found += rows(some)
        at = after
    assert found == [each for each in wanted if each[1] < end]
