"""Stored records become Arrow columns, and what is no record is refused."""

from __future__ import annotations

import sys
import zlib

import lz4.frame
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from cometmq.errors import DamagedMessage, InvalidMessage, ProtocolError, SettingsError
from cometmq.model.queue import MessageQueue
from cometmq.spark.source import columns
from cometmq.spark.source.arrow_batches import BYTES_MAX, ROWS_MAX, BatchBuilder, PulledRecords
from cometmq.spark.source.record_positions import record_starts
from cometmq.wire.compression import BYTES_MAX as INFLATED_BYTES_MAX
from cometmq.wire.compression import inflate
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import properties, sysflag
from spark.scripted import BORN_MS, HOST, record

EVERY = tuple(columns.DDL_TYPES)
A = MessageQueue("T", "broker-a", 0)
V6 = bytes(range(16)) + b"\0\0\x2a\x9f"


def batch_of(*records: bytes, names: tuple[str, ...] = EVERY, hi: int = 1 << 60) -> pa.RecordBatch:
    builder = BatchBuilder(names)
    assert not builder.add(PulledRecords(A, hi, b"".join(records)))
    (batch,) = builder.batches()
    batch.validate(full=True)
    return batch


def test_every_column_of_a_record_is_read() -> None:
    pairs = {"UNIQ_KEY": "ID1", "KEYS": "k1 k2", "TAGS": "TagA", "__SHARDINGKEY": "N1", "mine": "x"}
    (row,) = batch_of(record(3, 17, pairs=pairs)).to_pylist()
    assert row.pop("record") == record(3, 17, pairs=pairs)
    assert row.pop("born_ts").timestamp() * 1000 == BORN_MS + 17
    assert row.pop("store_ts").timestamp() * 1000 == BORN_MS + 24
    assert row == {
        "topic": "T",
        "broker": "broker-a",
        "queue_id": 3,
        "queue_offset": 17,
        "msg_id": "ID1",
        "keys": "k1 k2",
        "tags": "TagA",
        "body": b"hello",
        "properties": list(pairs.items()),
        "reconsume_times": 0,
        "sharding_key": "N1",
        "phy_offset": 17_003,
    }


def test_stored_records_come_out_as_they_are_cut_at_the_end_of_the_range() -> None:
    records = [record(0, offset, body=b"x" * offset) for offset in range(9)]
    batch = batch_of(*records, names=("record",), hi=7)
    assert batch["record"].to_pylist() == records[:7]


def test_the_messages_of_one_topic_may_all_be_wanted_whatever_their_tags() -> None:
    retry = MessageQueue("%RETRY%g", "broker-a", 0)
    builder = BatchBuilder(("topic", "tags"), "a", unfiltered=retry.topic)
    for queue in (A, retry):
        data = record(0, 0, pairs={"TAGS": "a"}) + record(0, 1, pairs={"TAGS": "b"}) + record(0, 2)
        assert not builder.add(PulledRecords(queue, 9, data))
    (batch,) = builder.batches()
    assert [tuple(row.values()) for row in batch.to_pylist()] == [
        ("T", "a"),
        ("%RETRY%g", "a"),
        ("%RETRY%g", "b"),
        ("%RETRY%g", None),
    ]


def test_without_properties_names_are_null_and_the_id_is_the_place_in_the_log() -> None:
    (row,) = batch_of(record(0, 5)).to_pylist()
    assert row["msg_id"] == "7F00000100002A9F" + "0000000000001388"
    assert row["keys"] is row["tags"] is row["sharding_key"] is None
    assert row["properties"] == []


def test_the_arrow_schema_is_what_spark_makes_of_the_ddl() -> None:
    types = {
        "string": StringType(),
        "int": IntegerType(),
        "bigint": LongType(),
        "binary": BinaryType(),
        "timestamp": TimestampType(),
        "map<string,string>": MapType(StringType(), StringType()),
    }
    struct = StructType()
    for name, ddl in columns.DDL_TYPES.items():
        struct = struct.add(name, types[ddl])
    assert columns.arrow_schema(EVERY).equals(to_arrow_schema(struct, timezone="UTC"))
    assert batch_of(record(0, 0)).schema.equals(columns.arrow_schema(EVERY))


