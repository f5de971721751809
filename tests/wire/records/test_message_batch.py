"""Bodies of batches: what two ways write is the same, and comes back as it was."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import ProtocolError
from cometmq.wire.records import message_batch
from cometmq.wire.records.message_batch import BatchItem

pytestmark = pytest.mark.usefixtures("each_form")

ROWS = st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=9)), min_size=1, max_size=6)


@given(ROWS, st.integers(1, 40))
def test_items_made_of_columns_are_those_made_one_by_one(
    rows: list[tuple[bytes, bytes]], key_size: int
) -> None:
    keys = [f"{number:0{key_size}}" for number in range(len(rows))]
    items = [
        BatchItem(0, body, b"UNIQ_KEY\x01%b\x02%b" % (key.encode(), raw))
        for key, (body, raw) in zip(keys, rows, strict=True)
    ]
    bodies, others = zip(*rows, strict=True)
    body = message_batch.encode_keyed(keys, bodies, others)
    assert body == message_batch.encode(items)
    assert message_batch.decode(body) == items


def decoded(raw: bytes, count: int) -> object:
    try:
        return message_batch.decode_part(raw, 0, count)
    except ProtocolError as error:
        return str(error)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9), st.integers(0, 9)), max_size=4),
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=2),
    st.integers(1, 60),
    st.integers(0, 40),
)
def test_items_of_one_size_are_decoded_as_one_by_one(
    runs: list[tuple[int, int, int]], harm: list[tuple[int, int]], count: int, cut: int
) -> None:
    raw = bytearray()
    for items, body_bytes, raw_bytes in runs:
        for number in range(items):
            body, properties = b"%09d" % number, b"%09d" % (number * 7)
            raw += message_batch.encode(
                [BatchItem(number, body[:body_bytes], properties[:raw_bytes])]
            )
    for place, value in harm:
        if raw:
            raw[place % len(raw)] = value
    data = bytes(raw[: max(0, len(raw) - cut)])
    with patch.object(message_batch, "_FEW", 1 << 30):
        expected = decoded(data, count)
    assert decoded(data, count) == expected
