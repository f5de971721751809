"""Dead letters fit into a record, whatever the message brought along."""

from hypothesis import given
from hypothesis import strategies as st

from cometmq.rules.failures.dead_letter_properties import fit_property_pairs

DETAILS = {
    "DLQ_ATTEMPTS": "3",
    "DLQ_FAILED_AT": "1753000000000",
    "DLQ_ORIGIN_QUEUE_ID": "3",
    "DLQ_ORIGIN_OFFSET": "17",
}
KEPT = {
    "UNIQ_KEY": "U" * 32,
    "RETRY_TOPIC": "orders",
    "DLQ_ORIGIN_TOPIC": "orders",
    "DLQ_ORIGIN_MESSAGE_ID": "U" * 32,
}
REASON = {"DLQ_REASON": "ValueError: " + "x" * 500}


def size(pairs):
    return sum(len(name.encode()) + len(text.encode()) + 2 for name, text in pairs.items())


def test_what_fits_is_left_alone():
    pairs = {"own": "x" * 100, **KEPT, **DETAILS, **REASON}
    assert fit_property_pairs(pairs, size(pairs)) == (pairs, [])


def test_the_reason_is_shortened_first_then_the_facts_of_the_failure_go():
    pairs = {"own": "x" * 100, **KEPT, **DETAILS, **REASON}
    found, left_out = fit_property_pairs(pairs, size(pairs) - 400)
    assert found == {**pairs, "DLQ_REASON": REASON["DLQ_REASON"][:-400]}
    assert not left_out
    without = pairs.keys() - {"DLQ_REASON", "DLQ_ORIGIN_OFFSET"}
    found, left_out = fit_property_pairs(pairs, size({name: pairs[name] for name in without}))
    assert found.keys() == without
    assert not left_out
    found, left_out = fit_property_pairs(pairs, size(KEPT) + size({"own": "x" * 100}))
    assert (found, left_out) == ({"own": "x" * 100, **KEPT}, [])


def test_the_longest_property_of_the_message_goes_last_and_the_reason_names_it():
    pairs = {"own": "x" * 900, "small": "y", "REAL_TOPIC": "%RETRY%g", **KEPT, **DETAILS, **REASON}
    found, left_out = fit_property_pairs(pairs, 1000)
    assert left_out == ["own"]
    assert found["DLQ_REASON"].startswith("[without own] ValueError: xxx")
    assert found["small"] == "y"
    assert DETAILS.items() <= found.items()


def test_a_brokers_own_properties_give_way_before_those_of_the_message():
    pairs = {"own": "x" * 900, "REAL_TOPIC": "%RETRY%g", "CLUSTER": "c", **KEPT}
    found, left_out = fit_property_pairs(pairs, size({"own": "x" * 900, **KEPT}))
    assert (found, left_out) == ({"own": "x" * 900, **KEPT}, [])


texts = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)


@given(st.dictionaries(texts, texts, max_size=6), texts, st.integers(0, 400))
def test_a_dead_letter_always_fits_and_keeps_the_properties_of_its_origin(own, reason, spare):
    pairs = {**own, **KEPT, **DETAILS, "DLQ_REASON": reason}
    bytes_max = size(KEPT) + spare
    found, left_out = fit_property_pairs(pairs, bytes_max)
    assert size(found) <= bytes_max
    assert KEPT.items() <= found.items()
    assert set(left_out) == own.keys() - found.keys()
