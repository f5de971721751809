"""The hot loops in C give what their form in Python gives, also for what hostile clients send."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import zlib
from array import array
from pathlib import Path
from struct import unpack_from
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq import native
from cometmq.broker.sends.plain_batches import SPECIAL_MARKS
from cometmq.broker.sends.tag_codes import tags_code_of
from cometmq.errors import ProtocolError
from cometmq.store.index.index_entries import no_entries
from cometmq.store.index.key_columns import KeyColumns
from cometmq.store.index.key_hashes import KeyHashes
from cometmq.wire.frame import encode_frame
from cometmq.wire.records import log_record, message_batch, properties
from cometmq.wire.records.consume_queue_entry import ENTRY
from cometmq.wire.records.message_batch import BatchItem
from cometmq.wire.templates.pull_template import PullTemplates

if TYPE_CHECKING:
    from cometmq.wire.templates.pull_template import PullTemplate

if native.c is None:
    pytest.skip(f"the hot loops in C are missing: {native.why_not}", allow_module_level=True)
c = native.c

NAMES = st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS", "KEYS2", "XTAGS", "DELAY", "a", "", "CLUSTER"])
VALUES = st.text(st.sampled_from("ab #\x01é"), max_size=6)
PAIRS = st.lists(st.tuples(NAMES, VALUES), max_size=6)
PROPERTIES = st.builds(
    lambda pairs, end: "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode() + end,
    PAIRS,
    st.sampled_from([b"", b"\x02", b"\x02\x02", b"\x02TAGS"]),
)


def in_python(call):
    """What a call gives with the form in Python."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "c", None)
        return call()


@given(st.binary(max_size=300))
def test_the_checksum_of_a_record_is_that_of_zlib(body):
    shape = (1, 0, b"\x01T", True)
    records, _, _ = c.batch_records(shape, bytes(52), None, 0, 0, 0, 0, [body], [b"a\x01b"], [0])
    assert int.from_bytes(records[8:12], "big") == zlib.crc32(body) & 0x7FFFFFFF
    assert records[-20:] == log_record.checksum_property(records[:-20])
    assert records[-23:-20] == b"\x01b\x02"


@given(st.lists(st.builds(BatchItem, st.integers(-5, 5), st.binary(max_size=9), PROPERTIES)))
def test_a_batch_is_decoded_as_in_python(items):
    raw = message_batch.encode(items)
    assert message_batch.decode(raw) == in_python(lambda: message_batch.decode(raw)) == items


@given(
    st.lists(st.builds(BatchItem, st.just(0), st.binary(max_size=9), st.just(b"a\x01b"))),
    st.binary(max_size=3),
    st.integers(0, 400),
    st.integers(0, 400),
)
def test_a_damaged_batch_is_refused_as_in_python(items, flips, at, cut):
    raw = bytearray(message_batch.encode(items))
    for number, byte in enumerate(flips):
        if raw:
            raw[(at + number) % len(raw)] ^= byte
    damaged = bytes(raw[: len(raw) - cut % (len(raw) + 1)])

    def outcome():
        try:
            return message_batch.decode(damaged)
        except ProtocolError as error:
            return str(error)

    assert outcome() == in_python(outcome)


@given(st.lists(PROPERTIES, max_size=20))
def test_tag_codes_are_those_of_the_tags_or_left_to_python(raws):
    codes = c.plain_tag_codes(raws, SPECIAL_MARKS)
    tags = [properties.find(raw, b"TAGS") or b"" for raw in raws]
    is_special = any(mark in raw for raw in raws for mark in SPECIAL_MARKS)
    if is_special or not all(tag.isascii() for tag in tags):
        assert codes is None
    else:
        assert codes == [tags_code_of(tag) if tag else 0 for tag in tags]


RECORDS = st.lists(
    st.tuples(
        st.sampled_from(["T", "Té", "", "x" * 200]), PROPERTIES, st.sampled_from([0, 4, 12, 16])
    )
)


