"""Batches at a broker: the loops in C give what their form in Python gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq import native
from cometmq.broker.sends.plain_batches import SPECIAL_MARKS
from cometmq.wire.records import log_record, message_batch

if TYPE_CHECKING:
    from types import ModuleType


if native.c is None:
    pytest.skip(f"the hot loops in C are missing: {native.why_not}", allow_module_level=True)
c: ModuleType = native.c


class Queue:
    """What the loops know of a consume queue."""

    next_offset = 7


def shape_of(*, with_sum: bool) -> tuple[object, bytes]:
    """What records share: the shape, and the fields behind the front."""
    magic, topic_part = log_record.topic_part("T")
    fields = (0, 0, bytes(8), 99, bytes(8), 7, 0, 0)
    return (magic, 0, topic_part, with_sum), log_record.behind_front(0).pack(*fields)


ITEMS = st.lists(
    st.builds(
        message_batch.BatchItem,
        st.sampled_from([0] * 9 + [1]),
        st.binary(min_size=1, max_size=9),
        st.one_of(
            st.sampled_from(
                [
                    b"",
                    b"UNIQ_KEY\x01u\x02TAGS\x01a\x02",
                    b"UNIQ_KEY\x01u\x02TAGS\x01a",
                    b"TAGS\x01b\x02KEYS\x01k",
                    b"TAGS\x01\xc3\xa9",
                    b"KEYS\x01DELAY\x01",
                    b"DELAY\x013",
                    b"x" * 90,
                ]
            ),
            st.binary(max_size=9),
        ),
    ),
    min_size=1,
    max_size=5,
)


@given(ITEMS, st.booleans(), st.integers(0, 400), st.integers(1, 5), st.binary(max_size=2))
def test_the_body_of_a_batch_is_stored_as_its_messages_are(items, with_sum, room, most, harm):
    shape, behind = shape_of(with_sum=with_sum)
    body = message_batch.encode(items) + harm
    queue, size_max, properties_max = Queue(), 180, 80
    made = c.put_batch(
        *(body, most, SPECIAL_MARKS, shape, behind, [None, None], [None, queue].__getitem__),
        *(1, 1000, 5 * room, 99, properties_max, size_max, b"AB"),
    )
    raws = [item.properties for item in items]
    bodies = [item.body for item in items]
    codes = c.plain_tag_codes(raws, SPECIAL_MARKS)
    fixed = 36 + len(behind) + 2 + len("T") + 1 + 20 * with_sum
    total, longest, largest = c.measure_records(bodies, raws, fixed, with_sum)
    is_usual = not harm and codes is not None and not any(item.flag for item in items)
    is_short = len(items) <= most and longest <= properties_max and largest <= size_max
    if not (is_usual and is_short and total + 8 <= 5 * room):
        assert made is None
        return
    assert made is not None
    records, entries, places = c.batch_records(
        *(shape, behind, queue, 1, 7, 1000, 99, bodies, raws, codes)
    )
    ids = b",".join([b"AB%016X" % place for place in places])
    assert made == (records, entries, ids, 7)


def test_an_error_of_opening_a_queue_is_passed_on():
    shape, behind = shape_of(with_sum=True)
    body = message_batch.encode([message_batch.BatchItem(0, b"x", b"")])
    with pytest.raises(KeyError):
        c.put_batch(
            *(body, 9, (), shape, behind, [None], {}.__getitem__), *(0, 0, 999, 0, 99, 999, b"")
        )
