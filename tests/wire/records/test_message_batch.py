"""Bodies of batches: what two ways write is the same, and comes back as it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cometmq.wire.records import message_batch
from cometmq.wire.records.message_batch import BatchItem

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