@given(RECORDS, st.binary(max_size=2), st.integers(0, 5_000), st.integers(0, 200))
def test_keys_are_read_as_in_python_and_never_beyond_a_chunk(records, flips, flip_at, cut):
    chunk = bytearray()
    for topic, raw, flag in records:
        born = bytes(20 if flag & 0x10 else 8)
        fields = (topic, 1, 0, 0, len(chunk), flag, 5, born, 1_000, bytes(8), 0, 0)
        chunk += log_record.encode(*fields, b"body", raw, with_crc=False)
    for number, byte in enumerate(flips):
        if chunk:
            chunk[(flip_at + number) % len(chunk)] ^= byte
    data = bytes(chunk[: len(chunk) - cut % (len(chunk) + 1)])
    index, _, hashes, places, times = c.read_keys(data, 0, 0, len(data), 256, 1024)
    assert 0 <= index <= len(data)
    assert len(places) == len(times) == 2 * len(hashes)
    found = no_entries()
    at = 0
    columns = KeyColumns(KeyHashes())
    while at < index:
        before = at
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native, "c", None)
            at, _ = columns.read(data, 0, at, index, 256, found)
        assert at > before, "what C reads Python reads"
    assert array("I", hashes) == found.hashes
    assert array("q", places) == found.phy_offsets
    assert array("q", times) == found.store_times


@given(
    st.binary(min_size=1, max_size=40), st.lists(st.tuples(st.integers(0, 39), st.integers(0, 9)))
)
def test_pieces_are_gathered_as_slices_are(data, pieces):
    inside = [(at, size) for at, size in pieces if at + size <= len(data)]
    places, sizes = tuple(at + 7 for at, _ in inside), tuple(size for _, size in inside)
    assert c.gather(data, 7, places, sizes) == b"".join(data[at : at + size] for at, size in inside)
    for place, size in ((6, 1), (7 + len(data), 1), (8, len(data)), (7, -1), (1 << 62, 1)):
        assert c.gather(data, 7, (place,), (size,)) is None
    assert c.gather(data, -(1 << 63), ((1 << 63) - 1,), (1,)) is None


def counts_in_stub() -> dict[str, int]:
    """How many arguments each function takes, for type checkers."""
    tree = ast.parse(Path(native.__file__).with_name("_native.pyi").read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {node.name: len(node.args.posonlyargs) - 1 for node in found}


def test_arguments_of_other_types_are_refused():
    wrong = {
        "append_entries": ([1],),
        "batch_records": ((1, 2, 3, 4), b"", 0, 0, 0, 0, 0, [], [], []),
        "batch_results": (list, (0,) * 9, [], 0, ""),
        "chain_keys": (b"slots", b"", b"", b"", 0, 1),
        "checksum_by_tables": ("text",),
        "cut_pulls": (b"", 0, ((b"",), (), 0, 0, 0, 0)),
        "decode_batch": ("text", 0, 1),
        "exchange": (0, "text"),
        "fill_keys": (b"", []),
        "gather": (b"123", 10, (11.0,), (3,)),
        "measure_records": ([b""], [], 1, True),
        "number_keys": ("", 0x1000, 1),
        "one_record": ((0, 0, b"", True), b"", 0, 0, 0, 0, b"", b""),
        "pack_messages": ([], int, id, 32, 99),
        "plain_tag_codes": ([b""], (b"",)),
        "put_batch": (
            *(b"", c.BATCH_MESSAGES_MAX + 1, (), (0, 0, b"", True), bytes(52), [None], id),
            *(0, 0, 0, 0, 0, 0, b""),
        ),
        "put_frames": (b"", 0, (), (0, 0, b"", True), bytes(52), [], 0, 0, 0, 0, 0, int),
        "read_keys": ("text", 0, 0, 0, 0, 0),
        "read_records": (b"", "text", 0, 0, 0),
    }
    assert wrong.keys() == {name for name in dir(c) if callable(getattr(c, name))}
    assert {name: len(arguments) for name, arguments in wrong.items()} == counts_in_stub()
    for name, arguments in wrong.items():
        with pytest.raises((TypeError, ValueError, BufferError, IndexError)):
            getattr(c, name)(*arguments)
        with pytest.raises(TypeError):
            getattr(c, name)()


def test_the_environment_keeps_the_loops_in_c_away():
    code = "from cometmq import native; print(native.c, native.why_not)"
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path), "COMETMQ_NATIVE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.stdout == "None COMETMQ_NATIVE=0 asks for the Python form\n"