@pytest.mark.parametrize(
    ("kind", "squeezed"),
    [
        (sysflag.COMPRESSION_LEGACY_ZLIB, zlib.compress(b"a body" * 999)),
        (sysflag.COMPRESSION_ZLIB, zlib.compress(b"a body" * 999)),
        (sysflag.COMPRESSION_LZ4, lz4.frame.compress(b"a body" * 999)),
        (sysflag.COMPRESSION_ZSTD, zstandard.compress(b"a body" * 999)),
    ],
)
def test_compressed_bodies_come_out_whole_beside_plain_ones(kind: int, squeezed: bytes) -> None:
    flag = kind | sysflag.COMPRESSED
    batch = batch_of(record(0, 0), record(0, 1, body=squeezed, sys_flag=flag), record(0, 2))
    assert batch["body"].to_pylist() == [b"hello", b"a body" * 999, b"hello"]
    with pytest.raises(InvalidMessage, match="cut short"):
        inflate(squeezed[:-9], flag)
    with pytest.raises(InvalidMessage, match="cannot be inflated"):
        inflate(b"\xff" + squeezed[1:], flag)


def test_a_body_that_cannot_be_inflated_is_null_is_said_once_and_stops_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(InvalidMessage, match="0x701"):
        inflate(b"", 0x701)
    damaged = record(0, 1, body=b"no zlib", sys_flag=sysflag.COMPRESSED_ZLIB)
    batch = batch_of(record(0, 0), damaged, record(0, 2, sys_flag=0x701))
    assert batch["body"].to_pylist() == [b"hello", None, None]
    (said,) = caplog.messages
    assert "2 bodies cannot be inflated" in said
    assert "the first is 1 of T@broker-a/0" in said


def test_a_package_that_is_missing_is_a_one_sentence_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    flag = sysflag.COMPRESSED | sysflag.COMPRESSION_LZ4
    with pytest.raises(SettingsError, match="pip install lz4"):
        batch_of(record(0, 0, sys_flag=flag))


def test_addresses_of_both_families_and_long_topics_mix() -> None:
    topic = "t" * 200
    batch = batch_of(
        record(0, 0, sys_flag=0x30, born_host=V6, store_host=V6, body=b"6 6"),
        record(0, 1, sys_flag=0x10, born_host=V6, body=b"6 4", topic=topic),
        record(0, 2, sys_flag=0x20, store_host=V6, body=b"4 6"),
        record(0, 3, body=b"4 4", topic=topic),
    )
    assert batch["body"].to_pylist() == [b"6 6", b"6 4", b"4 6", b"4 4"]
    assert [len(one) for one in batch["msg_id"].to_pylist()] == [56, 32, 56, 32]
    assert batch["store_ts"].cast(pa.int64()).to_pylist() == [
        (BORN_MS + 7 + at) * 1000 for at in range(4)
    ]


def test_loosely_written_properties_are_read_as_java_reads_them() -> None:
    batch = batch_of(
        record(0, 0, raw=b"TAGS\x01TagA\x02KEYS\x01k", with_crc=False),
        record(0, 1, raw=b"TAGS\x01\x02\x01v\x02nothing\x02KEYS\x01a\x01b\x02", with_crc=False),
        record(0, 2, raw=b"TAGS\x01TagB\x02", with_crc=False),
    )
    assert batch["tags"].to_pylist() == ["TagA", None, "TagB"]
    assert batch["keys"].to_pylist() == ["k", "a\x01b", None]


def test_messages_behind_the_end_of_a_range_are_left_out() -> None:
    batch = batch_of(*(record(0, at) for at in range(5, 10)), hi=8)
    assert batch["queue_offset"].to_pylist() == [5, 6, 7]
    builder = BatchBuilder(EVERY)
    builder.add(PulledRecords(A, 5, record(0, 5)))
    assert not list(builder.batches())


