"""Properties are read alike, whether all rows have the same keys or not."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from cometmq.spark.source.property_entries import Properties, PropertyEntries
from cometmq.wire.records import properties

KEYS = ("UNIQ_KEY", "KEYS", "TAGS", "a", "__CRC32#")
VALUE = st.text(st.sampled_from("abK\x01"), max_size=4)
EQUAL_KEYS = st.lists(st.sampled_from(KEYS), max_size=5).flatmap(
    lambda keys: st.lists(
        st.tuples(*[VALUE] * len(keys)).map(
            lambda values: "".join(
                f"{key}\x01{value}\x02" for key, value in zip(keys, values, strict=True)
            )
        ),
        min_size=1,
        max_size=8,
    )
)
LOOSE = st.lists(
    st.lists(st.sampled_from([*KEYS, "\x01", "\x02", "b", ""]), max_size=12).map("".join),
    min_size=1,
    max_size=4,
)


@given(st.one_of(EQUAL_KEYS, LOOSE))
@example(["TAGS\x01A\x02", "TAGS\x01\x02a\x01b\x02"])
@example(["a\x01b\x02", "a\x02bb\x02"])
@example(["TAGS\x01A\x02TAGS\x01B\x02"] * 2)
@example(["a\x01b\x02", "TAGS\x01A\x02a\x01b\x02"])
def test_a_property_is_what_a_record_alone_would_have_it(texts: list[str]) -> None:
    raw = pa.array([text.encode() for text in texts], pa.binary())
    alone = [properties.decode(text.encode()) for text in texts]
    at_once, one_by_one = Properties(raw), PropertyEntries(raw)
    for key in KEYS:
        expected = [pairs.get(key) for pairs in alone]
        assert at_once.values(key.encode()).to_pylist() == expected
        assert one_by_one.values(key.encode()).to_pylist() == expected
    shown = [{key: value for key, value in one.items() if key != "__CRC32#"} for one in alone]
    assert [dict(pairs) for pairs in at_once.as_map().to_pylist()] == shown


def test_there_may_be_more_rows_than_what_is_kept_from_batch_to_batch() -> None:
    raw = pa.array([b"TAGS\x01%d\x02" % number for number in range(9_000)], pa.binary())
    assert Properties(raw).values(b"TAGS").to_pylist() == [str(number) for number in range(9_000)]
