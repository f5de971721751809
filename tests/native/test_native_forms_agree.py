"""Frames, records, entries and batches: the loops in C give what their form in Python gives."""

from __future__ import annotations

import json
import random
from array import array
from itertools import accumulate
from typing import TYPE_CHECKING, cast
from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cometmq import native
from cometmq.broker.sends.tag_codes import tags_code_of
from cometmq.runtime.system_clock_and_files import MappedFile
from cometmq.store.index.index_entries import IndexEntries
from cometmq.store.index.index_file import IndexFile, IndexFileLayout
from cometmq.store.queues.consume_queues import _append_each
from cometmq.wire.frame import encode_frame
from cometmq.wire.records import log_record
from cometmq.wire.records.index_file_layout import IndexFileHeader
from cometmq.wire.templates.send_template import SendTemplates

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.wire.templates.send_template import SendTemplate

if native.c is None:
    pytest.skip(f"the hot loops in C are missing: {native.why_not}", allow_module_level=True)
c = native.c

I64 = st.integers(-(1 << 63), (1 << 63) - 1)


class Queue:
    """What the loops know of a consume queue."""

    def __init__(self, next_offset: int = 0) -> None:
        self.next_offset = next_offset
        self.tail = bytearray()


# ---- frames


def header(properties: dict[str, str], opaque: int = 1) -> bytes:
    raw = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    numbers = {"e": "0", "g": "17", "i": raw, "j": "0"}
    fields = {"a": "G", "b": "T", "c": "T", "d": "4", "f": "0", "h": "0", **numbers}
    return json.dumps({"code": 310, "extFields": fields, "opaque": opaque, "flag": 0}).encode()


def template_of(raw: bytes) -> SendTemplate:
    templates = SendTemplates()
    templates.match_or_learn(raw)
    found = templates.match_at(raw, 0, len(raw))
    assert found is not None
    return found[0]


def layout_of(template: SendTemplate) -> tuple[object, ...]:
    assert template.layout is not None
    return template.layout


TEMPLATE = template_of(header({"UNIQ_KEY": "A", "KEYS": "k", "TAGS": "t"}))
DIGITS = st.one_of(
    st.sampled_from(["", "0", "007", "1023", "1024", "00", "9" * 18, "9" * 19, "9" * 9, "9" * 10]),
    st.integers(0, 1 << 64).map(str),
    st.integers(0, 9).map(str),
)
TEXTS = st.one_of(
    st.sampled_from(
        [b"", b"x" * 1024, b"x" * 1025, b"\x7f", b"\x80", b'"', b"\\", b"\x1f", b"a b"]
    ),
    st.sampled_from([b"a", b"b"]),
    st.binary(max_size=3),
)


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """A frame of the template's text, mostly with values that it takes."""
    is_plain = draw(st.integers(0, 9)) > 1
    numbers = {TEMPLATE.queue_at, TEMPLATE.born_at, TEMPLATE.opaque_at}
    raw = TEMPLATE.literals[0]
    for place, literal in enumerate(TEMPLATE.literals[1:]):
        if is_plain:
            value = b"%d" % draw(st.integers(1, 5))
        else:
            value = draw(DIGITS).encode() if place in numbers else draw(TEXTS)
        raw += value + literal
    kind = draw(st.sampled_from([0] * 9 + [1]))
    return encode_frame(
        raw, draw(st.binary(min_size=draw(st.integers(0, 9)) > 0, max_size=9)), kind
    )


# ---- records

SEPARATED = st.lists(st.sampled_from([b"a\x01b\x02", b"KEYS\x01k\x02"]), max_size=3).map(b"".join)
TOPICS = st.sampled_from(["T", "Té", "x" * 127, "x" * 200])


