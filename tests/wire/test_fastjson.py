"""fastjson's dialect: what Java writes is read, and no bytes make the reader do anything worse."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import ProtocolError
from cometmq.wire.fastjson import NODES_MAX, dumps, loads, object_key

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalars = st.booleans() | st.integers(-(2**63), 2**63) | texts | st.floats(allow_nan=False)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def finite(value):
    if isinstance(value, dict):
        return all(finite(item) for item in value.values()) and "$ref" not in value
    if isinstance(value, list):
        return all(map(finite, value))
    return value not in (float("inf"), float("-inf"))


@given(values.filter(finite), st.booleans())
def test_values_come_back_as_they_went(value, strict):
    data = dumps(value, strict=strict)
    assert loads(data) == value
    assert json.loads(data) == value
    assert data.isascii() or not strict


@given(st.dictionaries(st.integers(-9, 99), texts, max_size=5), st.booleans())
def test_integer_keys_go_bare_unless_strict(table, strict):
    data = dumps(table, strict=strict)
    assert loads(data) == {str(key): value for key, value in table.items()}
    if strict:
        json.loads(data)


def test_keys_are_sorted_and_nulls_left_out():
    assert dumps({"b": 1, "a": None, "B": [None, {}, []]}) == b'{"B":[null,{},[]],"b":1}'
    assert dumps({10: 1, 9: 2}) == b"{9:2,10:1}"


def test_object_keys_go_raw_and_come_back_as_their_text():
    key = object_key({"topic": "T", "queueId": 0, "brokerName": "b"})
    data = dumps({"t": {key: 1}})
    assert data == b'{"t":{{"brokerName":"b","queueId":0,"topic":"T"}:1}}'
    assert loads(data) == {"t": {key: 1}}
    assert loads(dumps({"t": {key: 1}}, strict=True)) == {"t": {key: 1}}


def test_strict_escapes_have_upper_case_hex():
    assert dumps("é😀", strict=True) == b'"\\u00E9\\uD83D\\uDE00"'
    assert dumps("é😀") == '"é😀"'.encode()


def test_doubles_are_written_as_java_reads_them():
    written = dumps([1.0, 1e20, 1.5e-9, float("nan"), float("inf"), -0.5])
    assert written == b"[1.0,1.0E20,1.5E-9,null,null,-0.5]"


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b'{0:"a",1:"b"}', {"0": "a", "1": "b"}),
        (b"{'a':'b\"c'}", {"a": 'b"c'}),
        (b"{a:1,b_2:[true,false,null],}", {"a": 1, "b_2": [True, False, None]}),
        (b"{0:1L,1:2.5D,2:-3,3:1.5e2}", {"0": 1, "1": 2.5, "2": -3, "3": 150.0}),
        (b'{{"b":1,"a":2}:3}', {'{"a":2,"b":1}': 3}),
        (b'{{{"x":1}:2}:3}', {'{"{\\"x\\":1}":2}': 3}),
        (b'{0:"\\ud83d\\ude00 \\x"}'.replace(b" \\x", b"\\n\\/\\v"), {"0": "😀\n/\v"}),
        (b"\xef\xbb\xbf {0 : [ 1 , 2 ] } ", {"0": [1, 2]}),
        (b"{0:NaN}", {"0": None}),
        (b'{"a":NaN}', {"a": None}),
        (b'{"a":"\x01"}', {"a": "\x01"}),
        (b"[]", []),
        (b"7", 7),
    ],
)
def test_javas_dialect_is_read(data, wanted):
    assert loads(data) == wanted


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"{0",
        b"{0:",
        b"{0:1",
        b"{0:1 2}",
        b"[1",
        b"[,]",
        b"{0:1}}",
        b"'abc",
        b'{0:"\\q"}',
        b'{0:"\\u12"}',
        b'{0:"\\ud83d"}',
        b'{"a":"\\ud83d"}',
        b"\xff",
        b"nothing",
        b"[" * 100_000,
        b"{0:" * 500,
        b"9" * 5000,
    ],
)
def test_what_cannot_be_read_is_a_protocol_error(data):
    with pytest.raises(ProtocolError):
        loads(data)


def test_back_references_are_followed():
    data = b'{"a":{"x":[1,{"y":2}]},"b":{"$ref":"$.a"},"c":[{"$ref":"$.a.x[1]"}]}'
    assert loads(data) == {"a": {"x": [1, {"y": 2}]}, "b": {"x": [1, {"y": 2}]}, "c": [{"y": 2}]}


def test_back_references_go_through_names_with_marks_and_integer_keys():
    data = (
        b'{"t":{"a-b.c":{"x":1},0:{"z":3}},"b":{"$ref":"$.t.a\\\\-b\\\\.c"},"c":{"$ref":"$.t[0]"}}'
    )
    found = loads(data)
    assert (found["b"], found["c"]) == ({"x": 1}, {"z": 3})


@pytest.mark.parametrize(
    "path", ["$", "..", "@", "$.later", "$.nothing", "$.a[9]", "x", "$.a.", ""]
)
def test_references_into_themselves_or_nowhere_become_nothing(path):
    data = json.dumps({"a": [1], "b": {"$ref": path}, "later": {"x": 1}}).encode()
    assert loads(data)["b"] is None


def test_references_to_references_cannot_explode():
    steps = {"l0": [1] * 10}
    for level in range(1, 60):
        steps[f"l{level}"] = [{"$ref": f"$.l{level - 1}"}] * 10
    with pytest.raises(ProtocolError, match=str(NODES_MAX)):
        loads(json.dumps(steps).encode())


@given(st.binary(max_size=40) | st.text("{}[]:,\"'\\u0129ntaef.-$ref", max_size=40).map(str.encode))
def test_any_bytes_give_a_value_or_a_protocol_error(data):
    try:
        value = loads(data)
    except ProtocolError:
        return
    dumps(value)
    if re.fullmatch(rb'[\[\]{}:,"0-9a-z]*', data):
        assert loads(dumps(value)) is not None or value is None