def test_a_module_of_another_edition_is_not_used():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "EDITION", native.EDITION + 1)
        module, why_not = native._load()
        assert module is None
        assert "build it again" in why_not
        patch.setattr(native, "c", module)
        patch.setattr(native, "why_not", why_not)
        assert native.form() == f"Python ({why_not})"
    assert native.form() == "C"


PULL_FIELDS = {
    "consumerGroup": "G",
    "topic": "T",
    "queueId": "3",
    "queueOffset": "7",
    "maxMsgNums": "32",
    "sysFlag": "2",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subVersion": "1",
}


def pull_header(**fields: str) -> bytes:
    ext = {**PULL_FIELDS, **fields}
    return json.dumps({"code": 11, "extFields": ext, "flag": 0, "opaque": 5}).encode()


def cut_by_the_template(template: PullTemplate, data: bytes, at: int) -> list[tuple[object, ...]]:
    """What `cut_pulls` must find: each whole frame without a body whose header matches."""
    found: list[tuple[object, ...]] = []
    while len(data) - at > 8 and len(found) < 16:
        total, length = unpack_from(">II", data, at)
        end = at + 4 + total
        matched = template.match(data, at + 8, end)
        if end > len(data) or total != length + 4 or length >> 24 or matched is None:
            break
        values = matched.groups()
        places = (template.queue_at, template.offset_at, template.commit_at)
        found.append((end, *[int(values[one]) for one in places], values[template.opaque_at]))
        at = end
    return found


OFFSETS = st.sampled_from(["0", "1023", "1024", "07", "9" * 18, "9" * 19, "-1", ""])


@given(
    st.lists(st.builds(pull_header, queueId=OFFSETS, queueOffset=OFFSETS), max_size=20),
    st.binary(max_size=2),
    st.integers(0, 5_000),
    st.integers(0, 300),
)
def test_pulls_are_cut_as_their_template_matches(headers, flips, flip_at, cut):
    templates = PullTemplates()
    templates.match_or_learn(pull_header())
    (template,) = templates.templates
    chunk = bytearray(b"".join(map(encode_frame, headers)))
    for number, byte in enumerate(flips):
        if chunk:
            chunk[(flip_at + number) % len(chunk)] ^= byte
    data = bytes(chunk[: len(chunk) - cut % (len(chunk) + 1)])
    for at in (0, cut % (len(data) + 1), len(data) + cut):
        assert c.cut_pulls(data, at, template.form) == cut_by_the_template(template, data, at)


@given(
    st.binary(min_size=1, max_size=60),
    st.lists(st.tuples(st.integers(0, 70), st.integers(-2, 20)), min_size=1, max_size=6),
    st.integers(0, 80),
    st.integers(0, 70),
)
def test_records_of_entries_are_those_inside_a_file_as_many_as_fit(data, pieces, most, limit):
    base = 1 << 40
    entries = b"".join(ENTRY.pack(base + at, size, 0) for at, size in pieces)
    want = []
    for at, size in pieces:
        if size <= 0 or at + size > min(len(data), limit):
            want = []
            break
        if sum(map(len, want)) + size > most:
            break
        want.append(data[at : at + size])
    got = c.read_records(entries, memoryview(data), limit, base, most)
    assert got == ((len(want), b"".join(want)) if want else None)


def test_records_before_a_file_and_of_no_entries_are_none():
    file = memoryview(bytes(100))
    for place in (0, 49, 1 << 62, -1, -(1 << 63)):
        assert c.read_records(ENTRY.pack(place, 1, 0), file, 100, 50, 1 << 62) is None
    assert c.read_records(b"", file, 100, 50, 10) is None
    assert c.read_records(ENTRY.pack(50, 1, 0)[:-1], file, 100, 50, 10) is None
    assert c.read_records(ENTRY.pack(149, 1, 0), file, 1 << 63, 50, 10) == (1, b"\0")
