"""Handles of messages that can be recalled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import ProtocolError
from cometmq.wire import recall_handle
from cometmq.wire.recall_handle import RecallHandle

WORD = st.text(st.characters(codec="utf-8", exclude_characters=" "), min_size=1, max_size=20)


@given(WORD, WORD, st.integers(0, 1 << 60), WORD)
def test_a_handle_says_what_it_was_made_of(topic, broker, slot_ms, key):
    handle = RecallHandle(topic, broker, slot_ms, key)
    assert recall_handle.decode(recall_handle.encode(handle)) == handle


def test_a_handle_is_as_apache_makes_it():
    handle = RecallHandle("T", "broker-a", 1_700_000_000_001, "0A0B")
    assert recall_handle.encode(handle) == "djEgVCBicm9rZXItYSAxNzAwMDAwMDAwMDAxIDBBMEI="


@given(st.text() | st.binary())
def test_anything_else_is_refused(text):
    try:
        found = recall_handle.decode(text)
    except ProtocolError:
        return
    assert found.slot_ms >= 0


@pytest.mark.parametrize("bad", [None, 5, "", "djEgVCBi", "djIgVCBiIDEgYQ=="])
def test_what_is_no_handle_says_so(bad):
    with pytest.raises(ProtocolError, match="is no handle"):
        recall_handle.decode(bad)