def shape_of(topic: str, flag: int, sys_flag: int, with_sum: bool) -> tuple[object, bytes, bytes]:
    """What records share: the shape, the fields behind the front, and the sender's host."""
    magic, topic_part = log_record.topic_part(topic)
    host = bytes(range(20 if sys_flag & 0x10 else 8))
    fields = (sys_flag, 0, host, 99, bytes(8), 7, 0, 0)
    return (
        (magic, flag, topic_part, with_sum),
        log_record.behind_front(sys_flag).pack(*fields),
        host,
    )


def record(topic, queue_id, flag, number, place, sys_flag, born, host, body, raw, with_sum):
    hosts = born, host, 99, bytes(8)
    front = topic, queue_id, flag, number, place, sys_flag
    return log_record.encode(*front, *hosts, 7, 0, body, raw, with_sum)


PIECES = b"UNIQ_KEY\x01", b"\x02KEYS\x01", b"\x02TAGS\x01", b"\x02end\x01\x02"


@given(
    *(TOPICS, st.integers(-(1 << 31), (1 << 31) - 1), st.sampled_from([0, 0x10]), st.booleans()),
    st.lists(frames(), max_size=6),
    st.integers(0, 500),
    st.binary(max_size=2),
    st.integers(0, 2000),
    st.sampled_from([5, 9, 1024]),
    st.sampled_from([3, 1024]),
    *(st.sampled_from([300, 700, 1 << 30]), st.sampled_from([30, 3_000])),
    st.sampled_from([150, 9_999]),
)
def test_the_sends_of_frames_are_put_that_the_template_matches_and_limits_allow(
    topic,
    flag,
    sys_flag,
    with_sum,
    pieces,
    cut,
    flips,
    at,
    body_max,
    queues_max,
    room,
    raw_max,
    most,
):
    raw = bytearray(b"??" + b"".join(pieces))
    for number, byte in enumerate(flips):
        raw[(at + number) % len(raw)] ^= byte
    data = bytes(raw[: max(2, len(raw) - cut)] if cut < 100 else raw)
    shape, behind, host = shape_of(topic, flag, sys_flag, with_sum)
    queues: list[Queue | None] = [None] * 1024
    queues[1], queues[3] = Queue(5), Queue(1 << 40)
    numbers = [5 if at == 1 else 1 << 40 if at == 3 else 0 for at in range(1024)]
    expected, begin, place = [], 2, 1000
    while len(data) - begin > 8:
        total, mark = int.from_bytes(data[begin : begin + 4], "big"), data[begin + 4 : begin + 8]
        body_at, end = begin + 8 + int.from_bytes(mark, "big"), begin + 4 + total
        if mark[0] or not body_at < end <= len(data) or end - body_at > body_max:
            break
        found = TEMPLATE.match(data, begin + 8, body_at)
        if found is None or int(found.groups()[TEMPLATE.queue_at]) >= queues_max:
            break
        values = found.groups()
        queue_id, born = int(values[TEMPLATE.queue_at]), int(values[TEMPLATE.born_at])
        texts = values[TEMPLATE.texts]
        own = PIECES[0] + b"".join(map(b"".join, zip(texts, PIECES[1:], strict=True)))
        number, body = numbers[queue_id], data[body_at:end]
        if len(own) > raw_max:
            break
        made = record(
            *(topic, queue_id, flag, number, place, sys_flag, born, host, body, own), with_sum
        )
        if len(made) > most or room - (place - 1000) < len(made) + 8:
            break
        gaps = place, queue_id, number, texts[TEMPLATE.unique_at], values[TEMPLATE.opaque_at]
        answer = encode_frame(b"{%016X,%d,%d,'%b',%b}" % gaps)
        code = tags_code_of(texts[TEMPLATE.tags_at])
        expected.append((made, (queue_id, place, len(made), code), answer))
        place += len(made)
        numbers[queue_id] += 1
        begin = end
    answer_pieces = b"{", b",", b",", b",'", b"',", b"}"
    form = (
        *(*layout_of(TEMPLATE), TEMPLATE.unique_at, TEMPLATE.tags_at),
        *(PIECES, answer_pieces, 0, queues_max),
    )
    got_end, total, records, entries, answers = c.put_frames(
        *(data, 2, form, shape, behind, queues, 1000, room, body_max, raw_max, most),
        lambda _: Queue(),
    )
    assert (got_end, total) == (begin, place - 1000)
    assert records == [made for made, _, _ in expected]
    assert answers == [answer for _, _, answer in expected]
    ids = {id(queue): at for at, queue in enumerate(queues) if queue is not None}
    assert [(ids[id(queue)], *rest) for queue, *rest in entries] == [e for _, e, _ in expected]
    assert {at: queue.next_offset for at, queue in enumerate(queues) if queue is not None} == {
        at: number for at, number in enumerate(numbers) if queues[at] is not None
    }


