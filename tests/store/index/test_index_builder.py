"""The hashes of a message's keys are those of RocketMQ, whatever is remembered of earlier ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cometmq.store.index.index_builder import KeyHashes
from cometmq.wire.records import properties
from cometmq.wire.records.index_file_layout import key_hash

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
