"""Many records indexed at once give the same files as one record after the other, byte for byte."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cometmq import native
from cometmq.runtime.system_clock_and_files import SystemFiles
from cometmq.settings.store import StoreSettings
from cometmq.store.index.index_builder import KeyedRecordReader
from cometmq.store.index.key_columns import KeyColumns
from cometmq.store.index.key_index import KeyIndex
from cometmq.store.log.mapped_file_queue import OpenFiles
from cometmq.testing.sim_files import SimClock
from cometmq.wire.records import log_record
from cometmq.wire.records.index_file_layout import ENTRY, ENTRY_BYTES, HEADER, HEADER_BYTES, SLOT

if TYPE_CHECKING:
    from cometmq.store.log.commit_log import CommitLog

pytestmark = pytest.mark.usefixtures("each_form")

FILE_BYTES = 1 << 20
CLIENT = b"7F0000010E6B18B4AAC2"


class LogInMemory:
    """The bytes of some records, as the index reads them."""

    first = 0

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, at: int, length: int, cached_only: bool = False) -> bytes:
        del cached_only
        return self.data[at : at + length]


class OneByOne(KeyColumns):
    """What takes no record, so that each is read by itself."""

    def read(self, chunk, at, index, limit, count, found):  # type: ignore[no-untyped-def]
        return index, count


def plain_files(log: LogInMemory, slots: int, entries_max: int) -> list[bytes]:
    """Index files as RocketMQ writes them: one record, one key, one entry after the other."""
    reader = KeyedRecordReader(log, FILE_BYTES)
    reader._columns = OneByOne(reader._hashes)
    found, at = [], 0
    while at < len(log.data):
        entries, at = reader.read(at, len(log.data), 64)
        found += zip(entries.hashes, entries.phy_offsets, entries.store_times, strict=True)
    files: list[bytes] = []
    end_ms = end_phy = 0
    for begin in range(0, len(found), entries_max - 1):
        part = found[begin : begin + entries_max - 1]
        newest, used, begin_ms = {}, 0, end_ms
        raw = bytearray(HEADER_BYTES + slots * 4 + entries_max * ENTRY_BYTES)
        for number, (hashed, phy_offset, store_ms) in enumerate(part, 1):
            slot, base = hashed % slots, begin_ms if begin_ms > 0 or number > 1 else store_ms
            seconds = min(max((store_ms - base) // 1000, 0), 0x7FFFFFFF)
            used += slot not in newest
            entry_at = HEADER_BYTES + slots * 4 + number * ENTRY_BYTES
            ENTRY.pack_into(raw, entry_at, hashed, phy_offset, seconds, newest.get(slot, 0))
            SLOT.pack_into(raw, HEADER_BYTES + slot * 4, number)
            newest[slot] = number
            if number == 1:
                begin_ms, begin_phy = store_ms, phy_offset
        end_ms, end_phy = part[-1][2], part[-1][1]
        HEADER.pack_into(raw, 0, begin_ms, end_ms, begin_phy, end_phy, used, len(part) + 1)
        files.append(bytes(raw))
    return files


def files_of(log: LogInMemory, slots: int, entries_max: int, writes_every: int) -> list[bytes]:
    """The files of the index itself, written again and again while it grows."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "index"
        chosen = StoreSettings(max_hash_slot_num=slots, max_index_num=entries_max)
        index = KeyIndex(
            SystemFiles(), SimClock(), root, chosen, cast("CommitLog", log), OpenFiles(8)
        )
        index._record_reader = KeyedRecordReader(log, FILE_BYTES)
        slices = 1
        while index.advance(len(log.data)) or index.waiting > index._waiting_max:
            if slices % writes_every == 0 or index.waiting > index._waiting_max:
                index.flush_now()
            slices += 1
        index.flush_now()
        assert index.position >= len(log.data)
        index.close()
        return [path.read_bytes() for path in sorted(root.iterdir())] if root.exists() else []


def record(at: int, topic: str, raw: bytes, body: bytes, store_ms: int, flag: int = 0) -> bytes:
    born, host = bytes(20 if flag & 0x10 else 8), bytes(20 if flag & 0x20 else 8)
    fields = (topic, 1, 0, 0, at, flag, 5, born, store_ms, host, 0, 0)
    return log_record.encode(*fields, body, raw, with_crc=True)