@given(
    TOPICS,
    st.sampled_from([0, 0x10]),
    st.booleans(),
    st.lists(st.tuples(st.binary(max_size=40), st.one_of(SEPARATED, st.binary(max_size=5)), I64)),
    I64,
)
def test_a_batch_of_records_is_encoded_as_one_by_one(topic, sys_flag, with_sum, messages, born):
    shape, behind, host = shape_of(topic, 3, sys_flag, with_sum)
    columns = [list(column) for column in zip(*messages, strict=True)] or [[], [], []]
    bodies, raws, codes = columns
    sizes = [log_record.size_of(topic, body, raw, sys_flag, with_sum) for body, raw, _ in messages]
    places = list(accumulate(sizes, initial=50))
    made = [
        record(topic, 2, 3, 9 + number, places[number], sys_flag, born, host, body, raw, with_sum)
        for number, (body, raw, _) in enumerate(messages)
    ]
    queue = Queue()
    got = c.batch_records(shape, behind, queue, 2, 9, 50, born, bodies, raws, codes)
    entries = list(zip([queue] * len(made), places, sizes, codes, strict=False))
    assert got == (b"".join(made), entries, places[:-1])
    fixed = log_record.size_of(topic, b"", b"", sys_flag, with_sum)
    total, longest, largest = c.measure_records(bodies, raws, fixed, with_sum)
    added = [len(raw) + (with_sum and bool(raw) and raw[-1] != 2) for raw in raws]
    assert (total, longest, largest) == (sum(sizes), max([0, *added]), max([0, *sizes]))


@pytest.mark.parametrize("start", [0, 1, 5])
def test_checksums_are_those_of_python_whatever_the_length(start):
    shape, behind, host = shape_of("T", 0, 0, with_sum=True)
    noise = random.Random(1).randbytes(700)
    for size in range(1, 600):
        body = noise[start : start + size]
        made = c.one_record(shape, behind, 1, 2, 3, 4, body, b"")
        assert made == record("T", 1, 0, 2, 3, 0, 4, host, body, b"", True)
        assert c.checksum_by_tables(body) == crc32(body)


def test_a_record_that_is_longer_than_its_fields_can_say_is_refused():
    shape, behind, _ = shape_of("T", 0, 0, with_sum=False)
    with pytest.raises(ValueError, match="longer than it may be"):
        c.batch_records(shape, behind, None, 0, 0, 0, 0, [b""], [b"x" * 0x8000], [0])
    with pytest.raises(ValueError, match="longer than it may be"):
        c.one_record(shape, behind, 0, 0, 0, 0, b"", b"x" * 0x8000)
    assert len(c.one_record(shape, behind, 0, 0, 0, 0, b"", b"x" * 0x7FFF)) == 91 + 1 + 0x7FFF


# ---- entries of queues


@given(st.lists(st.tuples(st.integers(0, 19), I64, st.integers(0, (1 << 31) - 1), I64)))
def test_entries_are_appended_as_one_by_one(rows):
    ours, theirs = [[Queue() for _ in range(20)] for _ in range(2)]
    got = c.append_entries([(ours[at], *fields) for at, *fields in rows])
    expected = _append_each([(cast("object", theirs[at]), *fields) for at, *fields in rows])  # type: ignore[misc,list-item]
    assert [queue.tail for queue in ours] == [queue.tail for queue in theirs]
    numbers = {queue: at for queues in (ours, theirs) for at, queue in enumerate(queues)}
    assert {(numbers[queue], code) for queue, code in got} == {
        (numbers[cast("Queue", queue)], code) for queue, code in expected
    }


