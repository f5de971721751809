"""Bytes of many rows at once are those of each row by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from cometmq.spark.sink import row_bytes
from cometmq.wire.records import message_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

BYTES = st.binary(max_size=9)
TEXTS = st.text(max_size=3)
ROWS = st.lists(st.tuples(BYTES, BYTES), min_size=1, max_size=6)
MAPS = st.lists(
    st.one_of(st.none(), st.dictionaries(TEXTS, st.one_of(st.none(), TEXTS), max_size=3)),
    max_size=6,
)


def binary(values: Sequence[bytes]) -> pa.Array:
    return pa.array(values, pa.binary())


@given(ROWS, st.integers(1, 40), st.randoms())
def test_items_of_rows_in_any_order_are_those_of_a_batch(
    rows: list[tuple[bytes, bytes]], key_size: int, dice: st.randoms
) -> None:
    bodies, others = zip(*rows, strict=True)
    order = dice.sample(range(len(rows)), dice.randint(1, len(rows)))
    keys = [f"{number:0{key_size}}" for number in range(len(rows))]
    for places in (range(len(rows)), order):
        own = keys[: len(places)]
        items = row_bytes.RowItems("".join(own).encode(), binary(bodies), binary(others), places)
        for begin in range(len(places)):
            for end in range(begin + 1, len(places) + 1):
                expected = message_batch.encode_keyed(
                    own[begin:end],
                    [bodies[at] for at in places[begin:end]],
                    [others[at] for at in places[begin:end]],
                )
                assert items.between(begin, end) == expected


@given(ROWS)
def test_checksums_are_of_the_body_and_then_of_the_text(rows: list[tuple[bytes, bytes]]) -> None:
    bodies, texts = zip(*rows, strict=True)
    assert row_bytes.checksums(binary(bodies), None).to_pylist() == [
        b"/%08x\x02" % crc32(body) for body in bodies
    ]
    assert row_bytes.checksums(binary(bodies), binary(texts)).to_pylist() == [
        b"/%08x\x02" % crc32(text, crc32(body)) for body, text in rows
    ]


@given(MAPS, st.integers(0, 3), st.sets(TEXTS, max_size=2))
def test_properties_of_maps_are_those_of_each_row(
    maps: list[dict[str, str | None] | None], first: int, left_out: set[str]
) -> None:
    entries = [None if one is None else list(one.items()) for one in maps]
    column = pa.array(entries, pa.map_(pa.string(), pa.string())).slice(first)
    found = row_bytes.MapTexts(column, left_out)
    kept = [
        {name: text for name, text in (one or {}).items() if name not in left_out}
        for one in maps[first:]
    ]
    assert [found.pairs(row) for row in range(len(kept))] == kept
    assert found.texts().to_pylist() == [
        "".join(f"{name}\x01{text or ''}\x02" for name, text in one.items()).encode()
        for one in kept
    ]


@given(st.lists(TEXTS, max_size=6))
def test_no_text_that_breaks_a_rule_counts_as_plain(texts: list[str]) -> None:
    odd = row_bytes.odd_places(pa.array(texts, pa.string()))
    wrong = [at for at, text in enumerate(texts) if not text.strip() or {*text} & {"\x01", "\x02"}]
    assert set(wrong) <= set(odd)


def test_usual_texts_are_plain_in_any_script() -> None:
    usual = pa.array(["a", "ü", "消息", "a b", "-", None, "a\n"], pa.string())
    assert row_bytes.odd_places(usual) == []