def test_a_batch_is_given_out_when_it_has_enough_rows_and_mixes_brokers() -> None:
    builder = BatchBuilder(("topic", "broker", "queue_offset"))
    half = b"".join(record(0, at) for at in range(ROWS_MAX // 2))
    assert not builder.add(PulledRecords(A, ROWS_MAX, half))
    other = MessageQueue("U", "broker-b", 0)
    assert builder.add(PulledRecords(other, ROWS_MAX, half))
    (batch,) = builder.batches()
    assert batch.num_rows == ROWS_MAX
    assert batch["topic"].to_pylist() == ["T"] * (ROWS_MAX // 2) + ["U"] * (ROWS_MAX // 2)
    assert batch["broker"].to_pylist() == ["broker-a"] * (ROWS_MAX // 2) + ["broker-b"] * (
        ROWS_MAX // 2
    )
    assert not list(builder.batches())


def test_a_large_message_passes_alone() -> None:
    builder = BatchBuilder(("body",))
    assert builder.add(PulledRecords(A, 1, record(0, 0, body=b"x" * (5 << 20))))
    (batch,) = builder.batches()
    assert len(batch["body"][0].as_py()) == 5 << 20


def test_bodies_that_grow_when_they_are_inflated_are_divided_into_batches_of_bounded_size() -> None:
    squeezed = zlib.compress(b"0" * (BYTES_MAX // 4))
    plain, flag = b"plain", sysflag.COMPRESSED_ZLIB
    data = b"".join(
        record(0, at, body=squeezed, sys_flag=flag, pairs={"TAGS": "AB"[at % 2]})
        if at % 3
        else record(0, at, body=plain, pairs={"TAGS": "AB"[at % 2]})
        for at in range(30)
    )
    for tags, step in (("*", 1), ("B", 2)):
        builder = BatchBuilder(("queue_offset", "tags", "body"), tags)
        builder.add(PulledRecords(A, 99, data))
        batches = list(builder.batches())
        assert len(batches) == 5
        assert max(batch.nbytes for batch in batches) < BYTES_MAX * 1.3
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert [row["queue_offset"] for row in rows] == list(range(step - 1, 30, step))
        assert all(
            len(row["body"]) == (BYTES_MAX // 4 if row["queue_offset"] % 3 else 5) for row in rows
        )


def test_no_batch_has_more_than_one_largest_body_beyond_what_a_batch_may_have() -> None:
    flag = sysflag.COMPRESSED_ZLIB
    almost, largest, too_large = (
        zlib.compress(b"0" * size)
        for size in (BYTES_MAX - 1, INFLATED_BYTES_MAX, INFLATED_BYTES_MAX + 1)
    )
    bodies = [almost, largest, too_large] * 3
    builder = BatchBuilder(("queue_offset", "body"))
    records = [record(0, at, body=body, sys_flag=flag) for at, body in enumerate(bodies)]
    builder.add(PulledRecords(A, 99, b"".join(records)))
    before, sizes = pa.total_allocated_bytes(), []
    for batch in builder.batches():
        sizes.append(batch.nbytes)
        assert pa.total_allocated_bytes() - before < 2 * (BYTES_MAX + INFLATED_BYTES_MAX)
    assert len(sizes) == 4
    assert BYTES_MAX + INFLATED_BYTES_MAX < max(sizes) < BYTES_MAX + INFLATED_BYTES_MAX + 10_000


def test_a_body_that_holds_records_does_not_confuse_those_around_it() -> None:
    inner = record(7, 70) + record(7, 71)
    batch = batch_of(record(0, 0, body=inner), record(0, 1), record(0, 2, body=inner[4:]))
    assert batch["body"].to_pylist() == [inner, b"hello", inner[4:]]
    assert batch["queue_offset"].to_pylist() == [0, 1, 2]


def test_tags_of_the_same_hash_are_distinguished() -> None:
    builder = BatchBuilder(("tags",), "Aa || CC")
    pairs = [{"TAGS": "Aa"}, {"TAGS": "BB"}, {}, {"TAGS": "CC"}]
    data = b"".join(record(0, at, pairs=one) for at, one in enumerate(pairs))
    builder.add(PulledRecords(A, 9, data))
    (batch,) = builder.batches()
    assert batch["tags"].to_pylist() == ["Aa", "CC"]


@pytest.mark.parametrize(
    "data",
    [
        b"short",
        record(0, 0) + b"tail",
        record(0, 0)[:-1],
        b"\0" * 200,
        record(0, 0)[:4] + b"\xcb\xd4\x31\x94" + record(0, 0)[8:],
        record(0, 0)[:84] + b"\x7f" + record(0, 0)[85:],
        record(0, 0)[:84] + b"\xff" + record(0, 0)[85:],
        record(0, 0)[:93] + b"\xff" + record(0, 0)[94:],
    ],
)
def test_bytes_that_are_no_records_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        batch_of(data)


TEXT = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1, max_size=9)
RECORDS = st.lists(
    st.tuples(
        st.binary(max_size=40),
        st.dictionaries(
            st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "__SHARDINGKEY", "a", "TAG", "TAGSX"]),
            TEXT,
            max_size=5,
        ),
        st.booleans(),
        st.sampled_from([0, 0x10, 0x20, 0x30]),
        st.sampled_from(["T", "t" * 128]),
    ),
    min_size=1,
    max_size=12,
)


@given(RECORDS)
@settings(max_examples=150)
def test_columns_equal_the_messages_decoded_one_by_one(
    drawn: list[tuple[bytes, dict[str, str], bool, int, str]],
) -> None:
    records = [
        record(
            at % 5,
            at,
            topic=topic,
            body=body,
            pairs=pairs,
            sys_flag=flag,
            born_host=V6 if flag & 0x10 else HOST,
            store_host=V6 if flag & 0x20 else HOST,
            with_crc=with_crc,
        )
        for at, (body, pairs, with_crc, flag, topic) in enumerate(drawn)
    ]
    rows = batch_of(*records).to_pylist()
    for row, one in zip(rows, stored.iterate(b"".join(records)), strict=True):
        pairs = properties.decode(stored.shown_properties(one.properties))
        assert row["body"] == one.body
        assert dict(row["properties"]) == pairs
        assert row["tags"] == pairs.get("TAGS")
        assert row["keys"] == pairs.get("KEYS")
        assert row["sharding_key"] == pairs.get("__SHARDINGKEY")
        offset_id = f"{one.store_host.hex().upper()}{one.phy_offset:016X}"
        assert row["msg_id"] == pairs.get("UNIQ_KEY", offset_id)
        assert (row["queue_id"], row["queue_offset"]) == (one.queue_id, one.queue_offset)
        assert row["phy_offset"] == one.phy_offset
        assert row["born_ts"].timestamp() * 1000 == one.born_ms


def test_a_body_whose_checksum_is_wrong_is_an_error_or_null() -> None:
    data = bytearray(b"".join(record(0, n, pairs={"TAGS": "A"}) for n in range(3)))
    size = len(data) // 3
    data[size + 88] ^= 1
    pulled = PulledRecords(A, 1 << 62, bytes(data))
    builder = BatchBuilder(("body",))
    builder.add(pulled)
    with pytest.raises(DamagedMessage, match="first is 1 of T@broker-a/0"):
        list(builder.batches())
    lenient = BatchBuilder(("body",), fail_on_damage=False)
    lenient.add(pulled)
    (batch,) = lenient.batches()
    assert [body is None for body in batch.column("body").to_pylist()] == [False, True, False]


@given(st.binary(max_size=300), st.integers(0, 400), st.integers(0, 255))
@settings(max_examples=300)
def test_a_damaged_body_gives_rows_or_a_protocol_error(noise: bytes, at: int, value: int) -> None:
    data = bytearray(b"".join(record(0, n, pairs={"TAGS": "A"}) for n in range(3)))
    data[at % len(data)] = value
    for damaged in (bytes(data), bytes(data) + noise, noise):
        try:
            count = len(record_starts(damaged))
            builder = BatchBuilder(EVERY)
            builder.add(PulledRecords(A, 1 << 62, damaged))
            rows = sum(batch.num_rows for batch in builder.batches())
        except (ProtocolError, DamagedMessage):
            continue
        assert rows <= count