def test_a_list_that_is_emptied_while_its_entries_are_appended_does_no_harm():
    class Emptying(Queue):
        def __hash__(self) -> int:
            entries.clear()
            return 1

    queue = Emptying()
    entries = [(queue, 1, 2, number) for number in range(5)]
    assert len(c.append_entries(entries)) == 5
    assert len(queue.tail) == 100


# ---- entries of the key index


@given(
    st.lists(
        st.tuples(
            st.one_of(st.integers(0, (1 << 31) - 1), st.integers(0, 9)),
            st.integers(0, 1 << 50),
            st.one_of(st.integers(-5000, 1 << 43), st.sampled_from([0, 1_000, 1 << 60])),
        ),
        max_size=40,
    ),
    st.integers(0, 1 << 40),
    st.integers(1, 30),
)
@example([(1, 2, 999)], 1_000, 1)
@example([(1, 2, ((1 << 31) - 1) * 1000), (1, 2, (1 << 31) * 1000)], 0, 5)
def test_entries_are_chained_as_in_python(rows, begin_ms, slots):
    fields = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    hashes, places, times = array("I", fields[0]), array("q", fields[1]), array("q", fields[2])
    entries = IndexEntries(hashes, places, times, set(times))
    head = IndexFileHeader(begin_ms, begin_ms, 0, 0, 0, 7)
    file = IndexFile(cast("object", None), IndexFileLayout(slots, 100), head)  # type: ignore[arg-type]
    ours, theirs = file.new_table(), file.new_table()
    for table in (ours, theirs):
        table.lead(0, 3)
    rows_in_c, empty_in_c = file._rows(ours, entries, begin_ms)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "c", None)
        made, empty = file._rows(theirs, entries, begin_ms) if rows else (b"", 0)
    assert (bytes(rows_in_c), empty_in_c) == (bytes(made), empty)
    assert bytes(ours.words) == bytes(theirs.words)


def test_chains_take_buffers_that_begin_anywhere_and_no_number_beyond_32_bits():
    hashes = memoryview(b"?" + array("I", [5, 5]).tobytes())[1:]
    words = memoryview(b"?" + array("q", [8, 9]).tobytes())[1:]
    slots = memoryview(bytearray(9))[1:]
    made = c.chain_keys(slots, hashes, words, words, 0, 1)
    assert made == c.chain_keys(bytearray(8), *map(bytes, (hashes, words, words)), 0, 1)
    for first in ((1 << 32) - 1, 1 << 32, -1):
        with pytest.raises((ValueError, OverflowError)):
            c.chain_keys(slots, hashes, words, words, 0, first)


# ---- reading


def test_keys_are_read_from_nowhere_outside_a_chunk():
    chunk = bytes(500)
    for index, limit in ((501, 500), ((1 << 64) - 80, 500), (0, -1), (450, 500), (0, 1 << 60)):
        assert c.read_keys(chunk, 0, index, limit, 9, 9)[1:] == (9, b"", b"", b"")
    with pytest.raises(ValueError, match="at once"):
        c.read_keys(chunk, 0, 0, 500, 9, (1 << 62) - 1024)


@pytest.mark.parametrize("place", [0, 5, 4_000, 1 << 40, -(1 << 40)])
def test_pieces_by_a_damaged_entry_of_a_queue_are_those_of_the_form_in_python(
    place: int, tmp_path: Path
):
    """Readers find out which record is not whole; an entry between others was never checked."""
    path = tmp_path / "log"
    path.write_bytes(bytes(range(250)) * 16)
    file = MappedFile(path, 4_000)
    places, sizes = (100, place, 300), (7, 9, 8)
    got = file.gather(50, places, sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "c", None)
        assert got == file.gather(50, places, sizes)
    file.close()