def unique(number: int, client: bytes = CLIENT) -> bytes:
    return b"UNIQ_KEY\x01%b%08X%04X\x02" % (client, 0x19AB + number // 9, number & 0xFFFF)


SHAPES = {
    "id": unique,
    "id, key and tag": lambda n: b"KEYS\x01order-%08d\x02%bTAGS\x01A\x02" % (n, unique(n)),
    "keys of any length": lambda n: b"%bKEYS\x01%d\x02" % (unique(n), n * 7919 % 1013),
    "two words": lambda n: b"%bKEYS\x01a%d b\x02" % (unique(n), n % 10),
    "a space now and then": lambda n: b"KEYS\x01a%cb\x02" % (b" x"[n % 5 != 3]),
    "tags that change": lambda n: b"TAGS\x01%c\x02%b" % (b"ABC"[n * n % 3], unique(n)),
    "two clients": lambda n: unique(n, (CLIENT, CLIENT[::-1])[n % 2]),
    "the same key": lambda n: b"KEYS\x01same\x02" + unique(n),
    "only a tag": lambda _: b"TAGS\x01t\x02",
    "nothing": lambda _: b"WAIT\x01true\x02",
    "a property that changes": lambda n: b"seq\x01%04d\x02%b" % (n, unique(n)),
    "a separator amid it": lambda n: b"s\x01" + (b"1234\x02", b"1\x02K\x01\x02")[n % 7 == 5],
    "a key amid it": lambda n: b"s\x01" + (b"12345678\x02", b"1\x02KEYS\x01y\x02")[n % 7 == 5],
    "a key that is none": lambda n: b"XKEYS\x01%04d\x02%b" % (n, unique(n)),
    "a key twice": lambda n: b"KEYS\x01%04d\x02KEYS\x01%04d\x02" % (n, n + 1),
    "an empty key behind": lambda n: b"KEYS\x01%04d\x02KEYS\x01\x02" % n,
    "beyond ASCII": lambda n: "KEYS\x01ü%04d\x02".encode() % n,
    "beyond ASCII at times": lambda n: f"KEYS\x01{('uu', 'ü')[n % 5 == 2]}{n:04}\x02".encode(),
    "a long key": lambda n: b"KEYS\x01%070d\x02" % n,
    "a key of the greatest length": lambda n: b"KEYS\x01%064d\x02" % n,
    "no last separator": lambda n: b"%bKEYS\x01%04d" % (unique(n), n),
    "long properties": lambda n: b"x\x01%b\x02%b" % (b"y" * 1000, unique(n)),
}  # fmt: skip
RUNS = st.tuples(
    st.sampled_from(sorted(SHAPES)),
    st.sampled_from(["T", "T", "U", "Topic", "ÜT", "L" * 200]),
    st.sampled_from([0, 0, 0, 0, 0x10, 0x20, 0x4, 0xC]),
    st.integers(1, 60),
    st.booleans(),
)


def log_of(
    runs: list[tuple[str, str, int, int, bool]], mixed: bool, harm: list[tuple[int, int]]
) -> LogInMemory:
    made = []
    for shape, topic, flag, count, spread in runs:
        for n in range(count):
            length = 3 + n * 37 % 60 if spread else 40
            made.append((topic, SHAPES[shape](n), b"b" * length, flag))
    if mixed:
        made = made[::2] + made[1::2][::-1]
    data = bytearray()
    for number, (topic, raw, body, flag) in enumerate(made):
        data += record(len(data), topic, raw, body, 1_000 + number * 53, flag)
    for place, value in harm:
        data[place % len(data)] = value
    return LogInMemory(bytes(data))


@given(
    st.lists(RUNS, min_size=1, max_size=5),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=3),
    st.sampled_from([5, 97, 5000]),
    st.sampled_from([17, 100, 5000]),
    st.integers(1, 3),
)
@settings(max_examples=60, deadline=None)
@example([("id, key and tag", "T", 0, 60, False)] * 5, False, [], 5, 5000, 1)
@example([("id, key and tag", "T", 0, 60, True)] * 5, True, [], 97, 100, 2)
def test_the_files_are_those_of_one_entry_after_the_other(
    runs: list[tuple[str, str, int, int, bool]],
    mixed: bool,
    harm: list[tuple[int, int]],
    slots: int,
    entries_max: int,
    writes_every: int,
) -> None:
    log = log_of(runs, mixed, harm)
    expected = plain_files(log, slots, entries_max)
    assert files_of(log, slots, entries_max, writes_every) == expected


@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize("spread", [False, True])
def test_each_shape_gives_the_same_files_in_a_long_row(shape: str, spread: bool) -> None:
    log = log_of([(shape, "T", 0, 300, spread)], False, [])
    assert files_of(log, 997, 5000, 2) == plain_files(log, 997, 5000)


def test_like_records_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    alone: list[bytes] = []
    monkeypatch.setattr(KeyColumns, "_row", lambda _self, tail: alone.append(tail) or ())
    for shape in ("id", "id, key and tag", "tags that change", "two clients", "the same key"):
        for spread in (False, True):
            log = log_of([(shape, "T", 0, 200, spread)], False, [])
            reader = KeyedRecordReader(log, FILE_BYTES)
            assert reader.read(0, len(log.data), 256)[0].count >= 200
    assert not alone


def test_what_has_no_shape_ends_a_read_after_a_bounded_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native, "c", None)  # in C nothing is slow enough for that
    log = log_of([("two words", "T", 0, 300, False)], False, [])
    reader = KeyedRecordReader(log, FILE_BYTES)
    found, _ = reader.read(0, len(log.data), 256)
    assert found.count == 3 * 64
