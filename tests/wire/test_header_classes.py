"""Every header class: out as texts, back as values, strict about what is mandatory."""

import dataclasses
import inspect
from importlib import import_module
from pkgutil import iter_modules
from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import BadHeader
from cometmq.wire import headers
from cometmq.wire.headers.base import Header, Long, camel_case
from cometmq.wire.headers.offset import SearchOffsetRequestHeader
from cometmq.wire.headers.pull import PullMessageRequestHeader
from cometmq.wire.headers.query import QueryMessageRequestHeader
from cometmq.wire.headers.send import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)

CLASSES = sorted(
    {
        found
        for module in iter_modules(headers.__path__)
        for found in vars(import_module(f"{headers.__name__}.{module.name}")).values()
        if inspect.isclass(found) and issubclass(found, Header) and found is not Header
    },
    key=lambda found: found.__name__,
)
VALUES = {
    str: st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    int: st.integers(-0x80000000, 0x7FFFFFFF),
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
}


def value_of(hint):
    if hint == Long:
        return st.integers(-0x8000000000000000, 0x7FFFFFFFFFFFFFFF)
    if hint in VALUES:
        return VALUES[hint]
    wanted, nothing = get_args(hint)
    assert nothing is type(None)
    return st.none() | value_of(wanted)


def a_header(cls):
    hints = get_type_hints(cls, include_extras=True)
    fields = {field.name: value_of(hints[field.name]) for field in dataclasses.fields(cls)}
    return st.builds(cls, **fields)


def has_default_other_than_none(header):
    return {
        field.name
        for field in dataclasses.fields(header)
        if field.default not in (None, dataclasses.MISSING)
    }


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@given(data=st.data())
def test_headers_come_back_as_they_went(cls, data):
    sent = data.draw(a_header(cls))
    ext = sent.encode()
    assert all(isinstance(text, str) for pair in ext.items() for text in pair)
    got = cls.decode(ext | {"unknown": "field"})
    for field in dataclasses.fields(cls):
        value = getattr(sent, field.name)
        if value is None and field.name in has_default_other_than_none(sent):
            value = field.default
        assert getattr(got, field.name) == value


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_wire_names_are_distinct_and_name_real_fields(cls):
    names = {field.name for field in dataclasses.fields(cls)}
    assert set(cls.wire_names) <= names
    wire = [cls.wire_names.get(name, camel_case(name)) for name in names]
    assert len(set(wire)) == len(wire)


def test_both_send_headers_have_the_same_fields_under_the_same_names():
    v1 = [field.name for field in dataclasses.fields(SendMessageRequestHeader)]
    assert [field.name for field in dataclasses.fields(SendMessageRequestHeaderV2)] == v1
    assert sorted(SendMessageRequestHeaderV2.wire_names) == sorted(v1)
    assert sorted(SendMessageRequestHeaderV2.wire_names.values()) == list("abcdefghijklmn")


def test_names_that_are_not_camel_case_are_those_of_the_wire():
    assert PullMessageRequestHeader.wire_names["suspend_timeout_ms"] == "suspendTimeoutMillis"
    assert QueryMessageRequestHeader.wire_names["is_unique_key"] == "_UNIQUE_KEY_QUERY"
    assert camel_case("suggest_which_broker_id") == "suggestWhichBrokerId"


def test_a_missing_mandatory_field_is_named_as_on_the_wire():
    with pytest.raises(BadHeader) as caught:
        SearchOffsetRequestHeader.decode({"topic": "T", "timestamp": "1"})
    assert caught.value.field == "queueId"


@pytest.mark.parametrize(
    "text", ["", "x", "1.5", "1_0", " 1", "1 ", "0x1", "2147483648", "9" * 5000, "\u0663"]
)
def test_what_is_no_32_bit_number_is_refused(text):
    with pytest.raises(BadHeader) as caught:
        SearchOffsetRequestHeader.decode({"topic": "T", "queueId": text, "timestamp": "1"})
    assert caught.value.field == "queueId"
    assert len(str(caught.value)) < 150


def test_64_bit_numbers_have_64_bits():
    found = SearchOffsetRequestHeader.decode(
        {"topic": "T", "queueId": "+1", "timestamp": "-9223372036854775808"}
    )
    assert (found.queue_id, found.timestamp) == (1, -(2**63))
    with pytest.raises(BadHeader):
        SearchOffsetRequestHeader.decode(
            {"topic": "T", "queueId": "1", "timestamp": "9223372036854775808"}
        )


def test_booleans_are_written_in_lower_case_and_read_in_any():
    header = SendMessageResponseHeader(msg_id="x", queue_id=0, queue_offset=0, trace_on=True)
    assert header.encode() == {"msgId": "x", "queueId": "0", "queueOffset": "0", "TRACE_ON": "true"}
    assert SendMessageResponseHeader.decode(header.encode() | {"TRACE_ON": "TRUE"}).trace_on
